"""LocationSensitiveAttention: the convolution, Bahdanau's weights, errors."""

import numpy as np
import pytest
from helpers import assert_close
from layers.alignments import data, make

import kseq


def test_the_convolution_worked_by_hand():
    """A filter that sees the entry before only: the peak moves on by one."""
    layer = kseq.layers.LocationSensitiveAttention(1, filters=1, kernel_size=3)
    query, memory = np.zeros((1, 1, 2), "float32"), np.zeros((1, 5, 2), "float32")
    layer.build(query.shape, memory.shape)
    layer.location_conv.kernel.assign([[[1.0]], [[0.0]], [[0.0]]])
    layer.location_dense.kernel.assign([[2.0]])
    layer.scale.assign([3.0])
    previous = np.float32([[0, 0, 1, 0, 0.5]])
    _, weights = layer(
        query, memory, alignment=[previous], return_attention_scores=True
    )
    scores = np.exp([0, 0, 0, 3 * np.tanh(2), 0])  # .5 moves out at the end
    assert_close("weights", weights[0, 0], scores / scores.sum())


def test_the_first_query_is_that_of_bahdanau():
    """It has no weights before it; b is 0 at first."""
    layer, (query, memory) = make("location"), data()
    layer.location_dense.bias.assign(0 * layer.location_dense.bias)
    plain = kseq.layers.BahdanauAttention(layer.units)
    plain.build(query.shape, memory.shape)
    plain.query_dense.set_weights(layer.query_dense.get_weights())
    plain.memory_dense.set_weights(layer.memory_dense.get_weights())
    plain.scale.assign(layer.scale)
    got = layer(query[:, :1], memory, return_attention_scores=True)
    want = plain(query[:, :1], memory, return_attention_scores=True)
    assert_close("context and weights", got, want)


def test_config():
    layer = kseq.layers.LocationSensitiveAttention(
        3, filters=5, kernel_size=7, cumulative=True
    )
    config = layer.get_config()
    again = kseq.layers.LocationSensitiveAttention.from_config(config)
    assert again.get_config() == config
    assert (again.filters, again.kernel_size, again.cumulative) == (5, 7, True)
    default = kseq.layers.LocationSensitiveAttention(3)
    assert (default.filters, default.kernel_size, default.cumulative) == (32, 31, False)


@pytest.mark.parametrize("name", ["units", "filters", "kernel_size"])
def test_errors(name):
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer"):
        kseq.layers.LocationSensitiveAttention(**{"units": 3, name: 0})
