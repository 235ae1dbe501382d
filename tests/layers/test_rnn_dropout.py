"""Dropout in the recurrent layers: cells whose outputs show their masks."""

import keras
import numpy as np
import pytest
from helpers import assert_close, assert_same, gradients, to_numpy

import kseq

B, T, D = 3, 5, 4


def show_masks(units=D, **options):
    """h_t = x_t * mask, or h_t = h_{t-1} * mask with recurrent dropout."""
    recurrent = "recurrent_dropout" in options
    return kseq.layers.SimpleRNNCell(
        units,
        activation="linear",
        kernel_initializer="zeros" if recurrent else "identity",
        recurrent_initializer="identity" if recurrent else "zeros",
        seed=1,
        **options,
    )


def outputs(layer, training=True, state=0.0):
    x = np.ones((B, T, D), "float32")
    initial = keras.tree.map_structure(
        lambda width: np.full((B, width), state, "float32"), layer.state_size
    )
    return to_numpy(layer(x, initial_state=initial, training=training))


def test_one_mask_lasts_a_sequence():
    layer = kseq.layers.RNN(show_masks(dropout=0.5), return_sequences=True)
    first, second = outputs(layer), outputs(layer)
    for y in (first, second):
        assert set(np.unique(y)) == {0.0, 2.0}
        assert_same("steps", y, np.repeat(y[:, :1], T, axis=1))
        assert (y[0] != y[1]).any() or (y[0] != y[2]).any()  # each row has its own
    assert (first != second).any()  # and each batch
    assert_same("inference", outputs(layer, training=False), np.ones((B, T, D)))


def test_one_recurrent_mask_lasts_a_sequence():
    layer = kseq.layers.RNN(show_masks(recurrent_dropout=0.5), return_sequences=True)
    y = outputs(layer, state=1.0)
    kept = y[:, :1] > 0
    assert kept.any()
    assert not kept.all()
    assert_close("y", y, kept * 2.0 ** np.arange(1, T + 1)[:, None])


def test_one_mask_lasts_a_sequence_in_a_stack():
    cells = [show_masks(), show_masks(dropout=0.5)]
    layer = kseq.layers.RNN(cells, return_sequences=True)
    first, second = outputs(layer), outputs(layer)
    assert set(np.unique(first)) == {0.0, 2.0}
    assert_same("steps", first, np.repeat(first[:, :1], T, axis=1))
    assert (first != second).any()


def test_one_mask_lasts_a_sequence_beside_attention():
    cell = show_masks(dropout=0.5)
    layer = kseq.layers.AttentionRNN(
        kseq.layers.AttentionCell(cell, kseq.layers.BahdanauAttention(2))
    )
    x, memory = np.ones((B, T, D), "float32"), np.zeros((B, 2, 1), "float32")
    y = [to_numpy(layer(x, memory, training=True))[..., :D] for _ in range(2)]
    assert set(np.unique(y[0])) == {0.0, 2.0}
    assert_same("steps", y[0], np.repeat(y[0][:, :1], T, axis=1))
    assert (y[0] != y[1]).any()
    again = to_numpy(layer(x, memory))[..., :D]
    assert_same("inference", again, np.ones((B, T, D)))


@keras.saving.register_keras_serializable(package="kseq_tests")
class NoisyCell(keras.layers.Layer):
    """A user's cell, with the noise of a layer of Keras."""

    state_size = D

    def build(self, shape):
        self.noise = keras.layers.Dropout(0.5, seed=1)

    def call(self, inputs, states, training=False):
        output = self.noise(inputs, training=training)
        return output, [output]


def test_a_users_cell_draws_new_numbers_at_every_step():
    layer = kseq.layers.RNN(NoisyCell(), return_sequences=True)
    first, second = outputs(layer), outputs(layer)
    assert set(np.unique(first)) == {0.0, 2.0}
    assert all((first[:, t] != first[:, t - 1]).any() for t in range(1, T))
    assert (first != second).any()
    assert_same("inference", outputs(layer, training=False), np.ones((B, T, D)))


@pytest.mark.parametrize("stacked", [False, True], ids=["cell", "stack"])
def test_masks_are_the_same_in_the_gradient(stacked):
    """d sum(x * mask) / dx is the mask, also where the loop runs a second time."""
    cell = show_masks(dropout=0.5)
    layer = kseq.layers.RNN([cell] if stacked else cell, return_sequences=True)
    layer.build((B, T, D))
    y, (dx,), _ = gradients(
        lambda x: layer(x, training=True), [np.ones((B, T, D), "float32")], [],
        mode="compiled", loss=keras.ops.sum, state=layer.variables,
    )  # fmt: skip
    assert set(np.unique(y)) == {0.0, 2.0}
    assert_same("gradient", dx, y)


@pytest.mark.parametrize("name", ["dropout", "recurrent_dropout"])
@pytest.mark.parametrize("cell_class", ["SimpleRNNCell", "GRUCell", "LSTMCell"])
def test_a_cell_of_keras_with_dropout_is_refused(cell_class, name):
    cell = getattr(keras.layers, cell_class)(3, **{name: 0.5})
    with pytest.raises(
        ValueError, match=f"kseq.layers.{cell_class} has the same weigh"
    ):
        kseq.layers.RNN(cell)
    with pytest.raises(ValueError, match=rf"must not be a cell of Keras.*{name}=0\.5"):
        kseq.layers.RNN([kseq.layers.GRUCell(3), cell])
