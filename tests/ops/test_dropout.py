"""Dropout: the share, the scale, the seed."""

import keras
import numpy as np
import pytest
from keras import ops

from kseq.backend import compiled
from kseq.ops.dropout import dropout


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "compiled"])
def test_share_and_scale(jit):
    """40,000 elements: five standard deviations of the share are .0115."""
    generator = keras.random.SeedGenerator(3)

    def function(x):
        with keras.StatelessScope([(generator.state, generator.state.value)]):
            return dropout(x, 0.3, generator)

    run = compiled(function, []) if jit else function
    y = ops.convert_to_numpy(run(ops.ones((200, 200))))
    kept = y != 0
    np.testing.assert_allclose(y[kept], 1 / 0.7, rtol=1e-6)
    assert abs(kept.mean() - 0.7) < 0.0115
    # rows and columns are independent of each other
    assert np.abs(np.corrcoef(kept.astype(float))[0, 1:]).max() < 0.36


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_places_and_draws_are_independent(rate):
    """Within 5 standard deviations, of elements near each other and of later draws."""
    generator, x = keras.random.SeedGenerator(7), ops.ones((400, 256))
    draws = [
        ops.convert_to_numpy(dropout(x, rate, generator)).ravel() != 0 for _ in range(4)
    ]
    first = draws[0]
    pairs = {f"lag {n}": (first[:-n], first[n:]) for n in (1, 2, 3, 16, 255, 256, 257)}
    pairs |= {f"draw {k}": (first, draws[k]) for k in (1, 2, 3)}
    for name, (a, b) in pairs.items():
        product = (a - (1 - rate)) * (b - (1 - rate)) / (rate * (1 - rate))
        assert abs(product.mean()) * np.sqrt(product.size) < 5, name


def test_seed_decides_and_moves_on():
    x = ops.ones((4, 25))
    first, second = (keras.random.SeedGenerator(5) for _ in range(2))
    a, b = (ops.convert_to_numpy(dropout(x, 0.5, first)) for _ in range(2))
    again = ops.convert_to_numpy(dropout(x, 0.5, second))
    np.testing.assert_array_equal(a, again)
    assert (a != b).any()


def test_noise_shape_shares_the_mask():
    x = ops.ones((3, 5, 7))
    generator = keras.random.SeedGenerator(0)
    y = ops.convert_to_numpy(dropout(x, 0.5, generator, noise_shape=(3, 1, 7)))
    np.testing.assert_array_equal(y, np.broadcast_to(y[:, :1], y.shape))
    assert 0 < (y == 0).mean() < 1


def test_half_precision_keeps_its_dtype():
    y = dropout(ops.ones((3, 5), "bfloat16"), 0.5, keras.random.SeedGenerator(0))
    assert keras.backend.standardize_dtype(y.dtype) == "bfloat16"
