"""A sequence in chunks that a scan works on side by side."""

import math
from typing import NamedTuple

from keras import ops

from kseq._typing import Tensor


class TimeChunks(NamedTuple):
    """`(B, T, n)` in about sqrt(T) chunks of about sqrt(T) steps each.

    Cut, it is `(places, chunks * B, n)`: what stands at one place of all chunks lies
    side by side. The last chunk to run ends in zeros.

    Attributes:
        batch: B.
        length: T, at least 1.
        places: the steps of a chunk.
        chunks: how many there are.
        reverse: bool. True where the sequence runs from the last step to the first.
    """

    batch: Tensor
    length: Tensor
    places: Tensor
    chunks: Tensor
    reverse: bool

    @classmethod
    def of(cls, x: Tensor, *, reverse: bool) -> "TimeChunks":
        """Those of `x` `(B, T, n)`; B and T may be unknown until the scan runs."""
        batch, length = ops.shape(x)[:2]
        places = _sqrt(length)
        return cls(batch, length, places, -(-length // places), reverse)

    def cut(self, x: Tensor) -> Tensor:
        """`x` `(B, T, n)` as `(places, chunks * B, n)`."""
        width = x.shape[-1]
        zeros = ops.zeros((self.batch, self._missing, width), x.dtype)
        x = ops.concatenate([zeros, x] if self.reverse else [x, zeros], axis=1)
        x = ops.reshape(x, (self.batch, self.chunks, self.places, width))
        x = ops.transpose(x, (2, 1, 0, 3))  # (places, chunks, B, n)
        return ops.reshape(x, (self.places, self.chunks * self.batch, width))

    def joined(self, x: Tensor) -> Tensor:
        """`x` `(places, chunks * B, n)` as `(B, T, n)`."""
        width = x.shape[-1]
        x = ops.reshape(x, (self.places, self.chunks, self.batch, width))
        x = ops.transpose(x, (2, 1, 0, 3))  # (B, chunks, places, n)
        x = ops.reshape(x, (self.batch, self.chunks * self.places, width))
        return x[:, self._missing :] if self.reverse else x[:, : self.length]

    @property
    def _missing(self) -> Tensor:
        return self.chunks * self.places - self.length


def _sqrt(length: Tensor) -> Tensor:
    """The root, rounded up: a number if `length` is one."""
    if isinstance(length, int):
        return math.isqrt(length - 1) + 1
    if not ops.is_tensor(length):
        return 1  # a symbolic size of JAX, while Keras infers shapes: any cut will do
    return ops.cast(ops.ceil(ops.sqrt(ops.cast(length, "float32"))), length.dtype)
