"""A table whose gradient is a tensor, whatever its rows were taken by."""

from collections.abc import Callable

from kseq._typing import Tensor
from kseq.backend.half import half


def dense_gradient(table: Tensor) -> Tensor:
    """`table`, with a gradient that Keras's optimizers read rightly.

    On TensorFlow the gradient of a lookup lists rows, a repeated one as often as it
    was taken. Keras's Adam adds up the squares of those entries, where it should
    square their sum: a token that stands n times in a batch moves up to sqrt(n) times
    too far. JAX has dense gradients only.
    """
    return half(tensorflow=_tensorflow_dense_gradient, jax=lambda table: table)(table)


def _tensorflow_dense_gradient(table: Tensor) -> Tensor:
    import tensorflow as tf

    @tf.custom_gradient
    def identity(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        return tf.identity(x), lambda upstream: tf.convert_to_tensor(upstream)

    return identity(tf.convert_to_tensor(table))
