"""A loop over buffers, against NumPy."""

import numpy as np
import pytest
from helpers import assert_close, on_tensorflow
from keras import ops

from kseq.backend import compiled, empty, filled, loop, stacked

T, B = 5, 3


def running_sums(x):
    """Overwrites a buffer of `x` with twice its rows, and collects the sums so far."""
    length = ops.shape(x)[0]

    def body(k, total, sums, rows):
        row = rows.read(k)
        total = total + row
        return [total, sums.write(k, total), rows.write(k, 2 * row)]

    zeros = ops.zeros_like(x[0])
    total, sums, rows = loop(length, body, [zeros, empty(length, zeros), filled(x)])
    return total, stacked(sums, length), stacked(rows, length)


def expected(x):
    return x.sum(axis=0), np.cumsum(x, axis=0), 2 * x


@pytest.mark.parametrize("run", [running_sums, compiled(running_sums, [])])
def test_buffers(run):
    for length in (1, T):
        x = np.random.default_rng(length).normal(size=(length, B)).astype("float32")
        got = run(ops.convert_to_tensor(x))
        assert_close("loop", got, expected(x))
        assert tuple(got[1].shape) == (length, B)


@on_tensorflow
def test_a_length_that_is_known_when_it_runs():
    import tensorflow as tf

    spec = [tf.TensorSpec((None, B), "float32")]
    run = tf.function(running_sums, input_signature=spec, jit_compile=True)
    x = np.random.default_rng(0).normal(size=(T, B)).astype("float32")
    assert_close("loop", run(x), expected(x))
