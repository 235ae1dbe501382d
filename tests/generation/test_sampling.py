"""Samples have the model's distribution, after the filters."""

import numpy as np
import pytest
from generation.table_model import TableModel, log_softmax

from kseq.generation import MinP, Sampling, Temperature, TopK, TopP, generate

N, ROWS, LENGTH = 9, 400, 25
# the chance that a right sampler exceeds it is 1e-4 for each number of outcomes
CHI_SQUARE = {1: 15.14, 2: 18.42, 3: 21.11, 4: 23.51, 5: 25.74, 6: 27.86, 7: 29.88}


def chi_square(table, sampled, previous, probabilities):
    """Raises unless what follows each id is distributed as `probabilities`."""
    tested = 0
    for last in range(1, N):
        followers = sampled[previous == last]
        counts = np.bincount(followers, minlength=N)
        expected = probabilities[last] * len(followers)
        possible = expected > 0
        assert not counts[~possible].any()
        if expected[possible].min() < 5:
            continue
        statistic = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
        assert statistic < CHI_SQUARE[possible.sum() - 1], (last, counts, expected)
        tested += 1
    assert tested >= 3, table


def filtered(table, filters):
    """By the rules of the filters, in float64."""
    z = table.astype("float64").copy()
    z[:, 0] = -np.inf
    p = np.exp(log_softmax(z))
    for filter_ in filters:
        if isinstance(filter_, Temperature):
            p = p ** (1 / filter_.temperature)
        falling = -np.sort(-p)
        if isinstance(filter_, TopK):
            p = np.where(p >= falling[:, filter_.k - 1 : filter_.k], p, 0)
        if isinstance(filter_, MinP):
            p = np.where(p >= filter_.p * falling[:, :1], p, 0)
        if isinstance(filter_, TopP):
            for row in p:
                order = np.argsort(-row)
                row[order[np.cumsum(row[order]) - row[order] >= filter_.p]] = 0
        p = p / p.sum(1, keepdims=True)
    return p


@pytest.mark.parametrize(
    "filters",
    [[], [Temperature(0.7), TopK(5)], [TopP(0.8)], [MinP(0.3), Temperature(1.5)]],
    ids=["plain", "temperature, top-k", "top-p", "min-p, temperature"],
)
def test_what_follows_each_token_has_its_distribution(filters):
    """Over rows and positions, whose noise must be independent."""
    table = np.random.default_rng(0).normal(size=(N, N))
    prompts = np.stack([np.zeros(ROWS, int), 1 + np.arange(ROWS) % (N - 1)], axis=1)
    made = generate(
        TableModel(table[None]), prompts, LENGTH, strategy=Sampling(filters), seed=1
    ).token_ids
    previous = np.concatenate([prompts[:, 1:], made[:, :-1]], axis=1)
    chi_square(table, made, previous, filtered(table, filters))


def test_seeds_rows_and_positions_draw_apart():
    """With one distribution everywhere, no two rows or seeds are alike."""
    model = TableModel(np.zeros((1, N, N)))
    prompts = np.ones((50, 2), int) * [0, 1]
    one, same, other = (
        generate(model, prompts, LENGTH, strategy=Sampling(), seed=seed).token_ids
        for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(one, same)
    assert abs((one == other).mean() - 1 / (N - 1)) < 0.04
    assert abs((one[1:] == one[:-1]).mean() - 1 / (N - 1)) < 0.04
    assert abs((one[:, 1:] == one[:, :-1]).mean() - 1 / (N - 1)) < 0.04


def test_the_ids_of_a_seed():
    """Every backend draws these."""
    table = np.random.default_rng(7).normal(size=(1, N, N))
    made = generate(TableModel(table), [[0, 1], [0, 1]], 8, strategy=Sampling(), seed=3)
    want = [[1, 6, 4, 8, 8, 4, 7, 4], [8, 7, 1, 2, 7, 6, 6, 3]]
    np.testing.assert_array_equal(made.token_ids, want)
