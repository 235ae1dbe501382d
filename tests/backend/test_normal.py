"""Normal noise: mean, deviation, seed."""

import keras
import numpy as np
import pytest
from keras import ops

from kseq.backend import compiled, normal


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "compiled"])
def test_mean_deviation_and_shape(jit):
    """10,000 numbers: five errors of the mean are .05, of the deviation .035."""
    generator = keras.random.SeedGenerator(3)

    def function(x):
        with keras.StatelessScope([(generator.state, generator.state.value)]):
            return normal(ops.shape(x), "float32", generator)

    run = compiled(function, []) if jit else function
    y = ops.convert_to_numpy(run(ops.ones((100, 100))))
    assert y.shape == (100, 100)
    assert abs(y.mean()) < 0.05
    assert abs(y.std() - 1) < 0.035
    assert abs((np.abs(y) < 1).mean() - 0.6827) < 0.025
    # rows are independent of each other
    assert np.abs(np.corrcoef(y)[0, 1:]).max() < 0.5


def test_seed_decides_and_moves_on():
    first, second = (keras.random.SeedGenerator(5) for _ in range(2))
    a, b = (ops.convert_to_numpy(normal((4, 25), "float32", first)) for _ in range(2))
    again = ops.convert_to_numpy(normal((4, 25), "float32", second))
    np.testing.assert_array_equal(a, again)
    assert (a != b).all()
