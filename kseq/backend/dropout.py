"""Dropout whose random bits are cheap under XLA."""

from typing import Any

import keras

from kseq._typing import Tensor
from kseq.backend.half import half


def dropout(
    x: Tensor, rate: float, seed: keras.random.SeedGenerator, noise_shape: Any = None
) -> Tensor:
    """Zeros a share `rate` of `x` and scales the rest by `1 / (1 - rate)`.

    Keras leaves the choice of the generator to TensorFlow, which under XLA on a CPU
    picks one that needs 170 ns a number; Philox by name needs 4. JAX's default is
    fast.

    Args:
        x: float tensor.
        rate: share that is dropped, in [0, 1).
        seed: the generator that the seed is drawn from.
        noise_shape: shape of the mask, broadcast to `x`; None is the shape of `x`.
    """
    run = half(tensorflow=_tensorflow_dropout, jax=_jax_dropout)
    return run(x, rate, seed, noise_shape)


def _jax_dropout(
    x: Tensor, rate: float, seed: keras.random.SeedGenerator, noise_shape: Any
) -> Tensor:
    return keras.random.dropout(x, rate, noise_shape=noise_shape, seed=seed)


def _tensorflow_dropout(
    x: Tensor, rate: float, seed: keras.random.SeedGenerator, noise_shape: Any
) -> Tensor:
    import tensorflow as tf

    x = tf.convert_to_tensor(x)
    uniform = tf.random.stateless_uniform(
        tf.shape(x) if noise_shape is None else noise_shape,
        seed=tf.cast(seed.next(), "int32"),
        alg="philox",
    )
    return tf.where(uniform >= rate, x / tf.cast(1 - rate, x.dtype), tf.zeros_like(x))
