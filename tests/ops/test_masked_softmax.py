"""masked_softmax: values, empty rows, gradients, precision."""

import numpy as np
import pytest
from helpers import DTYPES, assert_close, gradients, to_numpy
from keras import ops
from reference.attention import masked_softmax as reference
from reference.differences import numeric_gradients

from kseq.ops import masked_softmax

# rows of one, two, all and none
MASK = np.array([[False, True, False], [True, True, False], [True] * 3, [False] * 3])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", [None, MASK, MASK[0]], ids=["none", "rows", "shared"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_reference(seed, mask, dtype):
    scores = np.random.default_rng(seed).normal(0, 3, (2, 4, 3)).astype(dtype)
    got = masked_softmax(ops.convert_to_tensor(scores), mask)
    assert_close("weights", got, reference(scores, mask), dtype)


def test_by_hand():
    """exp(log k) = k: weights 1/6, 2/6, 3/6; without the last 1/3, 2/3."""
    scores = ops.convert_to_tensor(np.log([[1.0, 2.0, 3.0]]).astype("float32"))
    assert_close("all", masked_softmax(scores), [[1 / 6, 2 / 6, 3 / 6]])
    mask = np.array([[True, True, False]])
    assert_close("two", masked_softmax(scores, mask), [[1 / 3, 2 / 3, 0]])


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_gradients(mode):
    scores = np.random.default_rng(3).normal(size=(4, 3)).astype("float32")
    power = np.arange(12).reshape(4, 3) - 4.0
    loss = lambda scores: (reference(scores, MASK) * power).sum()
    _, (got,), _ = gradients(
        lambda scores: masked_softmax(scores, MASK), [scores], [], mode=mode,
        loss=lambda y: ops.sum(y * power.astype("float32")),
    )  # fmt: skip
    assert_close("gradient", got, *numeric_gradients(loss, [scores]), gradient=True)


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize("hidden", [np.nan, np.inf, -np.inf, 3e38])
def test_masked_entries_may_hold_anything(hidden, mode):
    """Also as the only entries of a row; weights and gradients are as without."""
    scores = np.random.default_rng(4).normal(size=(4, 3)).astype("float32")
    dirty = np.where(MASK, scores, np.float32(hidden))
    call = lambda scores: masked_softmax(scores, MASK)
    want = gradients(call, [scores], [], mode=mode)
    got = gradients(call, [dirty], [], mode=mode)
    assert_close("weights", got[0], want[0])
    assert_close("gradient", got[1], want[1], gradient=True)
    assert not got[0][~MASK].any()
    assert not got[1][0][3].any()


@pytest.mark.parametrize("value", [1e4, -1e4, 3e38])
def test_large_scores(value):
    scores = ops.convert_to_tensor(np.array([[value, value, 0.0]], "float32"))
    mask = np.array([[True, True, False]])
    assert_close("equal", masked_softmax(scores, mask), [[0.5, 0.5, 0]])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32(dtype):
    """300 equal scores of 40000: a sum of exponentials in half would be off."""
    scores = ops.full((1, 301), 4e4, dtype=dtype)
    mask = np.arange(301)[None] < 300
    weights = masked_softmax(scores, mask)
    assert weights.dtype == scores.dtype
    want = np.where(mask, 1 / 300, 0)
    np.testing.assert_allclose(to_numpy(weights), want, rtol=4e-3)


@pytest.mark.parametrize(
    ("sink", "want"),
    [
        (0.5, [0.21309730, 0.57925853, 0.07839412]),
        (0.0, [0.22451524, 0.61029569, 0.08259454]),
        (-1e5, [0.24472847, 0.66524096, 0.09003057]),
        (1e5, [0, 0, 0]),
    ],
)
def test_sinks_by_hand(sink, want):
    """F-A8; e, e**2 and 1 of their sum without one."""
    scores = ops.convert_to_tensor(np.array([[1.0, 2.0, 0.0]], "float32"))
    got = masked_softmax(scores, sinks=np.full((1, 1), sink, "float32"))
    assert_close("weights", got, [want])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_sinks(mode, dtype):
    """A sink is one more score that every row sees, without its weight."""
    rng = np.random.default_rng(5)
    scores, sinks = rng.normal(0, 3, (4, 3)), rng.normal(size=(4, 1))
    power = np.arange(12).reshape(4, 3) - 4.0

    def want(scores, sinks):
        mask = np.concatenate([MASK, np.ones((4, 1), bool)], axis=1)
        return reference(np.concatenate([scores, sinks], axis=1), mask)[:, :3]

    y, found, _ = gradients(
        lambda scores, sinks: masked_softmax(scores, MASK, sinks),
        [scores.astype(dtype), sinks.astype(dtype)], [], mode=mode,
        loss=lambda y: ops.sum(y * ops.cast(power, y.dtype)),
    )  # fmt: skip
    assert_close("weights", y, want(scores, sinks), dtype)
    assert not y[3].any()
    loss = lambda *x: (want(*x) * power).sum()
    # the differences are good to some 1e-9, whatever the dtype
    assert_close(
        "gradients", found, numeric_gradients(loss, [scores, sinks]), gradient=True
    )
