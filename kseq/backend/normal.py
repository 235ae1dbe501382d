"""Normal noise whose random bits are cheap under XLA."""

from typing import Any

import keras

from kseq._typing import Tensor
from kseq.backend.half import half


def normal(shape: Any, dtype: str, seed: keras.random.SeedGenerator) -> Tensor:
    """Numbers drawn from N(0, 1), with the generator that `dropout` chose.

    Args:
        shape: sizes, which may be tensors.
        dtype: a float dtype.
        seed: the generator that the seed is drawn from.
    """
    run = half(tensorflow=_tensorflow_normal, jax=_jax_normal)
    return run(shape, dtype, seed)


def _jax_normal(shape: Any, dtype: str, seed: keras.random.SeedGenerator) -> Tensor:
    return keras.random.normal(shape, dtype=dtype, seed=seed)


def _tensorflow_normal(
    shape: Any, dtype: str, seed: keras.random.SeedGenerator
) -> Tensor:
    import tensorflow as tf

    return tf.random.stateless_normal(
        shape, seed=tf.cast(seed.next(), "int32"), dtype=dtype, alg="philox"
    )
