"""LSTMCell: one step by the equations, by hand and by Keras."""

import keras
import numpy as np
import pytest
from helpers import DTYPES, assert_close, gradients, set_weights_by_seed
from reference.cells import lstm_step
from reference.differences import numeric_gradients

import kseq


def test_a_step_worked_in_float64():
    """W[k] = round(sin(k + 1), 3), U[k] = round(cos(k), 3), k = 0..15."""
    cell = kseq.layers.LSTMCell(2)
    cell.build((1, 2))
    k = np.arange(16)
    kernel = np.round(np.sin(k + 1), 3).reshape(2, 8)
    recurrent = np.round(np.cos(k), 3).reshape(2, 8)
    cell.set_weights([kernel, recurrent, np.array([0, 0, 1, 1, 0, 0, 0, 0])])
    states = [np.array([[0.2, -0.1]]), np.array([[0.3, 0.4]])]
    output, (h, c) = cell(np.array([[1.0, -0.5]]), states)
    assert_close("output", output, [[-0.21924097, -0.23416588]])
    assert_close("h", h, [[-0.21924097, -0.23416588]])
    assert_close("c", c, [[-0.36641811, -0.30324465]])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_reference(seed, dtype):
    rng = np.random.default_rng(seed)
    x, h, c = (rng.normal(size=(2, n)).astype(dtype) for n in (3, 5, 5))
    cell = kseq.layers.LSTMCell(5, dtype=dtype)
    cell.build((2, 3))
    weights = set_weights_by_seed(cell, seed)
    rows = [lstm_step(weights, x[b], [h[b], c[b]])[1] for b in range(2)]
    want = [np.stack(state) for state in zip(*rows)]
    output, states = cell(x, [h, c])
    assert_close("output", output, want[0], dtype)
    assert_close("states", states, want, dtype)


def test_gradients_by_central_differences():
    rng = np.random.default_rng(3)
    x, h, c = (rng.normal(size=(1, n)).astype("float32") for n in (3, 2, 2))
    cell = kseq.layers.LSTMCell(2)
    cell.build((1, 3))
    weights = set_weights_by_seed(cell, 3)

    def loss(x, h, c, *weights):
        h, c = lstm_step(weights, x[0], [h[0], c[0]])[1]
        return (h**2 + c**3).sum()

    want = numeric_gradients(loss, [x, h, c, *weights])
    _, d_inputs, d_weights = gradients(
        lambda *args: cell(args[0], list(args[1:]))[1], [x, h, c],
        cell.trainable_variables,
        loss=lambda states: keras.ops.sum(states[0] ** 2 + states[1] ** 3),
    )  # fmt: skip
    assert_close("gradients", d_inputs + d_weights, want, gradient=True)


@pytest.mark.parametrize(
    "options",
    [
        {"activation": "relu", "recurrent_activation": "hard_sigmoid"},
        {"use_bias": False},
        {"unit_forget_bias": False, "bias_initializer": "ones"},
        {"unit_forget_bias": True},
    ],
    ids=["activations", "no-bias", "bias", "forget-bias"],
)
def test_equals_keras(options):
    x, h = np.ones((2, 3), "float32"), np.full((2, 5), 0.3, "float32")
    ours, theirs = (
        kseq.layers.LSTMCell(5, **options),
        keras.layers.LSTMCell(5, **options),
    )
    output, states = ours(x, [h, 2 * h])
    theirs.build((2, 3))
    if ours.use_bias:  # the first biases agree: only the forget gate's may differ
        assert_close("bias", ours.bias, theirs.bias)
    theirs.set_weights(ours.get_weights())
    assert_close("output", output, theirs(x, [h, 2 * h])[0])
    assert_close("states", states, theirs(x, [h, 2 * h])[1])
