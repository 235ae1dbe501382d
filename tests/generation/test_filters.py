"""Filters of logits: against their papers' rules in NumPy, and by hand."""

import numpy as np
import pytest
from helpers import to_numpy

from kseq.generation import MinP, RepetitionPenalty, Temperature, TopK, TopP

P = np.array([0.5, 0.3, 0.12, 0.05, 0.03])
HISTORY = np.array([[0, 1], [4, 4]], "int32")


def probabilities(filter_, p):
    """What is left of `p`, in each of two rows of which one is turned round."""
    logits = np.log(np.stack([p, p[::-1]])).astype("float32")
    z = to_numpy(filter_(logits, HISTORY)).astype("float64")
    q = np.exp(z - z.max(-1, keepdims=True))
    q /= q.sum(-1, keepdims=True)
    np.testing.assert_allclose(q[1, ::-1], q[0], atol=1e-7)
    return q[0]


def test_top_p_keeps_what_has_less_than_p_before_it():
    np.testing.assert_allclose(probabilities(TopP(0.8), P), [0.625, 0.375, 0, 0, 0])
    np.testing.assert_allclose(probabilities(TopP(0.81), P)[:3].sum(), 1)
    np.testing.assert_allclose(probabilities(TopP(1e-6), P), [1, 0, 0, 0, 0])
    np.testing.assert_allclose(probabilities(TopP(1.0), P), P, rtol=1e-6)


def test_min_p_by_hand():
    want = [0.54347826, 0.32608696, 0.13043478, 0, 0]
    np.testing.assert_allclose(probabilities(MinP(0.2), P), want, atol=1e-7)


def test_top_k_by_hand():
    np.testing.assert_allclose(probabilities(TopK(2), P), [0.625, 0.375, 0, 0, 0])
    np.testing.assert_allclose(probabilities(TopK(9), P), P, rtol=1e-6)
    tied = np.array([0.4, 0.3, 0.3])
    np.testing.assert_allclose(probabilities(TopK(2), tied), tied, rtol=1e-6)


def test_temperature_by_hand():
    want = P**2 / (P**2).sum()
    np.testing.assert_allclose(probabilities(Temperature(0.5), P), want, rtol=1e-5)


def test_repetition_penalty_by_hand():
    logits = np.array([[2.0, -1.0, 3.0, 0.0, 1.0]] * 2, "float32")
    got = to_numpy(RepetitionPenalty(2.0)(logits, HISTORY))
    # id 0 and id 1 were seen in the first row, id 4 in the second
    np.testing.assert_allclose(got, [[1, -2, 3, 0, 1], [2, -1, 3, 0, 0.5]])


@pytest.mark.parametrize("seed", range(3))
def test_large_vocabularies(seed):
    """Against sorted lists of Python, on logits of all sizes."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3, (2, 500)).astype("float32")
    history = np.zeros((2, 1), "int32")
    for filter_ in (TopK(20), TopP(0.7), MinP(0.1)):
        kept = np.isfinite(to_numpy(filter_(logits, history)))
        for row, z in zip(kept, logits.astype("float64"), strict=True):
            p = np.exp(z) / np.exp(z).sum()
            ranked = sorted(range(500), key=lambda i: -p[i])
            if isinstance(filter_, TopK):
                want = ranked[:20]
            elif isinstance(filter_, MinP):
                want = [i for i in ranked if p[i] >= 0.1 * p.max()]
            else:
                before = np.cumsum(p[ranked]) - p[ranked]
                want = [i for i, mass in zip(ranked, before, strict=True) if mass < 0.7]
            assert set(np.flatnonzero(row)) == set(want)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Temperature(0.0), "`temperature` must be a finite number above 0"),
        (lambda: TopK(0), "`k` must be a positive integer"),
        (lambda: TopP(1.1), r"`p` must be in \(0, 1\]"),
        (lambda: MinP(0.0), r"`p` must be in \(0, 1\]"),
        (lambda: RepetitionPenalty(0.0), "`penalty` must be a finite number above 0"),
    ],
    ids=["temperature", "top_k", "top_p", "min_p", "penalty"],
)
def test_bad_values_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()
