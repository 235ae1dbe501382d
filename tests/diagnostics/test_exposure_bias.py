"""Losses after true and after own tokens, by walking tables, and of real models."""

import numpy as np
import pytest
from generation.table_model import TableModel, log_softmax
from helpers import to_numpy
from models.small_models import language_model

from kseq.diagnostics import exposure_bias
from kseq.layers import PositionEmbedding

N = 6


def test_both_losses_by_hand():
    tables = np.random.default_rng(0).normal(size=(3, N, N))
    prompts = np.stack([np.arange(3), [1, 4, 2]], axis=1)
    targets = np.array([[3, 1, 5, 2], [2, 2, 0, 0], [5, 4, 3, 0]])
    found = exposure_bias(TableModel(tables), prompts, targets)
    forced, free = np.full((2, 3, 4), np.nan)
    for row, table in enumerate(tables):
        log_p = log_softmax(table)
        true = own = prompts[row, 1]
        for t, target in enumerate(targets[row]):
            if target:
                forced[row, t] = -log_p[true, target]
                free[row, t] = -log_p[own, target]
                true, own = target, 1 + log_p[own, 1:].argmax()
    np.testing.assert_allclose(found.teacher_forced, np.nanmean(forced, 0), rtol=1e-5)
    np.testing.assert_allclose(found.free_running, np.nanmean(free, 0), rtol=1e-5)
    assert found.counts.tolist() == [3, 3, 2, 1]
    assert found.teacher_forced[0] == found.free_running[0]
    assert (found.teacher_forced[1:] != found.free_running[1:]).all()


def test_a_model_teacher_forced_is_one_run():
    model = language_model()
    ids = np.array([[5, 6, 7, 8, 9], [3, 4, 10, 2, 11]])
    log_p = log_softmax(to_numpy(model(ids[:, :-1])))
    want = -np.take_along_axis(log_p, ids[:, 1:, None], axis=-1)[..., 0].mean(0)
    found = exposure_bias(model, ids[:, :2], ids[:, 2:])
    np.testing.assert_allclose(found.teacher_forced, want[1:], atol=1e-5)


def test_a_position_without_tokens_has_no_mean():
    found = exposure_bias(TableModel(np.zeros((1, N, N))), [[0, 1]], [[2, 0]])
    np.testing.assert_allclose(found.free_running, [np.log(N), np.nan])


@pytest.mark.parametrize(
    ("prompts", "targets", "words"),
    [
        ([[5]], [[2], [3]], "must have as many rows"),
        ([[5]], [[99]], r"`target_ids` must lie in \[0, 13\).*largest=99"),
        ([[99]], [[5]], r"Token ids must lie in \[0, input_dim\).*largest=99"),
        ([[5]], [[1.5]], "`target_ids` must be integers"),
        ([[5, 6, 7]], [[7, 8, 9]], "fewer learned positions"),
    ],
    ids=["rows", "target", "prompt", "floats", "length"],
)
def test_what_is_no_text_is_named(prompts, targets, words):
    model = language_model(positions=PositionEmbedding(4))
    with pytest.raises(ValueError, match=words):
        exposure_bias(model, prompts, targets)
