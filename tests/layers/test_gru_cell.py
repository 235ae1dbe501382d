"""GRUCell: both forms of the new state, by the equations, by hand and by Keras."""

import keras
import numpy as np
import pytest
from helpers import DTYPES, assert_close, gradients, set_weights_by_seed
from reference.cells import gru_before_step, gru_step
from reference.differences import numeric_gradients

import kseq

STEPS = {True: gru_step, False: gru_before_step}
W = [[0.5, -0.4, 0.3, 0.2, 1.0, -0.7]]
U = [[0.3, 0.1, 0.8, -0.2, -0.6, 0.4], [-0.5, 0.2, 0.1, 0.7, 0.3, 0.9]]
B = [0.1, 0.0, 0.0, 0.1, -0.2, 0.3]
C = [0.05, 0.0, -0.1, 0.2, 0.4, -0.3]


@pytest.mark.parametrize(
    ("reset_after", "bias", "want"),
    [
        (True, [B, C], [0.54908921, -0.41354788]),
        (True, [B, [0.0] * 6], [0.50048727, -0.33425076]),
        (False, B, [0.50305422, -0.31819465]),
    ],
    ids=["after", "after-without-c", "before"],
)
def test_a_step_worked_in_float64(reset_after, bias, want):
    """Cho et al. (2014), eq. 5-8, with two units: with one the forms coincide."""
    cell = kseq.layers.GRUCell(2, reset_after=reset_after)
    cell.build((1, 1))
    cell.set_weights([np.array(w) for w in (W, U, bias)])
    output, (h,) = cell(np.ones((1, 1)), [np.array([[0.5, -0.25]])])
    assert_close("output", output, [want])
    assert_close("h", h, [want])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reset_after", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_reference(seed, reset_after, dtype):
    rng = np.random.default_rng(seed)
    x, h = (rng.normal(size=(2, n)).astype(dtype) for n in (3, 5))
    cell = kseq.layers.GRUCell(5, reset_after=reset_after, dtype=dtype)
    cell.build((2, 3))
    weights = set_weights_by_seed(cell, seed)
    want = [STEPS[reset_after](weights, x[b], [h[b]])[0] for b in range(2)]
    assert_close("output", cell(x, [h])[0], want, dtype)


@pytest.mark.parametrize("reset_after", [True, False], ids=["after", "before"])
def test_gradients_by_central_differences(reset_after):
    rng = np.random.default_rng(3)
    x, h = (rng.normal(size=(1, n)).astype("float32") for n in (3, 2))
    cell = kseq.layers.GRUCell(2, reset_after=reset_after)
    cell.build((1, 3))
    weights = set_weights_by_seed(cell, 3)
    want = numeric_gradients(
        lambda x, h, *w: (STEPS[reset_after](w, x[0], [h[0]])[0] ** 2).sum(),
        [x, h, *weights],
    )
    _, d_inputs, d_weights = gradients(
        lambda x, h: cell(x, [h])[0], [x, h], cell.trainable_variables,
        loss=lambda y: keras.ops.sum(y * y),
    )  # fmt: skip
    assert_close("gradients", d_inputs + d_weights, want, gradient=True)


@pytest.mark.parametrize(
    "options",
    [
        {"activation": "relu", "recurrent_activation": "hard_sigmoid"},
        {"use_bias": False},
        {"use_bias": False, "reset_after": False},
        {"reset_after": False, "bias_initializer": "ones"},
    ],
    ids=["activations", "no-bias", "no-bias-before", "before"],
)
def test_equals_keras(options):
    x, h = np.ones((2, 3), "float32"), np.full((2, 5), 0.3, "float32")
    ours, theirs = kseq.layers.GRUCell(5, **options), keras.layers.GRUCell(5, **options)
    output, _ = ours(x, [h])
    theirs.build((2, 3))
    theirs.set_weights(ours.get_weights())
    assert_close("output", output, theirs(x, [h])[0])
