"""Crossings, counted by hand."""

import numpy as np
import pytest

from kseq.diagnostics import alignment_crossing


def test_one_order_does_not_cross():
    assert alignment_crossing(np.eye(4)) == 0
    assert alignment_crossing(np.eye(4)[[0, 0, 2, 2, 3]]) == 0  # two queries, one key


def test_reverse_order_crosses_most():
    assert alignment_crossing(np.eye(5)[::-1]) == 5 * 4 / 2


def test_crossings_by_hand():
    # queries look at keys 1, 2 and 0 with weights .5, .8 and .6
    weights = [[0.3, 0.5, 0.2], [0.1, 0.1, 0.8], [0.6, 0.2, 0.2]]
    assert alignment_crossing(np.array(weights)) == pytest.approx(0.6 * (0.5 + 0.8))


def test_nothing_does_not_cross():
    assert alignment_crossing(np.zeros((0, 3))) == 0


@pytest.mark.parametrize("shape", [(3,), (2, 3, 5), (3, 0)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match=r"`weights` must have the shape \(T, S\)"):
        alignment_crossing(np.ones(shape))
