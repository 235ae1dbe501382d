"""What language models share: they continue prompts."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kseq import generation
from kseq._checks import check_size
from kseq._typing import Tensor
from kseq.generation import Generated, Greedy
from kseq.generation.prompts import check_made_ids, pad_prompts
from kseq.models.trunk_and_head import TrunkAndHead

_LENGTH_MULTIPLE = 16  # prompts are padded to it, to compile for few lengths


class LanguageModel(TrunkAndHead):
    """Base: a subclass reads a prompt, and steps from token to token.

    `vocabulary_size` is an attribute of it.
    """

    vocabulary_size: int

    def start(self, prompt_ids: Tensor, max_new_tokens: int) -> tuple[Tensor, Any]:
        """Reads a prompt, in one pass.

        Args:
            prompt_ids: int `(B, P)`, 0 for padding, which is on the left.
            max_new_tokens: int, the most steps that will follow.

        Returns:
            The last id of each row, which the first step takes, and the state before
            it.
        """
        raise NotImplementedError(f"{type(self).__name__} must read a prompt.")

    def step(self, token_ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Logits `(B, N)` of the next token after `token_ids` `(B,)`, and the state."""
        raise NotImplementedError(f"{type(self).__name__} must step.")

    def check_length(self, length: int) -> None:
        """Refuses rows of more tokens than the model can read; most read any."""
        del length

    def generate(
        self,
        prompts: Any,
        max_new_tokens: int,
        *,
        strategy: generation.Strategy = Greedy(),  # noqa: B008 it can't change
        stop_ids: Sequence[int] = (),
        seed: int = 0,
        batch_size: int = 128,
    ) -> Generated:
        """Continues each prompt, in one compiled loop for each batch of them.

        Args:
            prompts: rows of ids, lists of any lengths or an int array `(B, P)` in which
                0 is padding. A row gives the same tokens as it would alone, but for
                `Sampling`, which draws them by the number of the row.
            max_new_tokens: int, the most tokens of a row, a stop id included.
            strategy: `kseq.generation.Greedy()`, `Sampling()`, `BeamSearch(4)` or
                `Speculative(draft)`. Defaults to `Greedy()`.
            stop_ids: ids that end a row. Defaults to none.
            seed: int, of `Sampling`: the same one gives the same tokens. Defaults to
                `0`.
            batch_size: int, prompts decoded at once. Defaults to `128`.

        Returns:
            `kseq.generation.Generated(token_ids, lengths, log_probabilities, scores)`,
            without the prompts.

        Raises:
            ValueError: `` `prompts` must be rows of integers... ``,
                `` There are fewer learned positions than `max_length`... ``, and those
                of `kseq.generation.generate`.

        It compiles once for each number of rows up to `batch_size`, length of the
        longest prompt rounded up to a multiple of 16, and other arguments but the seed.
        """
        ids = self._padded(prompts, max_new_tokens)
        if isinstance(draft := getattr(strategy, "draft", None), LanguageModel):
            draft._padded(prompts, max_new_tokens)
        return generation.generate(
            self,
            ids,
            max_new_tokens,
            strategy=strategy,
            stop_ids=stop_ids,
            seed=seed,
            batch_size=batch_size,
        )

    def stream(
        self, prompts: Any, max_new_tokens: int, **options: Any
    ) -> Iterator[np.ndarray]:
        """Yields the tokens of `generate` as they are made.

        Args:
            prompts: as `generate` takes them.
            max_new_tokens: int, the most tokens of a row, a stop id included.
            **options: `strategy`, `stop_ids`, `seed` and `chunk_size` of
                `kseq.generation.stream`.

        Yields:
            int32 `(B, n)`, n at most `chunk_size`; 0 behind the end of a row.
        """
        return generation.stream(
            self, self._padded(prompts, max_new_tokens), max_new_tokens, **options
        )

    def whole_inputs(self, prompts: Any, token_ids: Any) -> Any:
        """What the model is called with to see whole rows at once.

        The last L places of its outputs are the logits of `token_ids`; those of
        `kseq.diagnostics.attention_maps` say what was attended to for each of them.

        Args:
            prompts: as `generate` takes them.
            token_ids: int `(B, L)`, what it returned for them.

        Returns:
            The inputs of one call: ids `(B, P + L - 1)`, the prompts padded on the left
            to the longest of them.

        Raises:
            ValueError: `` `token_ids` must be integers of shape (B, L)... ``
        """
        before = pad_prompts("prompts", prompts, self.vocabulary_size, left=True)
        made = check_made_ids(token_ids, len(before))
        return np.concatenate([before, made[:, :-1]], axis=1)

    def _padded(self, prompts: Any, max_new_tokens: int) -> np.ndarray:
        ids = pad_prompts(
            "prompts",
            prompts,
            self.vocabulary_size,
            multiple=_LENGTH_MULTIPLE,
            left=True,
        )
        longest = int(np.count_nonzero(ids, axis=1).max(initial=1))
        # the last token that is made is not read
        self.check_length(longest + check_size("max_new_tokens", max_new_tokens) - 1)
        return ids
