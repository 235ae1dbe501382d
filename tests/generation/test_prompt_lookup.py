"""A draft that looks back: its guesses, and that they never change what comes out."""

import numpy as np
import pytest
from generation.chi_square import check_followers
from generation.table_model import END, TableModel
from helpers import to_numpy

from kseq.generation import (
    Greedy,
    PromptLookup,
    Sampling,
    Speculative,
    TopP,
    generate,
)
from kseq.generation.speculative import speculate

N = 7


def guessed(row, longest):
    """What followed the last of the longest matches of the end of `row`, or None."""
    best, guess = 0, None
    for j in range(len(row) - 1):
        match = 0
        while match < min(longest, j + 1) and row[j - match] == row[-1 - match] != 0:
            match += 1
        if match >= max(best, 1):
            best, guess = match, row[j + 1]
    return guess


def fed(draft, rows, prompt):
    """Logits after each token of `rows` behind the first `prompt` of them."""
    last, state = draft.start(rows[:, :prompt], rows.shape[1] - prompt)
    logits, state = draft.step(last, state)
    found = [to_numpy(logits)]
    for t in range(prompt, rows.shape[1]):
        logits, state = draft.step(rows[:, t], state)
        found.append(to_numpy(logits))
    return np.stack(found, axis=1), state


@pytest.mark.parametrize("longest", [1, 2, 4])
def test_its_guess_is_what_followed_the_longest_match(longest):
    rows = np.random.default_rng(longest).integers(1, 4, (9, 17)).astype("int32")
    rows[0, :5] = 0  # padding on the left
    rows[1] = np.arange(17)  # nothing twice
    logits, _ = fed(PromptLookup(18, longest), rows, 6)
    for row, by_place in zip(rows, logits, strict=True):
        for t, z in enumerate(by_place, start=6):
            want = guessed(row[:t].tolist(), longest)
            if want is None:
                np.testing.assert_array_equal(z, 0)
            else:
                np.testing.assert_array_equal(
                    z, np.where(np.arange(18) == want, 0, -np.inf)
                )


def test_what_can_not_follow_is_no_guess():
    """Padding behind a source, and an id that the model does not have."""
    rows = np.array([[5, 0, 5, 5], [4, 9, 4, 4]], "int32")
    logits, _ = fed(PromptLookup(N), rows, 3)
    np.testing.assert_array_equal(logits[:, 0], 0)


def test_it_forgets():
    rows = np.array([[1, 2, 3, 1, 2], [1, 2, 1, 1, 1]], "int32")
    draft = PromptLookup(N)
    _, state = fed(draft, rows, 2)
    state = draft.rewind(state, np.array([1, 2], "int32"))
    logits, _ = draft.step(np.array([2, 2], "int32"), state)
    assert to_numpy(logits).argmax(-1).tolist() == [3, 1]


@pytest.mark.parametrize("filters", [[], [TopP(0.8)]], ids=["plain", "filtered"])
def test_what_comes_out_has_the_distribution_of_the_model(filters):
    table = np.random.default_rng(0).normal(size=(1, N, N))
    prompts = np.stack([np.zeros(300, int), 1 + np.arange(300) % (N - 1)], axis=1)
    strategy = Speculative(PromptLookup(N, 1), 3, Sampling(filters))
    made = generate(TableModel(table), prompts, 20, strategy=strategy, seed=2)
    check_followers(table[0], prompts, made.token_ids, filters)


def test_greedy_finds_what_the_model_finds_alone():
    tables = np.random.default_rng(3).normal(size=(5, N, N))
    prompts = np.stack([np.arange(5), np.ones(5, int)], axis=1)
    alone, found = (
        generate(TableModel(tables), prompts, 9, strategy=strategy, stop_ids=[END])
        for strategy in (Greedy(), Speculative(PromptLookup(N), 4))
    )
    np.testing.assert_array_equal(found.token_ids, alone.token_ids)


def test_a_row_that_repeats_its_prompt_takes_few_runs_of_the_model():
    """1 3 4 5 6 1 3 ..: five tokens a run, since the prompt says how it goes on."""
    circle = np.full((1, N, N), -9.0)
    for this, following in ((1, 3), (3, 4), (4, 5), (5, 6), (6, 1)):
        circle[0, this, following] = 9
    prompt = np.array([[0, 1, 3, 4, 5, 6, 1]], "int32")
    end = speculate(
        TableModel(circle),
        Speculative(PromptLookup(N), 4),
        prompt,
        prompt,
        20,
        stop_ids=(),
        seed=np.array([0, 0], "int32"),
        rows=np.arange(1, dtype="int32"),
    )
    assert to_numpy(end.token_ids)[0, 7:27].tolist() == [3, 4, 5, 6, 1] * 4
    assert int(end.rounds) == 4


def test_bad_sizes_are_named():
    with pytest.raises(ValueError, match="`vocabulary_size` must be a positive"):
        PromptLookup(0)
    with pytest.raises(ValueError, match="`longest_match` must be a positive"):
        PromptLookup(9, 0)
