"""ALiBi's slopes and T5's buckets."""

import numpy as np
import pytest
from helpers import assert_same, to_numpy
from keras import ops
from reference import positions as reference

from kseq.backend import compiled
from kseq.ops import alibi_slopes, relative_buckets


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 7, 8, 12, 16, 31])
def test_slopes(n):
    np.testing.assert_allclose(alibi_slopes(n), reference.slopes(n), rtol=1e-14)


def test_paper_slopes():
    """Section 3: 1/2 to 1/256 for 8 heads; 6 heads by hand."""
    assert alibi_slopes(8).tolist() == [2.0**-h for h in range(1, 9)]
    want = [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
    assert alibi_slopes(6).tolist() == want


@pytest.mark.parametrize("n", [0, -1, 1.5, None])
def test_heads_are_checked(n):
    with pytest.raises(ValueError, match="`num_heads` must be a positive integer"):
        alibi_slopes(n)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(
    ("num_buckets", "max_distance"), [(32, 128), (8, 7), (10, 128), (64, 4096), (4, 2)]
)
def test_buckets(num_buckets, max_distance, bidirectional):
    """Every distance, boundaries too: the reference compares integers."""
    if not bidirectional:
        num_buckets -= 1  # odd and even ones
    arguments = (num_buckets, max_distance, bidirectional)
    relative = np.arange(-max_distance - 9, max_distance + 10)
    want = np.array([reference.bucket(int(r), *arguments) for r in relative])
    got = relative_buckets(relative, *arguments)
    assert_same("buckets", got, want)
    # a key after the query is at no distance of 0
    unused = {num_buckets // 2} if bidirectional else set()
    assert set(want) == set(range(num_buckets)) - unused


@pytest.mark.parametrize(
    ("bidirectional", "want"),
    [
        (True, {-200: 15, -64: 14, -20: 10, -8: 8, -1: 1, 0: 0, 1: 17, 8: 24, 20: 26,
                64: 30, 200: 31}),
        (False, {-200: 31, -64: 26, -32: 21, -17: 16, -16: 16, -15: 15, 0: 0, 3: 0}),
    ],
    ids=["bidirectional", "causal"],
)  # fmt: skip
def test_by_hand_buckets(bidirectional, want):
    """32 buckets, 128 tokens: those of T5."""
    got = relative_buckets(list(want), bidirectional=bidirectional)
    assert to_numpy(got).tolist() == list(want.values())


def test_buckets_compiled():
    relative = np.arange(5)[None] - np.arange(7)[:, None]
    got = compiled(relative_buckets, [])(ops.convert_to_tensor(relative, "int32"))
    want = np.vectorize(reference.bucket)(relative)
    assert_same("buckets", got, want)


def test_sizes_are_checked():
    for buckets, both, words in ((5, True, "even and at least 4"),
                                 (2, True, "even and at least 4"),
                                 (1, False, "at least 2")):  # fmt: skip
        with pytest.raises(ValueError, match=f"`num_buckets` must be {words}"):
            relative_buckets([1], buckets, 128, both)
    with pytest.raises(ValueError, match="`num_buckets` must be a positive integer"):
        relative_buckets([1], 0)
    with pytest.raises(ValueError, match="`max_distance` must be a positive integer"):
        relative_buckets([1], 8, 1.5)
    with pytest.raises(ValueError, match=r"`max_distance` must be greater.*buckets=8"):
        relative_buckets([1], 32, 8)


def test_distances_are_integers():
    with pytest.raises(TypeError, match="`relative_positions` must be integers"):
        relative_buckets([1.0])
