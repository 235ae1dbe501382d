"""Dropout: which share is dropped, what is kept, when."""

import keras
import numpy as np
import pytest
from helpers import assert_same, compiled, to_numpy

import kseq

X = np.random.default_rng(0).normal(size=(101, 103)).astype("float32")


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_share_and_the_scale(rate, seed):
    """10403 coins: five standard deviations are 0.0245 at the most."""
    y = to_numpy(kseq.layers.Dropout(rate, seed=seed)(X, training=True))
    assert abs((y == 0).mean() - rate) < 0.025
    kept = y != 0
    np.testing.assert_allclose(y[kept], X[kept] / (1 - rate), rtol=1e-6)


@pytest.mark.parametrize("run", [lambda layer: layer, compiled], ids=["eager", "jit"])
def test_inference_and_rate_zero_change_nothing(run):
    layer = kseq.layers.Dropout(0.5)
    layer.build(X.shape)
    assert_same("inference", run(layer)(X), X)
    assert_same("rate 0", kseq.layers.Dropout(0)(X, training=True), X)
    assert not kseq.layers.Dropout(0.0).variables


def test_seeds():
    first = kseq.layers.Dropout(0.5, seed=1)
    y = [to_numpy(first(X, training=True)) for _ in range(2)]
    again = kseq.layers.Dropout.from_config(first.get_config())
    assert_same("first", again(X, training=True), y[0])
    assert_same("second", again(X, training=True), y[1])
    assert (y[0] != y[1]).any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "mixed_bfloat16"])
def test_half_precision(dtype):
    layer = kseq.layers.Dropout(0.5, seed=1, dtype=dtype)
    y = layer(X, training=True)
    assert keras.backend.standardize_dtype(y.dtype) == dtype.removeprefix("mixed_")
    values = to_numpy(y)
    x = to_numpy(keras.ops.cast(X, y.dtype))
    assert_same("values", values, np.where(values == 0, 0, 2 * x))


def test_the_mask_is_passed_on():
    ids = np.array([[3, 0, 2]])
    x = keras.layers.Embedding(5, 2, mask_zero=True)(ids)
    layer = keras.layers.LSTM(2)
    y = layer(kseq.layers.Dropout(0.5)(x))
    want = layer(x)
    assert_same("masked", y, want)


@pytest.mark.parametrize("rate", [1, 1.5, -0.1, "a", None])
def test_rates_are_checked(rate):
    with pytest.raises(ValueError, match=r"`rate` must be a probability in \[0, 1\)"):
        kseq.layers.Dropout(rate)
