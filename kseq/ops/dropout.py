"""Dropout whose random bits are a hash of the seed and of the place."""

from typing import Any

import keras
from keras import ops

from kseq._typing import Tensor
from kseq.ops.hash_bits import hash_bits


def dropout(
    x: Tensor, rate: float, seed: keras.random.SeedGenerator, noise_shape: Any = None
) -> Tensor:
    """Zeros a share `rate` of `x` and scales the rest by `1 / (1 - rate)`.

    XLA makes the bits where they are used, for under a nanosecond each on a CPU. A
    random generator needs more: JAX's 11, that of TensorFlow's choice 218, Philox 20.

    Args:
        x: float tensor.
        rate: share that is dropped, in [0, 1).
        seed: the generator that the seed is drawn from.
        noise_shape: shape of the mask, broadcast to `x`; None is the shape of `x`.
    """
    shape = ops.shape(x) if noise_shape is None else noise_shape
    places = ops.reshape(ops.arange(_size(shape), dtype="int32"), shape)
    kept = kept_places(seed.next(), rate, places)
    return ops.where(kept, x / ops.cast(1 - rate, x.dtype), ops.zeros_like(x))


def kept_places(seed: Tensor, rate: float, *place: Tensor) -> Tensor:
    """Which places dropout keeps.

    They are those of `hash_bits`: every path, every size of block and the gradient
    draw the same ones, without a mask in memory.

    Args:
        seed: int `(2,)`.
        rate: share that is dropped, in [0, 1).
        *place: int, the numbers of a place, such as a row's and a column's. They
            broadcast to one shape.

    Returns:
        bool of that shape, True for what is kept.
    """
    smallest = min(round(rate * 2**32), 2**32 - 1)
    bits = hash_bits(seed, *place)
    return bits >= ops.convert_to_tensor(smallest, "uint32")


def _size(shape: Any) -> Any:
    size = 1
    for length in shape:
        size = size * length
    return size
