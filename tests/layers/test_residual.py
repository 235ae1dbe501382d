"""Residual: inputs plus outputs of a layer of sequences, with masks and states."""

import keras
import numpy as np
import pytest
from helpers import assert_close, assert_same, gradients, set_weights_by_seed, to_numpy
from reference import cells

import kseq
from kseq.layers import Residual

B, T, D = 4, 3, 2
MASK = np.array(
    [[True, True, True], [True, False, False], [False, True, True], [False] * 3]
)
X = np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")


def lstm(**options):
    return kseq.layers.LSTM(D, return_sequences=True, **options)


def built(layer, seed=0):
    layer.build((B, T, D))
    return layer, set_weights_by_seed(layer, seed)


def test_outputs_and_states():
    """Only the outputs have the residual; padding counts as zeros."""
    layer, weights = built(Residual(lstm(return_state=True)))
    rng = np.random.default_rng(1)
    states = [rng.normal(size=(B, D)).astype("float32") for _ in range(2)]
    want, _, last = cells.run(cells.lstm_step, weights, X, states, MASK)
    outputs, *new = layer(X, initial_state=states, mask=MASK)
    assert_close("outputs", outputs, want + np.where(MASK[..., None], X, 0))
    assert_close("states", new, last)
    without, *_ = layer(X)
    want, _, _ = cells.run(cells.lstm_step, weights, X, [np.zeros((B, D))] * 2)
    assert_close("without", without, X + want)


def test_the_gradient_of_the_inputs_has_a_1_in_it():
    layer, _ = built(Residual(lstm()))
    loss = keras.ops.sum
    _, (got,), d_weights = gradients(layer, [X], layer.trainable_variables, loss=loss)
    inner = layer.layer
    _, (want,), want_weights = gradients(
        inner, [X], inner.trainable_variables, loss=loss
    )
    assert_close("inputs", got, 1 + want, gradient=True)
    assert_close("weights", d_weights, want_weights, gradient=True)


def test_around_a_bidirectional():
    half = kseq.layers.GRU(1, return_sequences=True, return_state=True)
    layer, weights = built(Residual(keras.layers.Bidirectional(half)))
    outputs, *states = layer(X, mask=MASK)
    zeros = [np.zeros((B, 1))]
    runs = [
        cells.run(
            cells.gru_step, part, X, zeros, MASK, go_backwards=back, zero_output=True
        )
        for part, back in ((weights[:3], False), (weights[3:], True))
    ]
    want = np.concatenate([runs[0][0], runs[1][0]], axis=-1)
    assert_close("outputs", outputs, np.where(MASK[..., None], X, 0) + want)
    assert_close("states", states, runs[0][2] + runs[1][2])


def embedded():
    """A Keras input of ids, and its embedding with a mask."""
    ids = keras.Input((None,), dtype="int32")
    return ids, keras.layers.Embedding(1 + B * T, D, mask_zero=True)


IDS = np.where(MASK, np.arange(1, 1 + B * T).reshape(B, T), 0).astype("int32")


def test_the_mask_reaches_the_layer_and_the_next_one():
    """Through two residual layers; a plain `+` would drop it."""
    ids, embedding = embedded()
    first, second = Residual(lstm()), Residual(keras.layers.Dense(D))
    last = kseq.layers.GRU(5)
    model = keras.Model(ids, last(second(first(embedding(ids)))))
    x = to_numpy(embedding(IDS))
    want = last(to_numpy(second(to_numpy(first(x, mask=MASK)))), mask=MASK)
    assert_close("outputs", model(IDS), want)
    assert np.abs(to_numpy(last(second(first(x)))) - to_numpy(want)).max() > 1e-3


def test_the_mask_beside_an_initial_state():
    """Keras then fills `sequences_mask`."""
    ids, embedding = embedded()
    layer = Residual(lstm(return_state=True))
    given = [keras.Input((D,)) for _ in range(2)]
    outputs = layer(embedding(ids), initial_state=given)
    model = keras.Model([ids, *given], outputs)
    states = [np.full((B, D), 0.3, "float32")] * 2
    x = to_numpy(embedding(IDS))
    want = layer(x, initial_state=states, mask=MASK)
    assert_close("outputs", model([IDS, *states]), want)


def test_the_mask_that_is_passed_on():
    mask = keras.ops.convert_to_tensor(MASK)
    assert_same("mask", Residual(lstm()).compute_mask(X, mask), MASK)
    masks = Residual(lstm(return_state=True)).compute_mask(X, mask)
    assert_same("mask", masks[0], MASK)
    assert masks[1:] == (None, None)


def test_training_reaches_the_layer():
    layer = Residual(kseq.layers.Dropout(0.5, seed=1))
    y = to_numpy(layer(np.ones((B, T, D), "float32"), training=True))
    assert set(np.unique(y)) == {1.0, 3.0}
    assert_close("inference", layer(X), 2 * X)


def test_a_reset_reaches_the_layer():
    layer, _ = built(Residual(lstm()))
    reset = np.zeros((B, T), bool)
    reset[:, 1] = True
    outputs = layer(X, reset_mask=reset)
    assert_close("second", outputs[:, 1:], layer(X[:, 1:]))


def test_sizes():
    layer = Residual(lstm(return_state=True))
    want = [(B, T, D), (B, D), (B, D)]
    assert [tuple(s) for s in layer.compute_output_shape((B, T, D))] == want
    assert tuple(Residual(Residual(lstm())).compute_output_shape((B, T, D))) == want[0]


def test_saved_and_loaded(tmp_path):
    inputs = keras.Input((None, D))
    outputs = keras.layers.Masking(0.0)(inputs)
    half = kseq.layers.GRU(1, return_sequences=True)
    for layer in (lstm(), keras.layers.Bidirectional(half)):
        outputs = Residual(layer)(outputs)
    model = keras.Model(inputs, kseq.layers.GRU(5)(outputs))
    x = np.where(MASK[..., None], X, 0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert_close("outputs", again(x), model(x))
    assert [w.path for w in again.weights] == [w.path for w in model.weights]


@pytest.mark.parametrize(
    "layer",
    [lambda: kseq.layers.LSTM(D), lambda: keras.layers.Dense(3)],
    ids=["last output", "width"],
)
def test_the_shapes_must_agree(layer):
    with pytest.raises(
        ValueError, match=r"outputs of `layer` must have the shape of its inputs.*It n"
    ):
        Residual(layer())(X)


def test_what_can_not_be_wrapped():
    with pytest.raises(
        TypeError, match=r"`layer` must be a Keras layer\. .*'function'"
    ):
        Residual(lambda x: x)
    with pytest.raises(ValueError, match="`layer` must not run backwards"):
        Residual(lstm(go_backwards=True))
    with pytest.raises(TypeError, match="`mask` must be boolean"):
        Residual(lstm())(X, mask=np.ones((B, T)))
