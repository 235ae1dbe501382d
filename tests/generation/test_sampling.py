"""Samples have the model's distribution, after the filters."""

import numpy as np
import pytest
from generation.chi_square import check_followers
from generation.table_model import TableModel

from kseq.generation import MinP, Sampling, Temperature, TopK, TopP, generate

N, ROWS, LENGTH = 9, 400, 25


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
    check_followers(table, prompts, made, filters)


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
