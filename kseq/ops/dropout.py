"""Dropout whose random bits are a hash of the seed and of the place."""

from typing import Any

import keras
from keras import ops

from kseq._typing import Tensor


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

    The bits depend on the seed and the place only, so that every path, every size of
    block and the gradient draw the same ones, without a mask in memory. They come
    from a multiply-xorshift hash of 32 bits, once for each number of a place.

    Args:
        seed: int `(2,)`.
        rate: share that is dropped, in [0, 1).
        *place: int, the numbers of a place, such as a row's and a column's. They
            broadcast to one shape.

    Returns:
        bool of that shape, True for what is kept.
    """
    seed = ops.cast(seed, "uint32")
    bits = _mixed(ops.bitwise_xor(_mixed(seed[0]), seed[1]))
    for number in place:
        bits = _mixed(bits + ops.cast(number, "uint32") * _constant(0x9E3779B9))
    return bits >= _constant(min(round(rate * 2**32), 2**32 - 1))


def _size(shape: Any) -> Any:
    size = 1
    for length in shape:
        size = size * length
    return size


def _mixed(x: Tensor) -> Tensor:
    """A bijection of 32 bits in which each bit of `x` reaches all."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ops.bitwise_xor(x, ops.bitwise_right_shift(x, _constant(shift)))
        x = x * _constant(factor)
    return ops.bitwise_xor(x, ops.bitwise_right_shift(x, _constant(16)))


def _constant(value: int) -> Tensor:
    return ops.convert_to_tensor(value, "uint32")
