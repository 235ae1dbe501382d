"""The sinusoidal table and its shift."""

import numpy as np
import pytest
from helpers import DTYPES, assert_close, on_tensorflow, to_numpy
from keras import ops
from reference.positions import sinusoid

from kseq.backend import compiled
from kseq.ops import sinusoidal_positions, sinusoidal_shift
from kseq.ops.position_angles import geometric_frequencies, position_angles

FAR = [0, 1, 257, 65_537, 999_983, 1_000_000, 2**24 - 1, 2**24 + 1, 2**31 - 1]


def frequencies():
    return geometric_frequencies(34, 1e4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("width", "base"), [(2, 1e4), (14, 1e4), (14, 50.0)])
def test_reference(dtype, width, base):
    positions = np.array([[0, 3, 1], [511, 7, 4095]])
    want = sinusoid(positions.ravel(), width, base).reshape(2, 3, width)
    got = sinusoidal_positions(positions, width, base, dtype)
    assert got.dtype == dtype
    assert_close("table", got, want, dtype)


def test_paper_columns_alternate():
    """Section 3.5: even columns are sines, odd ones cosines."""
    assert_close("position 0", sinusoidal_positions(0, 6), np.array([0, 1] * 3))


@pytest.mark.parametrize("run", ["eager", "compiled"])
def test_angles_are_exact_at_every_position(run):
    """Within 4e-7 of float64, where a product in float32 is off by .01 and more."""
    positions = ops.convert_to_tensor(FAR, "int32")
    theta = frequencies()
    angles = lambda p: position_angles(p, theta)
    got = to_numpy((compiled(angles, []) if run == "compiled" else angles)(positions))
    assert got.dtype == "float32"
    want = np.array(FAR, "longdouble")[:, None] * theta
    naive = np.array(FAR, "float32")[:, None] * theta.astype("float32")
    assert worst(naive[FAR.index(1_000_000)], want[FAR.index(1_000_000)]) > 0.01
    assert worst(got, want) < 4e-7


def worst(angle, want):
    """The largest error in radians, turns apart."""
    turns = (angle.astype("longdouble") - want) / (2 * np.pi)
    return float(np.abs(turns - np.round(turns)).max() * 2 * np.pi)


def test_the_table_is_exact_at_every_position():
    want = sinusoid(FAR, 34)
    got = to_numpy(sinusoidal_positions(np.array(FAR), 34))
    assert np.abs(got - want).max() < 1e-6


@on_tensorflow
def test_float64_is_exact():
    got = to_numpy(sinusoidal_positions(np.array(FAR[:-1]), 34, dtype="float64"))
    assert np.abs(got - sinusoid(FAR[:-1], 34)).max() < 1e-8


@pytest.mark.parametrize("kind", ["uint8", "int16", "int64"])
def test_any_integers_are_positions(kind):
    got = sinusoidal_positions(np.array([3, 200], kind), 4)
    assert_close("table", got, sinusoid([3, 200], 4))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [-3, 0, 1, 5, 1013])
def test_paper_the_encoding_of_a_later_position_is_a_linear_function(offset, dtype):
    """Section 3.5: PE(p + k) = M_k PE(p), at every p."""
    shift = sinusoidal_shift(offset, 14, 50.0, dtype)
    assert shift.dtype == dtype
    for p in (3, 10, 257):
        got = to_numpy(shift) @ sinusoid([p], 14, 50.0)[0]
        want = sinusoid([p + offset], 14, 50.0)[0]
        assert_close(f"PE({p} + {offset})", got, want, dtype)


@pytest.mark.parametrize("function", [sinusoidal_positions, sinusoidal_shift])
@pytest.mark.parametrize("width", [5, 0, -2])
def test_widths_are_checked(function, width):
    with pytest.raises(ValueError, match=rf"A width of pairs must be even.*={width}\."):
        function(3, width)


@pytest.mark.parametrize("function", [sinusoidal_positions, sinusoidal_shift])
def test_bases_are_checked(function):
    with pytest.raises(ValueError, match="`max_wavelength` must be greater than 1"):
        function(3, 4, 1.0)


def test_positions_are_checked():
    with pytest.raises(TypeError, match=r"`positions` must be integers.*float32"):
        sinusoidal_positions(np.ones(3, "float32"), 4)
    with pytest.raises(TypeError, match=r"`positions` must be integers.*bool"):
        sinusoidal_positions(np.ones(3, bool), 4)
    with pytest.raises(ValueError, match=r"`positions` must not be neg.*smallest=-2"):
        sinusoidal_positions([3, -2], 4)
    assert tuple(sinusoidal_positions(np.zeros((2, 0), int), 4).shape) == (2, 0, 4)


def test_halves_are_refused():
    with pytest.raises(ValueError, match="`dtype` must be one of 'float32', 'float64'"):
        sinusoidal_positions([3], 4, dtype="bfloat16")
