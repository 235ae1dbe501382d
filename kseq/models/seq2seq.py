"""What encoder-decoders share: their ids, and decoding."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from kseq import generation
from kseq._checks import check_size, message
from kseq._typing import Tensor
from kseq.generation import Generated, Greedy
from kseq.generation.prompts import check_made_ids, pad_prompts

_LENGTH_MULTIPLE = 8  # generate pads sources to it, to compile for few lengths


class Seq2Seq(keras.Model):
    """Base: a subclass makes the state of a source, and steps from token to token.

    `source_vocabulary_size`, `start_id` and `end_id` are attributes of it.
    """

    continues_prompt = False  # the source has ids of its own

    def start(self, source_ids: Tensor, max_new_tokens: int) -> tuple[Tensor, Any]:
        """Reads the source.

        Args:
            source_ids: int `(B, S)`, 0 for padding.
            max_new_tokens: int, the most steps that will follow.

        Returns:
            `start_id` for each row, which the first step takes, and the state before
            it.
        """
        state = self.empty_state(source_ids, max_new_tokens)
        return ops.full((ops.shape(source_ids)[0],), self.start_id, "int32"), state

    def empty_state(self, source_ids: Tensor, max_length: int) -> Any:
        """The state before the first target token, as `step` takes it.

        Args:
            source_ids: int `(B, S)`, 0 for padding.
            max_length: int, the most tokens that will follow.
        """
        raise NotImplementedError(f"{type(self).__name__} must make a state.")

    def step(self, token_ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Logits `(B, N)` of the next token after `token_ids` `(B,)`, and the state."""
        raise NotImplementedError(f"{type(self).__name__} must step.")

    def generate(
        self,
        source_ids: Any,
        *,
        max_length: int | None = None,
        strategy: generation.Strategy = Greedy(),  # noqa: B008 it can't change
        seed: int = 0,
        batch_size: int = 128,
    ) -> Generated:
        """Decodes each source, in one compiled loop for each batch of them.

        Args:
            source_ids: rows of ids, lists of any lengths or an int array `(B, S)`, 0
                for padding, ending as the sources of the training did (those of
                `kseq.data.BucketedPairs` end with id 2). A row gives the same ids as
                it would alone, but for `Sampling`, which draws them by the number of
                the row.
            max_length: int, the most ids of a row, its end included. None means
                twice the padded source length. Defaults to `None`.
            strategy: `kseq.generation.Greedy()`, `Sampling()`, `BeamSearch(4)` or, of a
                Transformer, `Speculative(draft)`. Defaults to `Greedy()`.
            seed: int, of `Sampling`: the same one gives the same tokens. Defaults to
                `0`.
            batch_size: int, rows decoded at once. Defaults to `128`.

        Returns:
            `kseq.generation.Generated(token_ids, lengths, log_probabilities, scores)`:
            each row ends with `end_id`, unless it was cut at `max_length`.

        Raises:
            ValueError: `` `source_ids` must be rows of integers... ``, and those of
                `kseq.generation.generate`.

        It compiles once for each number of rows up to `batch_size`, source length
        rounded up to a multiple of 8, and other arguments but the seed.
        """
        source = self._padded(source_ids)
        return generation.generate(
            self,
            source,
            2 * source.shape[1] if max_length is None else max_length,
            strategy=strategy,
            stop_ids=(self.end_id,),
            seed=seed,
            batch_size=batch_size,
        )

    def stream(
        self, source_ids: Any, *, max_length: int | None = None, **options: Any
    ) -> Iterator[np.ndarray]:
        """Yields the ids of `generate` as they are made.

        Args:
            source_ids: as `generate` takes them.
            max_length: int, the most ids of a row, its end included. Defaults to
                `None`, as in `generate`.
            **options: `strategy`, `seed` and `chunk_size` of `kseq.generation.stream`.

        Yields:
            int32 `(B, n)`, n at most `chunk_size`; 0 behind the end of a row.
        """
        source = self._padded(source_ids)
        length = 2 * source.shape[1] if max_length is None else max_length
        return generation.stream(
            self, source, length, stop_ids=(self.end_id,), **options
        )

    def whole_inputs(self, source_ids: Any, token_ids: Any) -> dict[str, np.ndarray]:
        """What the model is called with to see whole rows at once.

        Its outputs are the logits of `token_ids`, and
        `kseq.diagnostics.attention_maps` finds what was attended to for each of them.

        Args:
            source_ids: as `generate` takes them.
            token_ids: int `(B, L)`, what it returned for them.

        Returns:
            The inputs of one call: `"source_ids"` `(B, S)` and `"target_ids"` `(B, L)`.

        Raises:
            ValueError: `` `token_ids` must be integers of shape (B, L)... ``
        """
        source = self._padded(source_ids)
        made = check_made_ids(token_ids, len(source))
        first = np.full_like(made[:, :1], self.start_id)
        target = np.concatenate([first, made[:, :-1]], axis=1)
        return {"source_ids": source, "target_ids": target}

    def _padded(self, source_ids: Any) -> np.ndarray:
        return pad_prompts(
            "source_ids",
            source_ids,
            self.source_vocabulary_size,
            multiple=_LENGTH_MULTIPLE,
        )


def check_marks(
    start_id: int, end_id: int, target_vocabulary_size: int
) -> tuple[int, int]:
    """Returns both ids if they are two different target ids."""
    marks = check_size("start_id", start_id), check_size("end_id", end_id)
    if marks[0] == marks[1] or target_vocabulary_size <= max(marks):
        raise ValueError(
            message(
                "`start_id` and `end_id` must be two different target ids.",
                start_id=start_id,
                end_id=end_id,
                target_vocabulary_size=target_vocabulary_size,
            )
        )
    return marks
