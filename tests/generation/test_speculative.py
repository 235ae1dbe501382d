"""Speculative decoding has the model's distribution, whatever the draft guesses."""

import numpy as np
import pytest
from generation.chi_square import check_followers
from generation.table_model import END, TableModel, log_softmax
from helpers import to_numpy
from models.small_models import language_model, seq2seq

from kseq.generation import (
    Greedy,
    PromptLookup,
    Sampling,
    Speculative,
    Temperature,
    TopK,
    generate,
)
from kseq.generation.speculative import speculate

N, ROWS, LENGTH = 7, 300, 20


def table(seed):
    return np.random.default_rng(seed).normal(size=(1, N, N))


def drafts():
    """The model itself, another one, one that is sure of what is never right."""
    wrong = np.full((1, N, N), -9.0)
    wrong[0, :, 6] = 9
    return {"itself": table(0), "another": table(1), "wrong": wrong}


@pytest.mark.parametrize("draft", drafts())
@pytest.mark.parametrize(
    "filters", [[], [Temperature(0.7), TopK(4)]], ids=["plain", "filtered"]
)
def test_what_follows_each_token_has_the_distribution_of_the_model(draft, filters):
    strategy = Speculative(TableModel(drafts()[draft]), 3, Sampling(filters))
    prompts = np.stack([np.zeros(ROWS, int), 1 + np.arange(ROWS) % (N - 1)], axis=1)
    made = generate(TableModel(table(0)), prompts, LENGTH, strategy=strategy, seed=2)
    ids = made.token_ids
    p = log_softmax(table(0)[0])
    log_p = p[np.concatenate([prompts[:, 1:], ids[:, :-1]], axis=1), ids]
    np.testing.assert_allclose(made.log_probabilities, log_p, atol=1e-5)
    check_followers(table(0)[0], prompts, ids, filters)


@pytest.mark.parametrize("draft", drafts())
def test_greedy_finds_what_the_model_finds_alone(draft):
    """Rows end at places of their own, and rounds go on past them."""
    tables = np.random.default_rng(3).normal(size=(5, N, N))
    prompts = np.stack([np.arange(5), np.ones(5, int)], axis=1)
    guess = np.repeat(drafts()[draft], 5, axis=0) if draft != "itself" else tables
    alone, speculated = (
        generate(
            TableModel(tables), prompts, 9, strategy=strategy, stop_ids=[END]
        )
        for strategy in (Greedy(), Speculative(TableModel(guess), 4))
    )  # fmt: skip
    np.testing.assert_array_equal(speculated.token_ids, alone.token_ids)
    np.testing.assert_array_equal(speculated.lengths, alone.lengths)
    np.testing.assert_allclose(
        speculated.log_probabilities, alone.log_probabilities, atol=1e-6
    )


def rounds(draft, guesses, acceptance):
    """Runs of the model for 60 tokens, and how many Leviathan et al. expect."""
    model = TableModel(table(0))
    prompts = np.stack([np.zeros(40, int), np.ones(40, int)], axis=1)
    end = speculate(
        model,
        Speculative(TableModel(draft), guesses, Sampling()),
        prompts.astype("int32"),
        prompts.astype("int32"),
        60,
        stop_ids=(),
        seed=np.array([5, 0], "int32"),
        rows=np.arange(40, dtype="int32"),
    )
    made = (1 - acceptance ** (guesses + 1)) / (1 - acceptance)
    return int(end.rounds), 60 / made


def test_a_perfect_draft_is_always_kept():
    got, _ = rounds(table(0), 4, 0.5)
    assert got == 12  # five tokens each


def test_a_useless_draft_costs_a_round_a_token():
    wrong = np.zeros((1, N, N))
    wrong[0, :, 6] = 99
    never = table(0)
    never[0, :, 6] = -99
    model = TableModel(never)
    prompts = np.array([[0, 1]], "int32")
    end = speculate(
        model,
        Speculative(TableModel(wrong), 4, Sampling()),
        prompts,
        prompts,
        10,
        stop_ids=(),
        seed=np.array([5, 0], "int32"),
        rows=np.arange(1, dtype="int32"),
    )
    assert int(end.rounds) == 10


def test_by_the_numbers_of_the_paper():
    """p and q of one place: the share that is kept, and what comes out."""
    p, q = np.array([0.6, 0.3, 0.1]), np.array([0.3, 0.6, 0.1])
    model, draft = (TableModel(np.log(np.tile([1e-9, *x], (1, 4, 1)))) for x in (p, q))
    rows = 20_000
    prompts = np.ones((rows, 2), "int32") * [0, 1]
    end = speculate(
        model,
        Speculative(draft, 1, Sampling()),
        prompts,
        prompts,
        2,
        stop_ids=(),
        seed=np.array([1, 0], "int32"),
        rows=np.arange(rows, dtype="int32"),
    )
    ids = to_numpy(end.token_ids)[:, 2:4]
    for place in range(2):
        shares = np.bincount(ids[:, place], minlength=4)[1:] / rows
        np.testing.assert_allclose(shares, p, atol=0.012)
    # two tokens take one round where the guess was kept, which has probability 0.7
    model_rounds = to_numpy(end.rounds)
    assert model_rounds == 2


def test_a_transformer_drafts_for_another():
    """Greedily, over ragged prompts: caches are rewound row by row."""
    prompts = [[5, 6, 7, 8], [3, 4, 10, 9, 2, 6, 5], [11]]
    model = language_model(tie_embeddings=False)
    alone = model.generate(prompts, 9)
    for draft in (language_model(seed=1, tie_embeddings=False), model):
        found = model.generate(prompts, 9, strategy=Speculative(draft, 3))
        np.testing.assert_array_equal(found.token_ids, alone.token_ids)
        np.testing.assert_allclose(
            found.log_probabilities, alone.log_probabilities, atol=1e-5
        )


def test_an_encoder_decoder_drafts_for_another():
    """Sources of different lengths; what the draft has read is another language."""
    sources = [[4, 9, 8, 7, 6, 5, 2], [7, 3, 8, 2], [6, 2]]
    model = seq2seq(tie_embeddings=False)
    alone = model.generate(sources, max_length=9)
    for draft in (seq2seq(seed=1, tie_embeddings=False), PromptLookup(13)):
        strategy = Speculative(draft, 3)
        found = model.generate(sources, max_length=9, strategy=strategy)
        np.testing.assert_array_equal(found.token_ids, alone.token_ids)
        np.testing.assert_allclose(
            found.log_probabilities, alone.log_probabilities, atol=1e-5
        )


def test_a_window_forgets_for_good():
    model = language_model(window=3)
    with pytest.raises(ValueError, match=r"`window` can't forget.*windows=\{3\}"):
        model.generate([[5, 6]], 4, strategy=Speculative(PromptLookup(13)))


def test_models_that_can_not_rewind_are_named():
    class Serial:
        variables = ()

        def start(self, prompt_ids, max_new_tokens):
            return prompt_ids[:, -1], {}

        def step(self, token_ids, state):
            return token_ids, state

    with pytest.raises(TypeError, match=r"`draft` must read.*missing=\['rewind'\]"):
        Speculative(Serial())
    strategy = Speculative(TableModel(np.zeros((1, N + 1, N + 1))))
    with pytest.raises(ValueError, match="`draft` must have the vocabulary"):
        generate(TableModel(table(0)), [[0, 1]], 3, strategy=strategy)
    with pytest.raises(TypeError, match=r"`model` must read several tokens"):
        generate(Serial(), [[1]], 3, strategy=strategy)
    with pytest.raises(TypeError, match="`choice` must be a Greedy or a Sampling"):
        Speculative(TableModel(table(0)), choice="greedy")
