"""Which places dropout keeps: the hash itself, and how random it is."""

import numpy as np
import pytest
from helpers import to_numpy

from kseq.ops.dropout import kept_places

HEADS, T, S = 8, 127, 131
seeds = pytest.mark.parametrize("seed", [(0, 0), (1, 0), (2**32 - 1, 12345)], ids=str)


def kept(seed, rate, heads=range(HEADS), rows=range(T), columns=range(S)):
    heads = np.reshape([*heads], (-1, 1, 1))
    rows, columns = np.reshape([*rows], (-1, 1)), np.array([*columns])
    seed = np.array(seed, "uint32")
    return to_numpy(kept_places(seed, rate, heads, rows, columns))  # (H, T, S)


def mixed(x):
    """Wellons's lowbias32, in integers of Python."""
    x = (x ^ x >> 16) * 0x7FEB352D % 2**32
    x = (x ^ x >> 15) * 0x846CA68B % 2**32
    return x ^ x >> 16


@seeds
def test_reference(seed):
    """In integers without a bound: the seed, head, row and column enter in turn."""
    got = kept(seed, 0.3)
    for head, row, column in ((0, 0, 0), (7, 0, 1), (3, 126, 130), (0, 5, 130)):
        bits = mixed(mixed(seed[0]) ^ seed[1])
        for number in (head, row, column):
            bits = mixed((bits + number * 0x9E3779B9) % 2**32)
        assert got[head, row, column] == (bits >= 0.3 * 2**32)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
@seeds
def test_the_share_that_is_kept(seed, rate):
    """Within 5 standard deviations, as a whole and for heads, rows and columns."""
    got = kept(seed, rate)
    for axes in ((0, 1, 2), (1, 2), (0, 2), (0, 1)):
        count = np.prod([got.shape[axis] for axis in axes])
        error = got.mean(axes) - (1 - rate)
        assert np.abs(error).max() < 5 * np.sqrt(rate * (1 - rate) / count)
    # the counts of single rows and columns vary as those of a binomial
    for axis in (1, 2):
        count = got.shape[axis]
        ratio = got.sum(axis).var() / (count * rate * (1 - rate))
        assert abs(ratio - 1) < 5 * np.sqrt(2 / (got.size / count)) + 0.02


@pytest.mark.parametrize("rate", [0.1, 0.5])
@seeds
def test_neighbors_are_independent(seed, rate):
    """Also those of the next seeds, in the same place and a head further."""
    got = kept(seed, rate)
    first = kept(((seed[0] + 1) % 2**32, seed[1]), rate)
    second = kept((seed[0], seed[1] + 1), rate)
    upper = np.triu_indices(T, 1)
    pairs = {
        "next column": (got[:, :, :-1], got[:, :, 1:]),
        "column after next": (got[:, :, :-2], got[:, :, 2:]),
        "next row": (got[:, :-1], got[:, 1:]),
        "next head": (got[:-1], got[1:]),
        "diagonal": (got[:, :-1, :-1], got[:, 1:, 1:]),
        "other diagonal": (got[:, :-1, 1:], got[:, 1:, :-1]),
        "mirrored": (got[:, *upper], got[:, *upper[::-1]]),
        "next head and column": (got[:-1, :, :-1], got[1:, :, 1:]),
        "first word of the seed": (got, first),
        "first word, next head": (got[1:], first[:-1]),
        "second word of the seed": (got, second),
        "second word, next head": (got[1:], second[:-1]),
    }
    deviations = {}
    for name, (a, b) in pairs.items():
        product = (a - (1 - rate)) * (b - (1 - rate)) / (rate * (1 - rate))
        deviations[name] = abs(product.mean()) * np.sqrt(product.size)
    assert max(deviations.values()) < 5, deviations


def test_rate_near_1():
    """2**32 times the rate rounds to a number without a place in 32 bits."""
    assert not kept((1, 2), 1 - 1e-12).any()
