"""The coverage loss: worked values, the reference, gradients, masks."""

import keras
import numpy as np
import pytest
from helpers import DTYPES, assert_close, assert_same, cotangent, gradients, to_numpy
from reference.alignment import coverage_loss as reference
from reference.differences import numeric_gradients

from kseq.ops import coverage_loss

MASK = np.array([[True, True, True, False], [False, True, False, True]])


def maps(seed, dtype="float32"):
    weights = np.random.default_rng(seed).random((2, 4, 5))
    return (weights / weights.sum(-1, keepdims=True)).astype(dtype)


def test_worked_values():
    """See et al. (2017), eq. 12: 0, .4 and .6, in all 1."""
    weights = np.float32([[[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]])
    loss = to_numpy(coverage_loss(weights))
    assert_close("loss", loss, [[0, 0.4, 0.6]])
    assert_close("total", loss.sum(), 1.0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_reference(seed, dtype):
    weights = maps(seed, dtype)
    every = np.ones(MASK.shape, bool)
    assert_close("loss", coverage_loss(weights), reference(weights, every), dtype)
    assert_close(
        "masked", coverage_loss(weights, MASK), reference(weights, MASK), dtype
    )


def test_gradients_by_central_differences():
    weights = maps(0)

    def loss(weights):
        found = reference(weights, MASK)
        return (found * cotangent(found, 0)).sum()

    (want,) = numeric_gradients(loss, [weights])
    _, (got,), _ = gradients(lambda w: coverage_loss(w, MASK), [weights], [])
    assert_close("gradient", got, want, gradient=True)


def test_padding_may_hold_anything():
    weights = maps(0)
    holes = np.where(MASK[..., None], weights, np.nan).astype("float32")
    want = gradients(lambda w: coverage_loss(w, MASK), [weights], [])
    got = gradients(lambda w: coverage_loss(w, MASK), [holes], [])
    assert_same("loss and gradient", got, want)


def test_half_precision_is_summed_in_float32():
    loss = coverage_loss(keras.ops.cast(maps(0), "bfloat16"))
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"


def test_errors():
    with pytest.raises(TypeError, match="`mask` must be boolean"):
        coverage_loss(maps(0), MASK.astype("float32"))
    with pytest.raises(ValueError, match="`mask` must have the first two sizes"):
        coverage_loss(maps(0), MASK[:, :2])
