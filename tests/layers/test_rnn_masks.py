"""RNN under masks: each row of the batch is padded in another way."""

import keras
import numpy as np
import pytest
from helpers import (
    assert_close,
    assert_same,
    set_weights_by_seed,
    to_numpy,
)
from reference import cells

import kseq

STEPS = {
    kseq.layers.SimpleRNN: cells.simple_rnn_step,
    kseq.layers.GRU: cells.gru_step,
    kseq.layers.LSTM: cells.lstm_step,
}
MASK = np.array(
    [
        [True, True, True, True],
        [True, True, False, False],  # right
        [False, False, True, True],  # left
        [True, False, True, True],  # interior
        [False, False, False, False],
    ]
)
B, T, D, U = 5, 4, 3, 2
kinds = pytest.mark.parametrize("layer_class", STEPS, ids=lambda c: c.__name__)


def make(layer_class, seed=0, **options):
    layer = layer_class(U, return_sequences=True, return_state=True, **options)
    layer.build((B, T, D))
    return layer, set_weights_by_seed(layer, seed)


def data(layer_class, seed=1):
    rng = np.random.default_rng(seed)
    count = 2 if layer_class is kseq.layers.LSTM else 1
    x = rng.normal(size=(B, T, D)).astype("float32")
    return x, [rng.normal(size=(B, U)).astype("float32") for _ in range(count)]


def test_right_padding_agrees_with_the_shorter_sequence():
    layer, _ = make(kseq.layers.LSTM)
    x, states = data(kseq.layers.LSTM)
    mask = np.zeros((B, T), bool)
    mask[:, :3] = True
    outputs, *last = layer(x, initial_state=states, mask=mask)
    want, *want_last = layer(x[:, :3], initial_state=states)
    assert_close("outputs", outputs[:, :3], want)
    assert_close("states", last, want_last)
    # and left padding alike
    outputs, *last = layer(x, initial_state=states, mask=mask[:, ::-1].copy())
    want, *want_last = layer(x[:, 1:], initial_state=states)
    assert_close("outputs", outputs[:, 1:], want)
    assert_close("states", last, want_last)


def test_a_mask_of_only_true_changes_nothing():
    layer, _ = make(kseq.layers.GRU)
    x, _ = data(kseq.layers.GRU)
    assert_close("all true", layer(x, mask=np.ones((B, T), bool)), layer(x))


def ids_of_the_mask():
    return np.where(MASK, np.arange(1, 1 + B * T).reshape(B, T), 0).astype("int32")


@pytest.mark.parametrize("go_backwards", [False, True], ids=["forward", "backward"])
def test_the_mask_of_an_embedding(go_backwards):
    layer, _ = make(kseq.layers.GRU, go_backwards=go_backwards)
    embedding = keras.layers.Embedding(1 + B * T, D, mask_zero=True)
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, layer(embedding(ids)))
    values = ids_of_the_mask()
    want = layer(to_numpy(embedding(values)), mask=MASK)
    assert_close("outputs", model(values), want)


def test_the_mask_of_an_embedding_beside_an_initial_state():
    """Keras then fills `sequences_mask`, and `mask` stays empty."""
    layer, _ = make(kseq.layers.LSTM)
    _, states = data(kseq.layers.LSTM)
    ids = keras.Input((T,), dtype="int32")
    embedding = keras.layers.Embedding(1 + B * T, D, mask_zero=True)
    given = [keras.Input((U,)) for _ in states]
    outputs = layer(embedding(ids), initial_state=given)
    model = keras.Model([ids, *given], outputs)
    values = ids_of_the_mask()
    want = layer(to_numpy(embedding(values)), initial_state=states, mask=MASK)
    assert_close("outputs", model([values, *states]), want)


@pytest.mark.parametrize("go_backwards", [False, True], ids=["forward", "backward"])
def test_the_mask_that_is_passed_on(go_backwards):
    """Reversed with the outputs, kept by the next layer, gone with the time axis."""
    layer = kseq.layers.GRU(U, return_sequences=True, go_backwards=go_backwards)
    x, _ = data(kseq.layers.GRU)
    want = MASK[:, ::-1] if go_backwards else MASK
    assert_same("mask", layer.compute_mask(x, keras.ops.convert_to_tensor(MASK)), want)
    last = kseq.layers.LSTM(U, return_state=True)
    assert last.compute_mask(x, MASK) == (None, None, None)
    assert kseq.layers.GRU(U).compute_mask(x, MASK) is None
    assert layer.compute_mask(x, None) is None
    second = kseq.layers.GRU(U)
    ids = ids_of_the_mask()
    embedding = keras.layers.Embedding(1 + B * T, D, mask_zero=True)
    chained = second(layer(embedding(ids)))
    inner = to_numpy(layer(embedding(ids)))
    assert_close("chained", chained, second(inner, mask=want.copy()))
