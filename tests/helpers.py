"""One comparison, one way to compile and one to differentiate, on both backends."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from kseq.backend import compiled as compile_function

# the largest |got - want| / max(1, |want|); gradients have five times as much
TOLERANCES = {"float64": 1e-10, "float32": 2e-5, "float16": 2e-3, "bfloat16": 2e-2}

on_tensorflow = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="needs TensorFlow"
)
on_jax = pytest.mark.skipif(keras.backend.backend() != "jax", reason="needs JAX")
# float64 is compared on TensorFlow: JAX has none unless the whole process asks
DTYPES = ["float32", pytest.param("float64", marks=on_tensorflow)]


def to_numpy(x: Any) -> np.ndarray:
    """A NumPy array of any tensor; halves become float32."""
    if isinstance(x, keras.Variable):
        x = x.value
    if ops.is_tensor(x):
        if keras.backend.standardize_dtype(x.dtype) in ("bfloat16", "float16"):
            x = ops.cast(x, "float32")
        x = ops.convert_to_numpy(x)
    return np.asarray(x)


def assert_close(
    name: str, got: Any, want: Any, dtype: str = "float32", *, gradient: bool = False
) -> None:
    """Raises with the tensor's name, the worst index and both values there.

    Lists, tuples and dictionaries are compared item by item.
    """
    if isinstance(want, dict):
        got, want = _values(name, got, want), list(want.values())
    if isinstance(want, list | tuple):
        if len(got) != len(want):
            raise AssertionError(f"{name}: {len(got)} tensors, expected {len(want)}")
        for i, (g, w) in enumerate(zip(got, want)):
            assert_close(f"{name}[{i}]", g, w, dtype, gradient=gradient)
        return
    got, want = to_numpy(got), to_numpy(want)
    if got.shape != want.shape:
        raise AssertionError(f"{name}: shape {got.shape}, expected {want.shape}")
    if not got.size:
        return
    bound = TOLERANCES[dtype] * (5 if gradient else 1)
    got, want = got.astype("float64"), want.astype("float64")
    error = np.abs(got - want) / np.maximum(1, np.abs(want))
    error = np.where(np.isnan(error), np.inf, error)  # NaN equals nothing
    worst = np.unravel_index(np.argmax(error), error.shape)
    if error[worst] > bound:
        where = [int(i) for i in worst]
        raise AssertionError(
            f"{name}{where}: got {got[worst]:.9g}, expected {want[worst]:.9g}, "
            f"error {error[worst]:.2g} > {bound:.2g} ({dtype})"
        )


def _values(name: str, got: Any, want: dict) -> list:
    if list(got) != list(want):
        raise AssertionError(f"{name}: keys {list(got)}, expected {list(want)}")
    return list(got.values())


def assert_same(name: str, got: Any, want: Any) -> None:
    """Raises unless every bit is equal; the trees must match."""
    got, want = keras.tree.flatten(got), keras.tree.flatten(want)
    if len(got) != len(want):
        raise AssertionError(f"{name}: {len(got)} tensors, expected {len(want)}")
    for i, (g, w) in enumerate(zip(got, want)):
        np.testing.assert_array_equal(to_numpy(g), to_numpy(w), f"{name}[{i}]")


def compiled(layer: keras.Layer, **options: Any) -> Callable[..., Any]:
    """`layer`, built, compiled by XLA; `options` are fixed call arguments."""
    return compile_function(lambda *args: layer(*args, **options), layer.variables)


def set_weights_by_seed(layer: Any, seed: int, scale: float = 0.6) -> list[np.ndarray]:
    """Gives every weight, biases too, a normal value; returns them."""
    rng = np.random.default_rng(seed)
    values = [rng.normal(0, scale, w.shape).astype("float32") for w in layer.weights]
    layer.set_weights(values)
    return values


def cotangent(like: Any, index: int) -> np.ndarray:
    """Fixed weights, of both signs, that turn an output into a loss."""
    shape = tuple(like.shape)
    return np.cos(np.arange(np.prod(shape)) * 1.7 + index + 0.3).reshape(shape)


def weighted_sum(outputs: Any) -> Any:
    """A scalar that depends on every entry of `outputs` differently."""
    total = 0.0
    for index, y in enumerate(keras.tree.flatten(outputs)):
        compute = keras.backend.result_type(y.dtype, "float32")
        places = ops.cast(ops.arange(ops.size(y)), compute)  # sizes may be unknown
        weights = ops.reshape(ops.cos(places * 1.7 + index + 0.3), ops.shape(y))
        total += ops.sum(ops.cast(y, compute) * weights)
    return total


def gradients(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    variables: Sequence[keras.Variable],
    *,
    mode: str = "eager",
    loss: Callable[[Any], Any] = weighted_sum,
    extras: Sequence[Any] = (),
    state: Sequence[keras.Variable] = (),
) -> tuple[Any, list[np.ndarray], list[np.ndarray]]:
    """Outputs of `function(*inputs, *extras)`, and gradients of `loss(outputs)`.

    `inputs` are arrays (ids get gradients of 0), `extras` are arrays that are not
    differentiated (masks), and `state` further variables that are read and assigned.
    `mode` is

    - `"eager"`;
    - `"compiled"`: by XLA, with the gradient inside;
    - `"forward"`: `function` alone compiled, differentiated from outside;
    - `"unknown"`: as `"compiled"`, traced for any batch and time (TensorFlow).

    Returns outputs, gradients of the inputs and gradients of `variables`.
    """
    run = _tensorflow if keras.backend.backend() == "tensorflow" else _jax
    inputs = [ops.convert_to_tensor(x) for x in inputs]
    extras = [ops.convert_to_tensor(x) for x in extras]
    result = run(function, inputs, extras, list(variables), mode, loss, list(state))
    return keras.tree.map_structure(to_numpy, result)


def _tensorflow(function, inputs, extras, variables, mode, loss, state):
    import tensorflow as tf

    del state  # TensorFlow's variables need no care
    function = tf.autograph.experimental.do_not_convert(function)
    if mode == "forward":
        function = tf.function(function, jit_compile=True)

    def both(*arguments):
        inputs = list(arguments[: len(arguments) - len(extras)])
        values = [v.value for v in variables]
        with tf.GradientTape() as tape:
            tape.watch([x for x in inputs if x.dtype.is_floating])
            outputs = function(*arguments)
            total = loss(outputs)
        zero = tf.UnconnectedGradients.ZERO
        found = tape.gradient(total, [inputs, values], unconnected_gradients=zero)
        return outputs, *tf.nest.map_structure(tf.convert_to_tensor, found)

    arguments = [*inputs, *extras]
    if mode in ("compiled", "unknown"):
        signature = None
        if mode == "unknown":
            signature = [_any_batch_and_time(x) for x in arguments]
        both = tf.autograph.experimental.do_not_convert(both)
        both = tf.function(both, jit_compile=True, input_signature=signature)
    return both(*arguments)


def _any_batch_and_time(x):
    import tensorflow as tf

    known = 1 if x.dtype.is_floating else 0  # the width of the features
    unknown = min(2, len(x.shape) - known)
    return tf.TensorSpec([None] * unknown + x.shape[unknown:].as_list(), x.dtype)


def _jax(function, inputs, extras, variables, mode, loss, state):
    import jax

    both = jax_value_and_gradients(function, variables, loss, state, mode)
    if mode == "compiled":
        both = jax.jit(both)
    (_, outputs), found = both(inputs, [v.value for v in variables], extras)
    found = jax.tree.map(
        lambda g: np.zeros(g.shape) if g.dtype == jax.dtypes.float0 else g, found
    )
    return outputs, *found


def jax_value_and_gradients(function, variables, loss, state=(), mode="eager"):
    """A pure function of `(inputs, values, extras)`, for `jax.jit` or `jax.export`."""
    import jax

    state_values = [v.value for v in state]

    def call(inputs, values, extras):
        mapping = [*zip(variables, values), *zip(state, state_values)]
        with keras.StatelessScope(mapping):
            return function(*inputs, *extras)

    if mode == "forward":
        call = jax.jit(call)

    def total(inputs, values, extras):
        outputs = call(inputs, values, extras)
        return loss(outputs), outputs

    return jax.value_and_grad(total, argnums=(0, 1), has_aux=True, allow_int=True)
