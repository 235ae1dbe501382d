"""Greedy decoding over a table of transitions, checked by walking the table."""

import numpy as np
import pytest
from keras import ops

from kseq.backend import compiled
from kseq.generation import greedy_decode

START, END, LENGTH = 1, 2, 8


def walk(table, row_bias):
    """The most probable path from START, by hand: never padding before END."""
    ids, last = [], START
    while len(ids) < LENGTH and END not in ids:
        last = 1 + int(np.argmax((table[last] + row_bias)[1:]))
        ids.append(last)
    return ids + [0] * (LENGTH - len(ids))


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_equals_a_walk_through_the_table(seed, jit):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(7, 7)).astype("float32")
    table[3, 0] = 9  # padding may be probable, and is never chosen
    bias = rng.normal(size=(5, 7)).astype("float32")

    def decode(bias):
        def step(token_ids, state):
            logits = ops.take(ops.convert_to_tensor(table), token_ids, axis=0)
            return logits + state["bias"], {"bias": state["bias"]}

        return greedy_decode(
            step,
            {"bias": bias},
            batch_size=5,
            start_id=START,
            end_id=END,
            max_length=LENGTH,
        )

    run = compiled(decode, []) if jit else decode
    got = ops.convert_to_numpy(run(ops.convert_to_tensor(bias)))
    assert got.dtype == "int32"
    np.testing.assert_array_equal(got, [walk(table, row) for row in bias])
    assert (got == END).any() or seed != 0  # some row ends early


def test_stops_as_soon_as_every_row_has_ended():
    """The step counts its calls in the state: two, where eight were allowed."""

    def step(token_ids, state):
        logits = ops.one_hot(ops.where(state["calls"] < 1, 3, END), 5)
        return ops.tile(logits[None], (2, 1)), {"calls": state["calls"] + 1}

    calls = []

    def counting(token_ids, state):
        calls.append(1)
        return step(token_ids, state)

    tokens = greedy_decode(
        counting,
        {"calls": ops.convert_to_tensor(0)},
        batch_size=2,
        start_id=START,
        end_id=END,
        max_length=LENGTH,
    )
    np.testing.assert_array_equal(ops.convert_to_numpy(tokens), [[3, 2] + [0] * 6] * 2)
