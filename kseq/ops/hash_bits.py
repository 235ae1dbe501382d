"""Random bits that are a hash of a seed and of a place."""

from keras import ops

from kseq._typing import Tensor


def hash_bits(seed: Tensor, *place: Tensor) -> Tensor:
    """32 random bits for each place.

    They depend on the seed and the place only, so that they are the same on every
    backend, in blocks of every size and in a gradient, without a tensor of them in
    memory. A multiply-xorshift hash of 32 bits makes them, once for each number of a
    place; under XLA they are made where they are used.

    Args:
        seed: int `(2,)`.
        *place: int, the numbers of a place, such as a row's and a column's. They
            broadcast to one shape.

    Returns:
        uint32 of that shape.
    """
    seed = ops.cast(seed, "uint32")
    bits = _mixed(ops.bitwise_xor(_mixed(seed[0]), seed[1]))
    for number in place:
        bits = _mixed(bits + ops.cast(number, "uint32") * _constant(0x9E3779B9))
    return bits


def hash_uniform(seed: Tensor, *place: Tensor) -> Tensor:
    """A float32 number in (0, 1) for each place, from `hash_bits`.

    One of the 2^24 that have the same distance, none of which float32 rounds.
    """
    bits = hash_bits(seed, *place)
    top = ops.cast(ops.bitwise_right_shift(bits, _constant(8)), "float32")
    return (top + 0.5) / 2**24


def _mixed(x: Tensor) -> Tensor:
    """A bijection of 32 bits in which each bit of `x` reaches all."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ops.bitwise_xor(x, ops.bitwise_right_shift(x, _constant(shift)))
        x = x * _constant(factor)
    return ops.bitwise_xor(x, ops.bitwise_right_shift(x, _constant(16)))


def _constant(value: int) -> Tensor:
    return ops.convert_to_tensor(value, "uint32")
