"""Norms by layer, against float64 NumPy."""

import keras
import numpy as np
from keras import ops

from kseq.diagnostics import gradient_norms, layer_path


def variables_and_gradients(seed):
    inputs = keras.Input((5,))
    x = keras.layers.Dense(3, name="first")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(2, name="second")(x))
    rng = np.random.default_rng(seed)
    variables = model.trainable_variables
    return variables, [rng.normal(size=v.shape).astype("float32") for v in variables]


def test_paths_name_the_layers():
    variables, _ = variables_and_gradients(0)
    assert [layer_path(v) for v in variables] == ["first"] * 2 + ["second"] * 2


def test_norms_of_all_and_of_each_layer():
    variables, gradients = variables_and_gradients(1)
    norm = [np.sum(g.astype("float64") ** 2) for g in gradients]
    want = np.sqrt([sum(norm), norm[2] + norm[3], norm[0] + norm[1]])
    got = gradient_norms(
        [ops.convert_to_tensor(g * 8) for g in gradients],
        variables,
        ["second", "first"],
        scale=8.0,
    )
    assert keras.backend.standardize_dtype(got.dtype) == "float32"
    np.testing.assert_allclose(ops.convert_to_numpy(got), want, rtol=1e-6)


def test_no_gradient_counts_as_zero_and_other_layers_count_in_the_global_norm():
    variables, gradients = variables_and_gradients(2)
    tensors = [ops.convert_to_tensor(g) for g in gradients]
    tensors[2] = tensors[3] = None
    got = ops.convert_to_numpy(gradient_norms(tensors, variables, ["second"]))
    norm = np.sqrt(sum(np.sum(g.astype("float64") ** 2) for g in gradients[:2]))
    np.testing.assert_allclose(got, [norm, 0.0], rtol=1e-6)


def test_scaled_float16_gradients_do_not_overflow():
    variables, gradients = variables_and_gradients(3)
    scaled = [ops.full(g.shape, 6e4, "float16") for g in gradients]
    got = gradient_norms(scaled, variables, [], scale=2.0**15)
    count = sum(g.size for g in gradients)
    want = [float(np.float16(6e4)) / 2**15 * count**0.5]
    np.testing.assert_allclose(ops.convert_to_numpy(got), want, rtol=1e-6)
