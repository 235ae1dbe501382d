"""The gradient of a function with respect to its first argument."""

from collections.abc import Callable
from typing import Any

from kseq.backend.half import half

Tree = Any  # nested lists, tuples and dictionaries of tensors


def gradient(function: Callable[..., Any]) -> Callable[..., Tree]:
    """Returns `(inputs, *args) -> d function(inputs, *args) / d inputs`.

    Args:
        function: maps a tree of floating-point tensors, and further arguments, to a
            scalar.

    Returns:
        A function to a tree like `inputs`, zeros where nothing depends on it.
    """
    return half(tensorflow=_tensorflow_gradient, jax=_jax_gradient)(function)


def _tensorflow_gradient(function: Callable[..., Any]) -> Callable[..., Tree]:
    import tensorflow as tf

    def run(inputs: Tree, *args: Any) -> Tree:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(inputs)
            value = function(inputs, *args)
        zero = tf.UnconnectedGradients.ZERO
        return tape.gradient(value, inputs, unconnected_gradients=zero)

    return tf.autograph.experimental.do_not_convert(run)


def _jax_gradient(function: Callable[..., Any]) -> Callable[..., Tree]:
    import jax

    return jax.grad(function)
