"""The associative scan against a float64 loop and its central differences."""

from functools import partial

import keras
import numpy as np
import pytest
from helpers import DTYPES, assert_close, cotangent, gradients, on_tensorflow, to_numpy
from keras import ops
from reference.differences import numeric_gradients
from reference.linear_cells import linear_recurrence as reference

from kseq.ops.linear_recurrence import (
    ConvexStep,
    chunked_recurrence,
    linear_recurrence,
)
from kseq.ops.time_chunks import TimeChunks

directions = pytest.mark.parametrize(
    "reverse", [False, True], ids=["forward", "reverse"]
)
B, U = 2, 3


def arrays(length, dtype="float32", seed=0):
    rng = np.random.default_rng(seed)
    a = rng.uniform(-1, 1, (B, length, U))
    b, state = rng.normal(size=(B, length, U)), rng.normal(size=(B, U))
    return [x.astype(dtype) for x in (a, b, state)]


def check(values, reverse, dtype="float32", **options):
    """h, and the gradients of a, b and the state, in the mode of `options`."""
    scan = partial(linear_recurrence, reverse=reverse)
    h, found, _ = gradients(scan, values, [], **options)

    def loss(*values):
        steps = reference(*values, reverse)
        return (steps * cotangent(steps, 0)).sum()

    assert_close("h", h, reference(*values, reverse), dtype)
    want = numeric_gradients(loss, values)
    # central differences are good to 1e-9
    assert_close("gradients", found, want, "float32", gradient=True)


@pytest.mark.parametrize(
    ("length", "reverse"), [(1, False), (2, True), (7, False), (7, True), (17, True)]
)
def test_lengths(length, reverse):
    """Whole and broken chunks, 1 to 4 of them."""
    check(arrays(length), reverse)


@directions
@pytest.mark.parametrize(
    "mode", ["compiled", "forward", pytest.param("unknown", marks=on_tensorflow)]
)
def test_modes(mode, reverse):
    check(arrays(7), reverse, mode=mode)


@directions
def test_convex_steps(reverse):
    """The same with (1 - a) * b for b, and the gradients of both."""

    def convex(a, b, state):
        chunks = TimeChunks.of(b, reverse=reverse)
        cut = chunks.cut(a), chunks.cut(b)
        return chunks.joined(
            chunked_recurrence(ConvexStep, *cut, state, reverse=reverse)
        )

    def want(a, b, state):
        return reference(a, (1 - a) * b, state, reverse)

    def loss(*values):
        return (want(*values) * cotangent(values[1], 0)).sum()

    values = arrays(7)
    h, found, _ = gradients(convex, values, [], mode="compiled")
    assert_close("h", h, want(*values))
    assert_close("gradients", found, numeric_gradients(loss, values), gradient=True)


@on_tensorflow
@directions
def test_one_program_for_every_length(reverse):
    """Traced once, for any batch and time."""
    import tensorflow as tf

    signature = [tf.TensorSpec([None] * n + [U]) for n in (2, 2, 1)]
    scan = partial(linear_recurrence, reverse=reverse)
    scan = tf.function(scan, input_signature=signature, autograph=False)
    for length in (1, 2, 11):
        values = arrays(length)
        assert_close("h", scan(*values), reference(*values, reverse))


@on_tensorflow
def test_float64():
    """The gradients by the recurrence that the docstring states."""
    a, b, state = arrays(11, "float64")
    h, (d_a, d_b, d_state), _ = gradients(linear_recurrence, [a, b, state], [])
    want = reference(a, b, state)
    assert_close("h", h, want, "float64")
    g, d_h = np.zeros(state.shape), cotangent(h, 0)
    for t in reversed(range(11)):
        g = d_h[:, t] + g
        before = want[:, t - 1] if t else state
        assert_close("d_b", d_b[:, t], g, "float64")
        assert_close("d_a", d_a[:, t], g * before, "float64")
        g = a[:, t] * g
    assert_close("d_state", d_state, g, "float64")


def test_4096_steps_that_forget_little():
    """a between 0.999 and 1; then of 1, where h is the running sum."""
    _, b, state = arrays(4096)
    a = np.random.default_rng(1).uniform(0.999, 1, b.shape).astype("float32")
    d_h = np.random.default_rng(2).normal(size=b.shape).astype("float32")
    h, (_, d_b, _), _ = gradients(
        linear_recurrence, [a, b, state], [], mode="compiled",
        loss=lambda h: ops.sum(h * d_h),
    )  # fmt: skip
    following = np.concatenate([a[:, 1:], np.zeros((B, 1, U))], axis=1)
    want = reference(a, b, state), reference(following, d_h, 0 * state, reverse=True)
    sums = linear_recurrence(np.ones_like(b), b, state)
    want_sums = state[:, None] + np.cumsum(b, axis=1, dtype="float64")
    for name, got, exact in [
        ("h", h, want[0]), ("d_b", d_b, want[1]), ("sums", sums, want_sums)
    ]:  # fmt: skip
        # a rounding error is as large as the largest h makes it
        scale = max(1, np.abs(exact).max())
        assert_close(name, to_numpy(got) / scale, exact / scale)


def test_products_that_vanish():
    """No logarithm, no division: a may be 0, tiny or negative."""
    a = np.resize([0, 1e-30, -1e-30, -1, 0], (B, 64, U)).astype("float32")
    _, b, state = arrays(64)
    assert_close("h", linear_recurrence(a, b, state), reference(a, b, state))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", *DTYPES])
def test_at_least_float32(dtype):
    values = [ops.cast(x, dtype) for x in arrays(7)]
    h = linear_recurrence(*values)
    wide = keras.backend.result_type(dtype, "float32")
    assert keras.backend.standardize_dtype(h.dtype) == wide
    assert_close("h", h, reference(*map(to_numpy, values)), wide)
