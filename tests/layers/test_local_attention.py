"""LocalAttention: worked values, the window, the places, errors."""

import numpy as np
import pytest
from helpers import assert_close, to_numpy
from layers.alignments import Q, data, make

import kseq


def at(argument, radius, length):
    """A layer of equal scores whose queries all look at S sigmoid(argument)."""
    layer = kseq.layers.LocalAttention(radius)
    query, memory = np.ones((1, 1, 1), "float32"), np.ones((1, length, 1), "float32")
    layer.build(query.shape, memory.shape)
    layer.memory_dense.kernel.assign([[0.0]])
    layer.position_dense.kernel.assign([[1.0]])
    layer.position_scale.assign([argument / np.tanh(1.0)])
    return layer, query, memory


def test_weights_worked_in_float64():
    """Luong et al. (2015), eq. 9 and 10, with S = 10 and D = 2: p = 5.74442517.

    The softmax of equal scores over the four entries of the window is 1/4.
    """
    layer, query, memory = at(0.3, 2, 10)
    _, weights = layer(query, memory, return_attention_scores=True)
    factors = [0.21838197, 0.75799051, 0.96786831, 0.45464696]
    assert_close("inside", weights[0, 0, 4:8], np.array(factors) / 4)
    assert not to_numpy(weights)[0, 0, [0, 1, 2, 3, 8, 9]].any()


def test_the_edge_of_the_window_belongs_to_it():
    """p = 3 of 6 entries, D = 2: entries 1 to 5, those at the edge with exp(-2)."""
    layer, query, memory = at(0.0, 2, 6)
    _, weights = layer(query, memory, return_attention_scores=True)
    want = np.array([0, np.exp(-2), np.exp(-0.5), 1, np.exp(-0.5), np.exp(-2)]) / 5
    assert_close("weights", weights[0, 0], want)


def test_a_row_counts_its_own_entries():
    """Rows of 6 and 4 entries, padded anywhere, look at their own third."""
    layer, query, memory = at(0.0, 1, 6)
    mask = np.array([[1] * 6, [0, 1, 1, 0, 1, 1], [1, 1, 1, 1, 0, 0]], bool)
    _, weights = layer(
        query.repeat(3, 0), memory.repeat(3, 0), value_mask=mask,
        return_attention_scores=True,
    )  # fmt: skip
    near = np.array([np.exp(-2), 1, np.exp(-2)]) / 3
    want = np.zeros((3, 6))
    want[0, 2:5], want[1, [2, 4, 5]], want[2, 1:4] = near, near, near
    assert_close("weights", weights[:, 0], want)


@pytest.mark.parametrize("argument", [-90.0, 90.0])
def test_some_entry_is_always_near(argument):
    """p from 0 to S: one before the first beyond the end is still within D >= 1."""
    layer, query, memory = at(argument, 1, 5)
    _, weights = layer(query, memory, return_attention_scores=True)
    assert to_numpy(weights).sum() > 0.05


def test_scores_of_luong():
    """In the window the softmax is that of `LuongAttention` over it."""
    layer, (query, memory) = make("local"), data()
    luong = kseq.layers.LuongAttention()
    luong.build(query.shape, memory.shape)
    luong.memory_dense.kernel.assign(layer.memory_dense.kernel)
    _, weights = layer(query, memory, return_attention_scores=True)
    near = to_numpy(weights) > 0
    _, inside = luong(query, memory, attention_mask=near, return_attention_scores=True)
    factors = to_numpy(weights) / np.where(near, to_numpy(inside), 1)
    assert factors.max() <= 1
    assert factors[near].min() >= np.exp(-2) - 1e-6


def test_config_and_options():
    layer = kseq.layers.LocalAttention(3, score="dot", scaled=True)
    config = layer.get_config()
    assert kseq.layers.LocalAttention.from_config(config).get_config() == config
    assert (config["radius"], config["score"], config["scaled"]) == (3, "dot", True)
    assert kseq.layers.LocalAttention().radius == 10
    query = np.ones((2, 3, Q), "float32")
    layer(query, query)
    names = {w.path.split("/", 1)[1] for w in layer.weights}
    assert names == {"gain", "position_dense/kernel", "position_scale"}


def test_errors():
    with pytest.raises(ValueError, match="`radius` must be a positive integer"):
        kseq.layers.LocalAttention(0)
    with pytest.raises(ValueError, match="`score` must be one of 'dot', 'general'"):
        kseq.layers.LocalAttention(2, score="concat")
