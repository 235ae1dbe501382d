"""SimpleRNNCell: one step by the equation, by hand and by Keras."""

import keras
import numpy as np
import pytest
from helpers import DTYPES, assert_close, gradients, set_weights_by_seed
from reference.cells import simple_rnn_step
from reference.differences import numeric_gradients

import kseq


def test_four_steps_by_hand():
    """h_t = tanh(.9 h + .5 x), worked in float64."""
    cell = kseq.layers.SimpleRNNCell(1)
    cell.build((1, 1))
    cell.set_weights([np.array([[0.5]]), np.array([[0.9]]), np.zeros(1)])
    states, found = [np.zeros((1, 1), "float32")], []
    for x in [1.0, -1.0, 0.5, 2.0]:
        output, states = cell(np.array([[x]], "float32"), states)
        found.append(float(output[0, 0]))
    want = [0.4621171573, -0.0838968817, 0.1727431422, 0.8195576978]
    assert_close("h", found, want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_reference(seed, dtype):
    rng = np.random.default_rng(seed)
    x, h = rng.normal(size=(2, 3)), rng.normal(size=(2, 5))
    cell = kseq.layers.SimpleRNNCell(5, dtype=dtype)
    cell.build((2, 3))
    weights = set_weights_by_seed(cell, seed)
    x, h = x.astype(dtype), h.astype(dtype)
    output, states = cell(x, [h])
    want = [simple_rnn_step(weights, x[b], [h[b]])[0] for b in range(2)]
    assert_close("output", output, want, dtype)
    assert_close("states", states, [want], dtype)


def test_gradients_by_central_differences():
    rng = np.random.default_rng(3)
    x, h = (rng.normal(size=(1, n)).astype("float32") for n in (3, 5))
    cell = kseq.layers.SimpleRNNCell(5)
    cell.build((1, 3))
    weights = set_weights_by_seed(cell, 3)
    loss = lambda x, h, *weights: (simple_rnn_step(weights, x[0], [h[0]])[0] ** 2).sum()
    want = numeric_gradients(loss, [x, h, *weights])
    _, d_inputs, d_weights = gradients(
        lambda x, h: cell(x, [h])[0], [x, h], cell.trainable_variables,
        loss=lambda y: keras.ops.sum(y * y),
    )  # fmt: skip
    assert_close("gradients", d_inputs + d_weights, want, gradient=True)


@pytest.mark.parametrize(
    "options",
    [
        {"activation": "relu", "use_bias": False},
        {"activation": keras.activations.softsign, "bias_initializer": "ones"},
    ],
    ids=["relu-no-bias", "softsign-bias"],
)
def test_equals_keras(options):
    x, h = np.ones((2, 3), "float32"), np.full((2, 5), 0.3, "float32")
    ours = kseq.layers.SimpleRNNCell(5, **options)
    theirs = keras.layers.SimpleRNNCell(5, **options)
    output, states = ours(x, [h])
    theirs.build((2, 3))
    theirs.set_weights(ours.get_weights())
    assert_close("output", output, theirs(x, [h])[0])
    assert_close("states", states, theirs(x, [h])[1])


def test_the_form_of_the_states_is_kept():
    cell, x = kseq.layers.SimpleRNNCell(5), np.ones((2, 3), "float32")
    h = np.zeros((2, 5), "float32")
    assert isinstance(cell(x, [h])[1], list)
    assert tuple(cell(x, h)[1].shape) == (2, 5)
