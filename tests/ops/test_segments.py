"""Where segments start, by hand."""

import numpy as np
import pytest
from helpers import assert_same

from kseq.ops import segment_mask, segment_starts, started

IDS = [[1, 1, 2, 2, 0], [3, 1, 1, 1, 1]]


def test_segment_starts():
    want = [[1, 0, 1, 0, 1], [1, 1, 0, 0, 0]]
    assert_same("forward", segment_starts(IDS), np.array(want, bool))
    want = [[0, 1, 0, 1, 1], [1, 0, 0, 0, 1]]
    assert_same(
        "backward", segment_starts(IDS, go_backwards=True), np.array(want, bool)
    )
    assert_same("one step", segment_starts([[4]]), np.array([[True]]))


def test_segment_mask():
    want = [[[i == j != 0 for j in row] for i in row] for row in IDS]
    assert_same("mask", segment_mask(IDS), np.array(want, bool))
    assert_same(
        "one id twice", segment_mask([[1, 0, 1]])[0, 0], np.array([1, 0, 1], bool)
    )


def test_started():
    mask = np.array([[0, 1, 0, 0], [1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 1]], bool)
    want = [[0, 1, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0], [0, 0, 0, 1]]
    assert_same("forward", started(mask), np.array(want, bool))
    want = [[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]]
    assert_same("backward", started(mask, go_backwards=True), np.array(want, bool))


def test_segment_ids_of_one_row_alone():
    with pytest.raises(ValueError, match=r"`segment_ids` must have shape \(B, T\)"):
        segment_starts([1, 1, 2])
    with pytest.raises(ValueError, match=r"`segment_ids` must have shape \(B, T\)"):
        segment_mask([1, 1, 2])
