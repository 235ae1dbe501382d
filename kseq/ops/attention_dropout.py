"""Dropout of attention weights that does not depend on how they are computed."""

from keras import ops

from kseq._typing import Tensor


def kept_pairs(
    seed: Tensor, rate: float, heads: Tensor, rows: Tensor, columns: Tensor
) -> Tensor:
    """Which pairs of a query and a key dropout keeps: a hash of seed and place.

    The bits of a pair depend on the seed and on its own place only, so that every
    path, every size of block and the gradient draw the same ones, without a mask in
    memory. They come from a multiply-xorshift hash of 32 bits.

    Args:
        seed: int `(2,)`.
        rate: share that is dropped, in [0, 1).
        heads: int, a number for each head of each sequence.
        rows: int, the position of the query.
        columns: int, the number of the key. All three broadcast to one shape.

    Returns:
        bool of that shape, True for a kept pair.
    """
    seed = ops.cast(seed, "uint32")
    bits = _mixed(ops.bitwise_xor(_mixed(seed[0]), seed[1]))
    for number in (heads, rows, columns):
        bits = _mixed(bits + ops.cast(number, "uint32") * _constant(0x9E3779B9))
    return bits >= _constant(min(round(rate * 2**32), 2**32 - 1))


def _mixed(x: Tensor) -> Tensor:
    """A bijection of 32 bits in which each bit of `x` reaches all."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ops.bitwise_xor(x, ops.bitwise_right_shift(x, _constant(shift)))
        x = x * _constant(factor)
    return ops.bitwise_xor(x, ops.bitwise_right_shift(x, _constant(16)))


def _constant(value: int) -> Tensor:
    return ops.convert_to_tensor(value, "uint32")
