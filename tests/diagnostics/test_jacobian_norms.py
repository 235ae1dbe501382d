"""Norms of the Jacobian of linear recurrences, in closed form."""

import keras
import numpy as np
import pytest
from helpers import assert_close, set_weights_by_seed

import kseq
from kseq.diagnostics import jacobian_norms

T, D, U = 4, 3, 2


def linear_rnn():
    return kseq.layers.SimpleRNN(U, activation=None, return_sequences=True)


def want(kernel, recurrent):
    """|W U^(t-u)| at and below the diagonal."""
    norms = np.zeros((T, T))
    for t in range(T):
        for u in range(t + 1):
            power = np.linalg.matrix_power(np.float64(recurrent), t - u)
            norms[t, u] = np.linalg.norm(kernel @ power)
    return norms


def test_features():
    model = keras.Sequential([keras.Input((T, D)), linear_rnn()])
    kernel, recurrent, _ = set_weights_by_seed(model, 0)
    x = np.random.default_rng(0).normal(size=(2, T, D)).astype("float32")
    got = jacobian_norms(model, x)
    assert_close("norms", got, want(kernel, recurrent), gradient=True)
    assert not np.triu(got, 1).any()


def test_ids_by_their_embedding():
    model = keras.Sequential(
        [keras.Input((T,), dtype="int32"), keras.layers.Embedding(9, D), linear_rnn()]
    )
    _, kernel, recurrent, _ = set_weights_by_seed(model, 0)
    got = jacobian_norms(model, np.array([[3, 4, 5, 6], [7, 3, 3, 1]]))
    assert_close("norms", got, want(kernel, recurrent), gradient=True)


def test_what_has_no_jacobian():
    model = keras.Sequential([keras.Input((T, D)), kseq.layers.GRU(U)])
    with pytest.raises(ValueError, match="The outputs must be one tensor"):
        jacobian_norms(model, np.ones((2, T, D), "float32"))
    model = keras.Sequential([keras.Input((T, D)), linear_rnn()])
    with pytest.raises(ValueError, match="or ids that go to an Embedding"):
        jacobian_norms(model, np.ones((2, T, D), "int32"))
    with pytest.raises(ValueError, match=r"`x` must be one array.*kind='dict'"):
        jacobian_norms(model, {"x": np.ones((2, T, D))})
