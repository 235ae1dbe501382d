"""Additive and dot scores: loops, gradients, precision."""

import numpy as np
import pytest
from helpers import DTYPES, assert_close, cotangent, gradients
from keras import backend, ops
from reference.differences import numeric_gradients

from kseq.ops import additive_scores, dot_scores

B, T, S, U = 2, 3, 5, 4


def additive(query, key, scale):
    scores = np.zeros((B, T, S))
    for b, t, s in np.ndindex(scores.shape):
        scores[b, t, s] = scale @ np.tanh(query[b, t] + key[b, s])
    return scores


def dot(query, key):
    scores = np.zeros((B, T, S))
    for b, t, s in np.ndindex(scores.shape):
        scores[b, t, s] = query[b, t] @ key[b, s]
    return scores


CASES = {
    "additive": (additive_scores, additive, [(B, T, U), (B, S, U), (U,)]),
    "dot": (dot_scores, dot, [(B, T, U), (B, S, U)]),
}
both = pytest.mark.parametrize("name", CASES)


def data(shapes, seed, dtype="float32"):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", [0, 1, 2])
@both
def test_reference(name, seed, dtype):
    function, reference, shapes = CASES[name]
    arrays = data(shapes, seed, dtype)
    got = function(*map(ops.convert_to_tensor, arrays))
    assert backend.standardize_dtype(got.dtype) == dtype
    want = reference(*[a.astype("float64") for a in arrays])
    assert_close("scores", got, want, dtype)


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@both
def test_gradients(name, mode):
    function, reference, shapes = CASES[name]
    arrays = data(shapes, 3)
    weights = cotangent(np.zeros((B, T, S)), 0)
    want = numeric_gradients(lambda *a: (reference(*a) * weights).sum(), arrays)
    _, got, _ = gradients(function, arrays, [], mode=mode)
    assert_close("gradients", got, want, gradient=True)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@both
def test_half_precision_gives_float32(name, dtype):
    """Products of 400 x 400 do not fit in float16."""
    function, reference, shapes = CASES[name]
    arrays = [ops.cast(a * 400, dtype) for a in data(shapes, 4)]
    exact = [np.asarray(ops.convert_to_numpy(ops.cast(a, "float32"))) for a in arrays]
    got = function(*arrays)
    assert backend.standardize_dtype(got.dtype) == "float32"
    want = reference(*[a.astype("float64") for a in exact])
    if name == "additive":  # the tanh is rounded to the half type
        got, want = got / 400, want / 400
    assert_close("scores", got, want, "float32" if name == "dot" else dtype)
