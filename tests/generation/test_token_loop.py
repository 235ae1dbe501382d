"""One token a row at a time, checked by walking tables by hand."""

import numpy as np
import pytest
from generation.table_model import END, TableModel, log_softmax
from keras import ops

from kseq.generation import (
    BeamSearch,
    Greedy,
    RepetitionPenalty,
    Sampling,
    Temperature,
    generate,
    stream,
)

N, LENGTH = 7, 8


def tables(seed, rows=5):
    table = np.random.default_rng(seed).normal(size=(rows, N, N))
    table[:, 3, 0] = 9  # padding may be probable, and is never chosen
    return table


def prompts(rows=5):
    return np.stack([np.arange(rows), np.full(rows, 1)], axis=1)


def walk(table, penalty=1.0, prompt=(1,)):
    """The most probable path, its log-probabilities and its length."""
    ids, log_p = [], []
    while len(ids) < LENGTH and END not in ids:
        last = ids[-1] if ids else prompt[-1]
        z = table[last].copy()
        for seen in {*ids, *prompt}:
            z[seen] = z[seen] / penalty if z[seen] > 0 else z[seen] * penalty
        ids.append(1 + int(np.argmax(z[1:])))
        log_p.append(log_softmax(table[last])[ids[-1]])
    missing = LENGTH - len(ids)
    return ids + [0] * missing, log_p + [0] * missing, len(ids)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_greedy_equals_a_walk_through_the_table(seed):
    table = tables(seed)
    found = generate(TableModel(table), prompts(), LENGTH, stop_ids=[END])
    ids, log_p, lengths = zip(*map(walk, table))
    longest = max(lengths)
    np.testing.assert_array_equal(found.token_ids, np.array(ids)[:, :longest])
    assert found.token_ids.dtype == found.lengths.dtype == "int32"
    np.testing.assert_array_equal(found.lengths, lengths)
    want = np.array(log_p)[:, :longest]
    np.testing.assert_allclose(found.log_probabilities, want, atol=1e-6)
    np.testing.assert_allclose(found.scores, want.sum(1), atol=1e-5)
    assert min(lengths) < LENGTH or seed == 2  # some row ends early


def test_the_history_holds_prompt_and_new_tokens():
    table = tables(4)
    strategy = Greedy([RepetitionPenalty(3.0)])
    found = generate(
        TableModel(table), prompts(), LENGTH, strategy=strategy, stop_ids=[END]
    )
    want = [
        walk(rows, 3.0, prompt)[0]
        for rows, prompt in zip(table, prompts().tolist(), strict=True)
    ]
    np.testing.assert_array_equal(
        found.token_ids, np.array(want)[:, : found.token_ids.shape[1]]
    )
    plain = generate(TableModel(table), prompts(), LENGTH, stop_ids=[END])
    assert plain.token_ids.tolist() != found.token_ids.tolist()


def test_each_of_several_stop_ids_ends_a_row():
    table = np.full((2, N, N), -9.0)
    table[:, 1, 4] = table[0, 4, 5] = table[1, 4, 6] = 9
    found = generate(TableModel(table), prompts(2), LENGTH, stop_ids=[6, 5])
    np.testing.assert_array_equal(found.token_ids, [[4, 5], [4, 6]])
    cut = generate(TableModel(table), prompts(2), 1, stop_ids=[6, 5])
    np.testing.assert_array_equal(cut.token_ids, [[4], [4]])


def test_it_stops_when_every_row_has_ended():
    """Another step would take a row of the table that is not there."""
    steps = []

    class Counting(TableModel):
        def step(self, token_ids, state):
            steps.append(1)
            return super().step(token_ids, state)

    from kseq.generation.token_loop import advance, first_progress

    table = np.full((2, N, N), -9.0)
    table[:, 1, 3] = table[:, 3, END] = 9
    model = Counting(table)
    last, state = model.start(prompts(2), 0)
    progress = first_progress(prompts(2), last, state, LENGTH)
    end = advance(
        model.step,
        Greedy(),
        progress,
        LENGTH,
        stop_ids=(END,),
        seed=np.zeros(2, "int32"),
        rows=np.arange(2),
    )
    assert int(end.t) == int(end.state["t"]) == 2


@pytest.mark.parametrize("strategy", [Greedy(), Sampling()], ids=["greedy", "sampling"])
@pytest.mark.parametrize("chunk", [1, 3, 20])
def test_a_stream_yields_what_generate_returns(strategy, chunk):
    model = TableModel(tables(0))
    options = {"strategy": strategy, "stop_ids": [END], "seed": 4}
    whole = generate(model, prompts(), LENGTH, **options).token_ids
    chunks = list(stream(model, prompts(), LENGTH, chunk_size=chunk, **options))
    assert all(made.shape[1] <= chunk for made in chunks)
    made = np.concatenate(chunks, axis=1)
    np.testing.assert_array_equal(made, whole)


def test_batches_change_nothing():
    """Rows keep their noise, and the last batch is filled up."""
    model = TableModel(tables(1))
    for strategy in (Greedy(), Sampling([Temperature(2.0)])):
        options = {"strategy": strategy, "stop_ids": [END]}
        whole = generate(model, prompts(), LENGTH, **options)
        for size in (2, 4):
            parts = generate(model, prompts(), LENGTH, batch_size=size, **options)
            np.testing.assert_array_equal(parts.token_ids, whole.token_ids)
            np.testing.assert_array_equal(parts.scores, whole.scores)


def test_one_program_for_equal_arguments():
    traces = []

    class Counting(TableModel):
        def start(self, *arguments):
            traces.append(1)
            return super().start(*arguments)

    model = Counting(tables(0))
    for seed in (0, 1, 2):
        strategy = Sampling([Temperature(0.5)])
        generate(model, prompts(), LENGTH, strategy=strategy, seed=seed)
    assert len(traces) == 1
    generate(model, prompts(), LENGTH, strategy=Sampling([Temperature(0.6)]))
    assert len(traces) == 2


def test_large_seeds_draw_apart():
    model = TableModel(np.zeros((5, N, N)))
    drawn = [
        generate(model, prompts(), LENGTH, strategy=Sampling(), seed=seed).token_ids
        for seed in (0, 2**31, 2**40, -1)
    ]
    assert len({ids.tobytes() for ids in drawn}) == 4


def test_a_row_of_which_nothing_is_left_ends():
    def nothing(logits, history):
        return ops.where(history[:, :1] > 2, -np.inf, logits)

    found = generate(TableModel(tables(0)), prompts(), 4, strategy=Greedy([nothing]))
    assert found.lengths.tolist() == [4, 4, 4, 0, 0]
    assert not found.log_probabilities[3:].any()
    assert found.scores[3:].tolist() == [0, 0]


@pytest.mark.parametrize("strategy", [Greedy(), BeamSearch(3, num_return=2)], ids=str)
def test_no_prompts_give_no_rows(strategy):
    found = generate(TableModel(tables(0)), np.zeros((0, 2), int), 4, strategy=strategy)
    shape = (0,) if isinstance(strategy, Greedy) else (0, 2)
    assert found.token_ids.shape == (*shape, 1)
    assert found.lengths.shape == found.scores.shape == shape


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("start", r"`start` must return ids \(B,\)"),
        ("step", r"`step` must return logits \(B, N\)"),
    ],
)
def test_models_that_answer_in_another_shape_are_named(method, words):
    class Wrong(TableModel):
        def start(self, *arguments):
            last, state = super().start(*arguments)
            return (last[:, None] if method == "start" else last), state

        def step(self, *arguments):
            logits, state = super().step(*arguments)
            return logits[:, None], state

    for strategy in (Greedy(), BeamSearch(2)):
        with pytest.raises(ValueError, match=words):
            generate(Wrong(tables(0)), prompts(), 3, strategy=strategy)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"max_new_tokens": 0}, ValueError, "`max_new_tokens` must be a positive"),
        ({"stop_ids": [0]}, ValueError, "`stop_ids` must be a list of positive"),
        ({"stop_ids": 3}, ValueError, "`stop_ids` must be a list of positive"),
        ({"stop_ids": [N]}, ValueError, r"`stop_ids` must lie in \[1, 7\)"),
        ({"seed": 1.5}, ValueError, "`seed` must be an integer"),
        ({"prompt_ids": [[0.5]]}, ValueError, "`prompt_ids` must be integers of shape"),
        ({"batch_size": 0}, ValueError, "`batch_size` must be a positive integer"),
        (
            {"strategy": "beam"},
            TypeError,
            "`strategy` must be a Greedy, Sampling, Beam",
        ),
    ],
    ids=["length", "stop", "list", "range", "seed", "floats", "batch", "strategy"],
)
def test_bad_arguments_are_named(options, error, words):
    with pytest.raises(error, match=words):
        generate(
            TableModel(tables(0)),
            **{"prompt_ids": prompts(), "max_new_tokens": 3, **options},
        )
    for filters in ([0.9], Temperature(0.5)):
        with pytest.raises(TypeError, match=r"`filters` must be a list.*TopK"):
            Greedy(filters)
    with pytest.raises(TypeError, match="`strategy` must be a Greedy or a Sampling"):
        next(stream(TableModel(tables(0)), prompts(), 3, strategy=None))
