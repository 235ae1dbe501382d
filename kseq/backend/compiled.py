"""A compiled function over arrays, with Keras variables as its hidden input."""

from collections.abc import Callable, Sequence
from typing import Any

import keras

from kseq.backend.half import half


def compiled(
    function: Callable[..., Any],
    variables: Sequence[keras.Variable],
    *,
    jit_compile: bool = True,
) -> Callable[..., Any]:
    """Compiles `function`, which may read `variables` but not assign them.

    Args:
        function: maps trees of tensors to a tree of tensors.
        variables: every Keras variable that `function` reads. Their values are
            read at each call, so the result follows training.
        jit_compile: bool. False runs a TensorFlow graph without XLA; JAX always
            compiles. Defaults to `True`.

    Returns:
        A callable with the arguments of `function`. It traces once for each new
        set of shapes and dtypes.
    """
    build = half(tensorflow=_tensorflow_compiled, jax=_jax_compiled)
    return build(function, list(variables), jit_compile)


def _tensorflow_compiled(
    function: Callable[..., Any], variables: list[keras.Variable], jit_compile: bool
) -> Callable[..., Any]:
    import tensorflow as tf

    graph = tf.function(function, jit_compile=jit_compile)
    return lambda *args: graph(*tf.nest.map_structure(tf.convert_to_tensor, args))


def _jax_compiled(
    function: Callable[..., Any], variables: list[keras.Variable], jit_compile: bool
) -> Callable[..., Any]:
    import jax

    @jax.jit
    def pure(values: list[Any], *args: Any) -> Any:
        with keras.StatelessScope(zip(variables, values, strict=True)):
            return function(*args)

    return lambda *args: pure([v.value for v in variables], *args)
