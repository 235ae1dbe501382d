"""Half precision: values near those of float32, weights and outputs by the policy."""

import keras
import pytest
from helpers import assert_close, gradients
from layer_cases import cases


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
@cases()
def test_values_of_mixed_precision(case, half):
    """The float32 layer is held to the float64 references by its own tests."""
    want = case.built()(*case.inputs(), **case.options)
    layer = case.built(dtype=f"mixed_{half}")
    got = layer(*case.inputs(), **case.options)
    assert all(w.dtype == "float32" for w in layer.weights)
    got, want = keras.tree.flatten(got), keras.tree.flatten(want)
    dtype = keras.backend.standardize_dtype(got[0].dtype)
    assert dtype == case.output_dtype(half)
    assert_close("outputs", got, want, half)


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
@cases()
def test_weights_and_outputs_of_half_precision(case, half):
    layer = case.built(dtype=half)
    outputs = keras.tree.flatten(layer(*case.inputs(), **case.options))
    assert all(w.dtype == half for w in layer.weights)
    dtype = keras.backend.standardize_dtype(outputs[0].dtype)
    assert dtype == case.output_dtype(half)


on_jax = keras.backend.backend() == "jax"


# JAX casts where TensorFlow does, and takes longer to compile
@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("compiled", marks=[pytest.mark.slow] * on_jax),
        pytest.param("forward", marks=pytest.mark.slow),
    ],
)
@cases()
def test_gradients_of_mixed_precision(case, mode):
    """Compiled, as `fit` takes them; held to those of the eager layer."""
    layer = case.built(dtype="mixed_bfloat16")
    structure = case.inputs()

    def call(*x):
        given = keras.tree.pack_sequence_as(structure, x)
        return keras.tree.flatten(layer(*given, **case.options))[0]

    inputs = keras.tree.flatten(structure)
    _, _, want = gradients(call, inputs, layer.trainable_variables)
    _, _, got = gradients(call, inputs, layer.trainable_variables, mode=mode)
    assert_close("gradients", got, want, "bfloat16", gradient=True)
