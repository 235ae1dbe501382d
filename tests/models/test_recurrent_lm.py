"""The recurrent language model: float64 cells, steps, padding, configs."""

import numpy as np
import pytest
from helpers import gradients, to_numpy
from keras import ops
from layers.block_weights import float64
from models.small_models import ROWS, N, real_close, recurrent
from reference.cells import gru_step, lstm_step, run, simple_rnn_step

import kseq

REAL = ROWS != 0
STEPS = {"rnn": simple_rnn_step, "gru": gru_step, "lstm": lstm_step}
KINDS = [
    {},
    {"cell": "gru", "tie_embeddings": True},
    {"cell": "rnn", "tie_embeddings": True, "units": 6},
]
IDS = ["lstm", "gru-tied-projected", "rnn-tied"]


def build(**options):
    return recurrent(**options) if "units" not in options else same_width(**options)


def same_width(**options):
    options = {name: v for name, v in options.items() if name != "units"}
    model = kseq.models.RecurrentLM(N, 6, 6, **options)
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(0, 0.6, w.shape) for w in model.get_weights()])
    return model


@pytest.mark.parametrize("options", KINDS, ids=IDS)
def test_logits(options):
    model = build(**options)
    table = float64(model.token_embedding)[0]
    x = table[ROWS]
    for layer in model.recurrent_layers:
        width = layer.cell.units
        states = [np.zeros((len(ROWS), width))] * (2 if model.cell == "lstm" else 1)
        x, *_ = run(STEPS[model.cell], float64(layer), x, states, mask=REAL)
    if model.projection is not None:
        kernel, bias = float64(model.projection)
        x = x @ kernel + bias
    kernel, bias = (table.T, 0) if model.tie_embeddings else float64(model.head)
    assert (model.projection is not None) == ("units" not in options and bool(options))
    real_close(model(ROWS), x @ kernel + bias, REAL)


@pytest.mark.parametrize("options", KINDS, ids=IDS)
def test_stepping_equals_the_full_run(options):
    """Also where a row begins with padding or has ended."""
    model = build(**options)
    whole = to_numpy(model(ROWS))
    state = model.empty_state(len(ROWS))
    for t in range(ROWS.shape[1]):
        logits, state = model.step(ops.convert_to_tensor(ROWS[:, t], "int32"), state)
        real_close(logits, whole[:, t], REAL[:, t], 1e-5)


def test_padding_may_hold_any_embedding():
    model = recurrent()
    loss = kseq.training.MaskedCrossentropy()
    found = []
    for value in (0, np.nan):
        table = to_numpy(model.token_embedding.embeddings).copy()
        table[0] = value
        model.token_embedding.embeddings.assign(table)
        logits, _, d_weights = gradients(
            lambda: model(ROWS),
            [],
            model.trainable_variables,
            loss=lambda y: loss(np.where(REAL, 4, 0), y),
        )
        found.append([logits[REAL], *d_weights])
    for got, want in zip(*found):
        np.testing.assert_array_equal(got, want)
        assert np.isfinite(want).all()
        assert want.any()


def test_no_logit_depends_on_a_later_token():
    model = recurrent()
    for t in (0, 2):
        _, _, (d_table,) = gradients(
            lambda t=t: model(ROWS[:1])[:, t], [], [model.token_embedding.embeddings]
        )
        assert not d_table[ROWS[0, t + 1 :]].any()
        assert d_table[ROWS[0, : t + 1]].any(axis=1).all()


def test_shapes_and_the_mask_of_the_logits():
    model = recurrent(dtype="mixed_bfloat16")
    assert model.output.shape == (None, None, N)
    assert model.output.dtype == "bfloat16"
    y = model(ROWS)
    assert y.shape == (*ROWS.shape, N)
    counted = kseq.training.MaskedCrossentropy(pad_id=None)
    np.testing.assert_array_equal(to_numpy(counted.token_weights(ROWS, y)), REAL)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"vocabulary_size": 0}, "`vocabulary_size` must be a positive integer"),
        ({"embedding_dim": 0}, "`embedding_dim` must be a positive integer"),
        ({"units": 1.5}, "`units` must be a positive integer"),
        ({"num_layers": 0}, "`num_layers` must be a positive integer"),
        ({"cell": "lstn"}, r"`cell` must be one of 'rnn', 'gru', 'lstm'\."),
        ({"dropout": 1.0}, "`dropout` must be a probability"),
    ],
)
def test_bad_arguments_are_named(change, words):
    sizes = {"vocabulary_size": N, "embedding_dim": 6, "units": 7}
    with pytest.raises(ValueError, match=words):
        kseq.models.RecurrentLM(**{**sizes, **change})


def test_config_round_trip():
    given = {
        "num_layers": 2,
        "cell": "gru",
        "dropout": 0.1,
        "tie_embeddings": True,
        "name": "other",
        "trainable": False,
        "dtype": "mixed_bfloat16",
    }
    model = kseq.models.RecurrentLM(N, 6, 7, **given)
    config = model.get_config()
    for name, value in given.items():
        if name != "dtype":
            assert config[name] == value
    again = kseq.models.RecurrentLM.from_config(config)
    assert again.get_config() == config
    assert [w.path for w in again.weights] == [w.path for w in model.weights]
