"""Beam search against all rows there are."""

from itertools import pairwise

import numpy as np
import pytest
from generation.table_model import END, TableModel, all_rows, log_softmax
from keras import ops

from kseq.generation import BeamSearch, Greedy, generate

N, LENGTH = 5, 4
BEGINNINGS = (N - 2) ** LENGTH  # neither padding nor the end


def length_penalty(n, alpha):
    """Equation 14 of Wu et al."""
    return ((5 + n) / 6) ** alpha


@pytest.mark.parametrize(
    ("n", "alpha", "log_p", "score"),
    [(10, 0.6, -6, -3.4624797742), (20, 0.6, -8, -3.3979480281)],
)
def test_the_length_penalty_of_the_paper(n, alpha, log_p, score):
    got = log_p / float(BeamSearch(1, length_penalty=alpha).lengths_penalty(n))
    assert got == pytest.approx(score, rel=1e-6)
    assert log_p / length_penalty(n, alpha) == pytest.approx(score, rel=1e-9)


def search_tables(tables, **options):
    """The best rows of each table, three tables a batch."""
    prompts = np.stack([np.arange(len(tables)), np.ones(len(tables), int)], axis=1)
    return generate(
        TableModel(tables),
        prompts,
        LENGTH,
        strategy=BeamSearch(**options),
        stop_ids=[END],
        batch_size=3,
    )


def all_scores(table, alpha):
    rows = all_rows(table, 1, LENGTH)
    return {y: p / length_penalty(len(y), alpha) for y, p in rows.items()}


def assert_found(found, row, best, score):
    """Raises unless the scores of a table's rows are `best`, and are those of its rows.

    Two rows with the same steps in another order are equally good.
    """
    np.testing.assert_allclose(found.scores[row], best, rtol=1e-5)
    rows = []
    for ids, n in zip(found.token_ids[row], found.lengths[row], strict=True):
        rows.append(tuple(ids[:n].tolist()))
        assert not ids[n:].any()
    np.testing.assert_allclose([score[y] for y in rows], best, rtol=1e-5)
    assert len(set(rows)) == len(best)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
def test_wide_beams_equal_exhaustive_search(alpha):
    """The best four rows of 200 tables, and their scores."""
    tables = np.random.default_rng(0).normal(0, 1.5, (200, N, N))
    found = search_tables(
        tables, num_beams=BEGINNINGS, length_penalty=alpha, num_return=4
    )
    assert found.token_ids.shape == (200, 4, LENGTH)
    for row, table in enumerate(tables):
        score = all_scores(table, alpha)
        assert_found(found, row, sorted(score.values(), reverse=True)[:4], score)
    assert (found.lengths[:, 0] < LENGTH).sum() > 20


def textbook(table, beams, alpha):
    """Scores by beam search in lists, without an early stop, the best first."""
    log_p = log_softmax(table)
    live, ended = [((), 0.0)], []
    for _ in range(LENGTH):
        longer = []
        for y, total in live:
            last = y[-1] if y else 1
            longer += [((*y, i), total + log_p[last, i]) for i in range(1, N)]
        ended += [(y, p / length_penalty(len(y), alpha)) for y, p in longer
                  if y[-1] == END]  # fmt: skip
        going = [(y, p) for y, p in longer if y[-1] != END]
        live = sorted(going, key=lambda pair: -pair[1])[:beams]
    ended += [(y, p / length_penalty(LENGTH, alpha)) for y, p in live]
    return sorted((score for _, score in ended), reverse=True)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("beams", [1, 2, 3])
def test_narrow_beams_equal_the_textbook(beams, alpha):
    tables = np.random.default_rng(1).normal(0, 1.5, (60, N, N))
    found = search_tables(
        tables, num_beams=beams, length_penalty=alpha, num_return=beams
    )
    for row, table in enumerate(tables):
        best = textbook(table, beams, alpha)[:beams]
        assert_found(found, row, best, all_scores(table, alpha))


def test_one_beam_is_greedy_where_no_row_ends():
    tables = np.random.default_rng(2).normal(0, 1.5, (6, N, N))
    prompts = np.stack([np.arange(6), np.ones(6, int)], axis=1)
    one, greedy = (
        generate(TableModel(tables), prompts, LENGTH, strategy=strategy)
        for strategy in (BeamSearch(1), Greedy())
    )
    np.testing.assert_array_equal(one.token_ids, greedy.token_ids)
    np.testing.assert_allclose(
        one.log_probabilities, greedy.log_probabilities, atol=1e-6
    )
    np.testing.assert_allclose(one.scores, greedy.scores, rtol=1e-6)


class Attending(TableModel):
    """Looks at one of three places of the source, by the id that it reads."""

    def start(self, prompt_ids, max_new_tokens):
        last, state = super().start(prompt_ids, max_new_tokens)
        zeros = ops.zeros((*ops.shape(last), 4), "float32")
        return last, {**state, "coverage": zeros}

    def step(self, token_ids, state):
        logits, state = super().step(token_ids, state)
        weights = ops.take(ops.convert_to_tensor(WEIGHTS), token_ids, axis=0)
        return logits, {**state, "coverage": state["coverage"] + weights}

    def coverage(self, state):
        mask = np.array([[True, True, True, False]])
        return state["coverage"], ops.broadcast_to(mask, state["coverage"].shape)


# the fourth place is padding
WEIGHTS = np.array(
    [[0.9, 0.05, 0.05, 0], [0.8, 0.1, 0.1, 0], [0.3, 0.3, 0.4, 0], [0.1, 0.8, 0.1, 0],
     [0.1, 0.2, 0.7, 0]], "float32",
)  # fmt: skip


def test_the_coverage_penalty_of_the_paper():
    state = {"coverage": np.array([[1, 1.2, 0.8, 0.0]], "float32")}
    got = BeamSearch(1, coverage_penalty=0.2).coverages_penalty(Attending([]), state)
    assert float(got[0]) == pytest.approx(-0.0446287103, rel=1e-5)


def test_wide_beams_with_coverage_equal_exhaustive_search():
    tables = np.random.default_rng(4).normal(0, 1.5, (30, N, N))
    prompts = np.stack([np.arange(30), np.ones(30, int)], axis=1)
    search = BeamSearch(
        BEGINNINGS, length_penalty=0.6, coverage_penalty=0.8, num_return=3
    )
    found = generate(
        Attending(tables), prompts, LENGTH, strategy=search, stop_ids=[END],
        batch_size=3,
    )  # fmt: skip
    for row, table in enumerate(tables):
        score = {}
        for y, p in all_rows(table, 1, LENGTH).items():
            covered = WEIGHTS[[1, *y[:-1]], :3].astype("float64").sum(0)
            penalty = 0.8 * np.log(np.minimum(covered, 1)).sum()
            score[y] = p / length_penalty(len(y), 0.6) + penalty
        assert_found(found, row, sorted(score.values(), reverse=True)[:3], score)


def test_coverage_needs_a_model_that_attends():
    with pytest.raises(TypeError, match=r"needs a model with a `coverage`.*TableModel"):
        search_tables(np.zeros((1, N, N)), num_beams=2, coverage_penalty=0.2)


def test_places_without_a_hypothesis_are_empty():
    """Two rows are possible, where four are asked for."""
    table = np.full((1, 4, 4), -np.inf)
    table[0, 1, END] = table[0, 1, 3] = table[0, 3, END] = 0
    prompt = [[0, 1]]
    found = generate(
        TableModel(table), prompt, 3, strategy=BeamSearch(4, num_return=4),
        stop_ids=[END],
    )  # fmt: skip
    assert set(map(tuple, found.token_ids[0, :2].tolist())) == {(2, 0), (3, 2)}
    np.testing.assert_allclose(found.scores[0], [np.log(0.5)] * 2 + [-np.inf] * 2)
    assert not found.token_ids[0, 2:].any()
    assert not found.log_probabilities[0, 2:].any()
    assert found.lengths[0].tolist()[2:] == [0, 0]


def test_log_probabilities_are_those_of_each_token():
    tables = np.random.default_rng(3).normal(0, 1.5, (6, N, N))
    found = search_tables(tables, num_beams=3, length_penalty=0.6)
    for row, table in enumerate(tables):
        n = found.lengths[row]
        path = [1, *found.token_ids[row, :n]]
        want = [log_softmax(table)[a, b] for a, b in pairwise(path)]
        np.testing.assert_allclose(found.log_probabilities[row, :n], want, atol=1e-6)
        assert found.scores[row] == pytest.approx(sum(want) / length_penalty(n, 0.6))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_beams": 0}, "`num_beams` must be a positive integer"),
        ({"num_beams": 2, "length_penalty": -1.0}, "`length_penalty` must be a number"),
        ({"num_beams": 2, "coverage_penalty": -1.0}, "`coverage_penalty` must be a "),
        ({"num_beams": 2, "num_return": 3}, "`num_return` must be at most `num_beams`"),
    ],
    ids=["beams", "length", "coverage", "return"],
)
def test_bad_arguments_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        BeamSearch(**options)
