"""Statistics and rollout of attention weights, against worked values."""

import math

import numpy as np
import pytest

from kseq.diagnostics import attention_rollout, head_statistics

# causal weights of two layers
A1 = [[1, 0, 0], [0.4, 0.6, 0], [0.2, 0.3, 0.5]]
A2 = [[1, 0, 0], [0.5, 0.5, 0], [0.1, 0.1, 0.8]]


def test_entropy_and_distance():
    """Of [.2, .3, .5]: 1.0296530141 nats, .9372305632 of ln 3."""
    weights = np.array([[A1, A2]])
    only_last = np.array([[False, False, True]])
    found = head_statistics(weights, query_mask=only_last)
    np.testing.assert_allclose(found.entropy[0], 1.0296530141, rtol=1e-6)
    np.testing.assert_allclose(found.normalized_entropy[0], 0.9372305632, rtol=1e-6)
    np.testing.assert_allclose(found.distance, [0.2 * 2 + 0.3, 0.1 * 2 + 0.1], 1e-6)
    np.testing.assert_allclose(found.first_key, [0.2, 0.1], rtol=1e-6)
    np.testing.assert_array_equal(found.padding, [0, 0])


def test_means_over_real_queries_and_keys():
    weights = np.array([A1, A2], "float32")
    queries = np.array([[True, True, False], [True, True, True]])
    keys = np.array([[True, True, False], [False, True, True]])
    found = head_statistics(weights, query_mask=queries, key_mask=keys)
    rows = [[1], [0.4, 0.6], [1], [0.5, 0.5], [0.1, 0.1, 0.8]]
    entropy = [-sum(w * math.log(w) for w in row) for row in rows]
    np.testing.assert_allclose(found.entropy, [sum(entropy) / 5], rtol=1e-5)
    shares = [e / math.log(len(r)) for e, r in zip(entropy, rows) if len(r) > 1]
    np.testing.assert_allclose(found.normalized_entropy, [sum(shares) / 3], rtol=1e-5)
    np.testing.assert_allclose(found.distance, [(0.4 + 0.5 + 0.3) / 5], rtol=1e-5)
    # the first real key of the second row is 1
    np.testing.assert_allclose(found.first_key, [(1 + 0.4 + 0 + 0.5 + 0.1) / 5], 1e-5)
    np.testing.assert_allclose(found.padding, [(1 + 0.5 + 0.1) / 5], rtol=1e-5)


def test_nothing_to_say():
    found = head_statistics(np.ones((1, 1, 1)))
    assert found.entropy == 0
    assert np.isnan(found.normalized_entropy)


def test_wrong_shapes():
    with pytest.raises(ValueError, match=r"`weights` must have the shape \(B, T, S\)"):
        head_statistics(np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"`key_mask` must have the shape \(1, 3\)"):
        head_statistics(np.array([A1]), key_mask=np.ones((1, 2), bool))
    with pytest.raises(TypeError, match="`query_mask` must be boolean"):
        head_statistics(np.array([A1]), query_mask=np.ones((1, 3)))


def test_rollout():
    """Abnar & Zuidema (2020), equation 1, by hand."""
    want = [[1, 0, 0], [0.4, 0.6, 0], [0.15, 0.175, 0.675]]
    np.testing.assert_allclose(attention_rollout([A1, A2]), want, rtol=1e-12)
    # the mean over two heads
    heads = np.array([[np.eye(3), 2 * np.array(A1) - np.eye(3)]])
    got = attention_rollout([heads, np.array([A2])])
    np.testing.assert_allclose(got, [want], rtol=1e-12)
    with pytest.raises(ValueError, match="must hold squares"):
        attention_rollout([A1, np.ones((3, 2))])
    with pytest.raises(ValueError, match="must hold squares"):
        attention_rollout([])
