"""Whether a tensor has a value now, or will have one when a program runs."""

import keras

from kseq._typing import Tensor
from kseq.backend.half import half


def is_concrete(x: Tensor) -> bool:
    """True for an eager tensor or array, False while a graph is traced or built."""
    if isinstance(x, keras.KerasTensor):
        return False
    return half(tensorflow=_tensorflow_concrete, jax=_jax_concrete)(x)


def _tensorflow_concrete(x: Tensor) -> bool:
    import tensorflow as tf

    return not tf.is_symbolic_tensor(x)


def _jax_concrete(x: Tensor) -> bool:
    import jax

    return not isinstance(x, jax.core.Tracer)
