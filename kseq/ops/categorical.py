"""Random tokens of a distribution given by logits."""

from keras import ops

from kseq._typing import Tensor
from kseq.ops.hash_bits import hash_uniform


def draw(logits: Tensor, seed: Tensor, *place: Tensor) -> Tensor:
    """Ids that have the distribution softmax(logits), over the last axis.

        id = argmax(z + g),  g = -log(-log u)

    with u a hash of the seed, the place and the id: the same on every backend.

    Args:
        logits: float32 `(..., N)`.
        seed: int `(2,)`.
        *place: int, the numbers of a place, such as its row and its position. They
            broadcast to the other axes of `logits`.

    Returns:
        int32 `(...)`.
    """
    numbers = [ops.expand_dims(ops.cast(number, "int32"), -1) for number in place]
    tokens = ops.arange(logits.shape[-1], dtype="int32")
    noise = -ops.log(-ops.log(hash_uniform(seed, *numbers, tokens)))
    return ops.cast(ops.argmax(logits + noise, axis=-1), "int32")


def without_padding(logits: Tensor) -> Tensor:
    """Logits `(..., N)` in which token 0 is impossible."""
    padding = ops.arange(logits.shape[-1], dtype="int32") == 0
    return ops.where(padding, ops.cast(float("-inf"), logits.dtype), logits)
