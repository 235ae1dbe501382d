"""The comparison itself: what it says, and that it does fail."""

import keras
import numpy as np
import pytest
from helpers import TOLERANCES, assert_close, assert_same, gradients
from keras import ops
from reference.differences import numeric_gradients


def test_names_the_tensor_the_worst_index_and_both_values():
    got, want = np.zeros((2, 3)), np.zeros((2, 3))
    got[1, 2], want[1, 2], got[0, 1] = 4.5, 4.0, 0.01
    with pytest.raises(AssertionError, match=r"outputs\[1, 2\]: got 4.5, expected 4,"):
        assert_close("outputs", got, want)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_bounds(dtype):
    bound = TOLERANCES[dtype]
    assert_close("x", np.array([1 + 0.9 * bound]), np.array([1.0]), dtype)
    assert_close("x", np.array([4.5 * bound]), np.zeros(1), dtype, gradient=True)
    with pytest.raises(AssertionError, match=dtype):
        assert_close("x", np.array([1.1 * bound]), np.zeros(1), dtype)


def test_nan_shapes_counts_and_keys():
    with pytest.raises(AssertionError, match="got nan"):
        assert_close("x", np.array([np.nan]), np.array([np.nan]))
    with pytest.raises(AssertionError, match="shape"):
        assert_close("x", np.zeros((2, 1)), np.zeros(2))
    with pytest.raises(AssertionError, match="1 tensors, expected 2"):
        assert_close("x", [np.zeros(1)], [np.zeros(1)] * 2)
    with pytest.raises(AssertionError, match="keys"):
        assert_close("x", {"a": np.zeros(1)}, {"b": np.zeros(1)})


def test_assert_same_is_exact():
    x = np.float32(0.1)
    assert_same("x", [x, np.nan], [x, np.nan])
    with pytest.raises(AssertionError, match=r"x\[0\]"):
        assert_same("x", [np.nextafter(x, np.float32(1))], [x])


@pytest.mark.parametrize("mode", ["eager", "compiled", "forward"])
def test_gradients(mode):
    """Of x y^2 and its square, y a variable."""
    y = keras.Variable([2.0, 3.0])
    x = np.array([5.0, 7.0], "float32")
    outputs, (dx,), (dy,) = gradients(
        lambda x: [x * ops.square(y), x], [x], [y], mode=mode,
        loss=lambda outputs: ops.sum(outputs[0]) + 2 * ops.sum(outputs[1]),
    )  # fmt: skip
    assert_close("outputs", outputs, [[20.0, 63.0], x])
    assert_close("dx", dx, [6.0, 11.0])
    assert_close("dy", dy, [20.0, 42.0])


def test_numeric_gradients():
    x, y = np.array([1.0, 2.0]), np.array(3.0)
    dx, dy = numeric_gradients(lambda x, y: (x**3).sum() * y, [x, y])
    assert_close("dx", dx, [9.0, 36.0], "float64", gradient=True)
    assert_close("dy", dy, 9.0, "float64")
