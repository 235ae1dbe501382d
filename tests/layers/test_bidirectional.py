"""keras.layers.Bidirectional over our layers: each way as its own reference."""

import keras
import numpy as np
import pytest
from helpers import assert_close, set_weights_by_seed
from reference import cells

import kseq

B, T, D, U = 5, 4, 3, 2
X = np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")
MASK = np.array(
    [[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 1], [0, 0, 0, 0]], bool
)
KINDS = {
    "SimpleRNN": (cells.simple_rnn_step, 1),
    "GRU": (cells.gru_step, 1),
    "LSTM": (cells.lstm_step, 2),
}


@pytest.mark.parametrize("merge_mode", ["concat", "sum"])
@pytest.mark.parametrize("name", KINDS)
def test_both_ways_under_masks(name, merge_mode):
    step, count = KINDS[name]
    inner = getattr(kseq.layers, name)(U, return_sequences=True, return_state=True)
    layer = keras.layers.Bidirectional(inner, merge_mode=merge_mode)
    layer.build((B, T, D))
    weights = set_weights_by_seed(layer, 0)
    zeros = [np.zeros((B, U))] * count
    # Bidirectional asks for zeros at masked steps
    forward, _, first = cells.run(step, weights[:3], X, zeros, MASK, zero_output=True)
    backward, _, second = cells.run(
        step, weights[3:], X, zeros, MASK, go_backwards=True, zero_output=True
    )
    outputs, *states = layer(X, mask=MASK)
    if merge_mode == "sum":
        want = forward + backward
    else:
        want = np.concatenate([forward, backward], axis=-1)
    assert_close("outputs", outputs, want)
    assert_close("states", states, first + second)


def test_last_outputs():
    layer = keras.layers.Bidirectional(kseq.layers.GRU(U))
    layer.build((B, T, D))
    weights = set_weights_by_seed(layer, 0)
    zeros = [np.zeros((B, U))]
    _, last, _ = cells.run(cells.gru_step, weights[:3], X, zeros, MASK)
    _, first, _ = cells.run(
        cells.gru_step, weights[3:], X, zeros, MASK, go_backwards=True
    )
    assert_close("outputs", layer(X, mask=MASK), np.concatenate([last, first], axis=-1))


def test_saved_and_loaded(tmp_path):
    inputs = keras.Input((None, D))
    model = keras.Sequential(
        [
            inputs,
            keras.layers.Masking(0.0),
            keras.layers.Bidirectional(kseq.layers.LSTM(U, return_sequences=True)),
            keras.layers.Bidirectional(kseq.layers.GRU(U)),
        ]
    )
    x = np.where(MASK[..., None], X, 0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert_close("outputs", again(x), model(x))
