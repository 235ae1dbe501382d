"""SinePositionEncoding: the table, its precision, masks."""

import keras
import numpy as np
import pytest
from helpers import DTYPES, assert_close, assert_same, to_numpy
from keras import ops
from reference.positions import sinusoid

import kseq

B, T, D = 2, 5, 6
X = np.zeros((B, T, D), "float32")
STEPS = np.arange(T)


def table(positions, **options):
    return np.stack([sinusoid(row, D, **options) for row in positions])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("base", [1e4, 70.0])
def test_reference(base, dtype):
    layer = kseq.layers.SinePositionEncoding(base, dtype=dtype)
    got = layer(X.astype(dtype))
    assert_close("encoding", got, table([STEPS] * B, base=base), dtype)


@pytest.mark.parametrize(
    ("given", "positions"),
    [
        ({"start_index": 1_000_000}, [STEPS + 1_000_000] * B),
        ({"start_index": np.array([7, 3])}, [STEPS + 7, STEPS + 3]),
        ({"positions": 2 * STEPS}, [2 * STEPS] * B),
        ({"positions": np.stack([STEPS, 9 * STEPS])}, [STEPS, 9 * STEPS]),
    ],
    ids=["scalar", "(B,)", "(T,)", "(B, T)"],
)
def test_positions(given, positions):
    got = kseq.layers.SinePositionEncoding()(X, **given)
    assert_close("encoding", got, table(positions))


@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16", "float16"])
def test_half_precision_is_rounded_once(dtype):
    """4096 tokens: neighbors differ, and each value is the nearest of its dtype."""
    layer = kseq.layers.SinePositionEncoding(dtype=dtype)
    got = layer(np.zeros((1, 4096, 64), "float32"))
    want = ops.cast(sinusoid(range(4096), 64), layer.compute_dtype)
    assert keras.backend.standardize_dtype(got.dtype) == layer.compute_dtype
    got, want = to_numpy(got)[0], to_numpy(want)
    # float32 errs by 3e-7 before the cast, so that a tie may fall the other way
    assert (got != want).mean() < 1e-3
    assert_close("encoding", got, want, layer.compute_dtype)
    assert (got[256] != got[257]).any()
    assert (got[1:] != got[:-1]).any(axis=1).all()


def model():
    """Tokens and their positions, averaged where the mask is True."""
    ids = keras.Input((None,), dtype="int32")
    positions = keras.Input((None,), dtype="int32")
    x = kseq.layers.Embedding(7, D, mask_zero=True)(ids)
    encoding = kseq.layers.SinePositionEncoding()(x, positions=positions)
    x = keras.layers.Add()([x, encoding])
    return keras.Model([ids, positions], keras.layers.GlobalAveragePooling1D()(x))


def test_the_mask_gets_through_the_sum():
    """Left, right or no padding: the mean over the real tokens is the same."""
    tokens = np.array([[3, 1, 6]])
    run = model()
    want = run([tokens, np.arange(3)[None]])
    for left, right in ((2, 0), (0, 2), (1, 1)):
        pad = ((0, 0), (left, right))
        ids, positions = np.pad(tokens, pad), np.pad(np.arange(3)[None], pad)
        assert_close(f"padding {left}, {right}", run([ids, positions]), want)


def test_the_mask_is_passed_on():
    ids = np.array([[3, 1, 0]])
    x = kseq.layers.Embedding(7, D, mask_zero=True)(ids)
    encoding = kseq.layers.SinePositionEncoding()(x)
    assert_same("mask", encoding._keras_mask, ids != 0)
    assert_same("that of the input", x._keras_mask, ids != 0)


def test_arguments_are_checked():
    layer = kseq.layers.SinePositionEncoding
    with pytest.raises(ValueError, match=r"`inputs` must have shape \(B, T, D\)"):
        layer()(X[0])
    with pytest.raises(ValueError, match=r"A width of pairs must be even.*width=5"):
        layer()(X[..., :5])
    with pytest.raises(ValueError, match="`max_wavelength` must be greater than 1"):
        layer(1)(X)
    with pytest.raises(ValueError, match="`positions` must not be negative"):
        layer()(X, positions=STEPS - 1)
    with pytest.raises(TypeError, match="`positions` must be integers"):
        layer()(X, positions=STEPS.astype("float32"))
