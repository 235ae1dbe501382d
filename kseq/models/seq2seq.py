"""What encoder-decoders share: their ids, and greedy decoding of many rows."""

from typing import Any

import keras
import numpy as np
from keras import ops

from kseq._checks import check_size, message
from kseq._typing import Tensor
from kseq.backend import compiled
from kseq.generation import greedy_decode
from kseq.generation.token_batches import (
    check_token_ids,
    decode_in_batches,
    pad_length,
)

_LENGTH_MULTIPLE = 8  # generate pads sources to it, to compile for few lengths


class Seq2Seq(keras.Model):
    """Base: a subclass makes the state of a source, and steps from token to token.

    `source_vocabulary_size`, `start_id` and `end_id` are attributes of it.
    """

    def start(self, source_ids: Tensor, max_length: int) -> Any:
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
        batch_size: int = 128,
    ) -> np.ndarray:
        """Decodes greedily, in one compiled loop for each batch.

        Args:
            source_ids: int array `(B, S)`, 0 for padding, ending as the sources of
                the training did (those of `kseq.data.BucketedPairs` end with id 2).
                Rows may differ in length: a row gives the same ids as it would alone.
            max_length: int, the most ids of a row, its end included. None means
                twice the padded source length. Defaults to `None`.
            batch_size: int, rows decoded at once. Defaults to `128`.

        Returns:
            int32 array `(B, L)`: each row ends with `end_id`, unless it was cut at
            `max_length`, and is filled with 0. L is the longest row's length.

        Raises:
            ValueError: `` `source_ids` must be integers of shape (B, S)... ``

        It compiles once for each number of rows up to `batch_size`, and for each
        source length rounded up to a multiple of 8.
        """
        source = check_token_ids("source_ids", source_ids, self.source_vocabulary_size)
        source = pad_length(source, _LENGTH_MULTIPLE)
        if max_length is None:
            max_length = 2 * source.shape[1]
        decode = self._decoder(check_size("max_length", max_length))
        size = min(check_size("batch_size", batch_size), len(source))
        return decode_in_batches(decode, source, size)

    def _decoder(self, max_length: int) -> Any:
        if max_length not in self._decoders:

            def decode(source_ids: Tensor) -> Tensor:
                return greedy_decode(
                    self.step,
                    self.start(source_ids, max_length),
                    batch_size=ops.shape(source_ids)[0],
                    start_id=self.start_id,
                    end_id=self.end_id,
                    max_length=max_length,
                )

            self._decoders[max_length] = compiled(decode, self.variables)
        return self._decoders[max_length]


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
