"""RNN over other cells: a user's, Keras's, and lists of cells."""

import keras
import numpy as np
import pytest
from helpers import assert_close, gradients, set_weights_by_seed
from keras import ops
from layers.sum_cell import SumCell, sum_step
from reference import cells

import kseq

B, T, D, U = 2, 5, 3, 4
X = np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")


def test_a_users_cell():
    layer = kseq.layers.RNN(SumCell(U), return_sequences=True, return_state=True)
    outputs, state = layer(X)
    weights = [ops.convert_to_numpy(layer.cell.kernel)]
    want, _, last = cells.run(sum_step, weights, X, [np.zeros((B, U))])
    assert_close("outputs", outputs, want)
    assert_close("state", [state], last)
    assert tuple(layer.compute_output_shape((B, T, D))[0]) == (B, T, U)
    again = kseq.layers.RNN.from_config(layer.get_config())
    assert isinstance(again.cell, SumCell)


def test_a_users_cell_under_a_mask_and_compiled():
    layer = kseq.layers.RNN(SumCell(U), return_sequences=True)
    layer.build((B, T, D))
    mask = np.array([[True] * 3 + [False] * 2, [False, True, False, True, True]])
    call = lambda x: layer(x, mask=mask)
    eager = gradients(call, [X], layer.trainable_variables)
    weights = [ops.convert_to_numpy(layer.cell.kernel)]
    want, _, _ = cells.run(sum_step, weights, X, [np.zeros((B, U))], mask)
    assert_close("outputs", eager[0], want)
    compiled = gradients(call, [X], layer.trainable_variables, mode="compiled")
    assert_close("gradients", compiled[1:], eager[1:], gradient=True)


def test_a_list_of_cells_is_stacked():
    stack = [kseq.layers.GRUCell(U), kseq.layers.LSTMCell(2)]
    layer = kseq.layers.RNN(stack, return_sequences=True, return_state=True)
    layer.build((B, T, D))
    weights = set_weights_by_seed(layer, 0)
    outputs, gru_state, lstm_states = layer(X)
    zeros = np.zeros((B, U)), np.zeros((B, 2))
    hidden, _, h = cells.run(cells.gru_step, weights[:3], X, zeros[:1])
    want, _, hc = cells.run(cells.lstm_step, weights[3:], hidden, [zeros[1]] * 2)
    assert_close("outputs", outputs, want)
    assert_close("GRU state", keras.tree.flatten(gru_state), h)
    assert_close("LSTM states", lstm_states, hc)
    # the states go back in, in the form in which they came out
    again = layer(X, initial_state=[gru_state, lstm_states])
    want, _, _ = cells.run(
        cells.lstm_step, weights[3:],
        cells.run(cells.gru_step, weights[:3], X, h)[0], hc,
    )  # fmt: skip
    assert_close("second outputs", again[0], want)


def test_a_stack_in_a_model():
    inputs = keras.Input((None, D))
    stack = kseq.layers.RNN([kseq.layers.LSTMCell(U), SumCell(2)], return_state=True)
    model = keras.Model(inputs, stack(inputs))
    shapes = keras.tree.map_structure(lambda y: tuple(y.shape), model.outputs)
    assert [shape[-1] for shape in shapes] == [2, U, U, 2]
    got = model(X)
    assert_close("model", keras.tree.flatten(got), keras.tree.flatten(stack(X)))


@pytest.mark.parametrize("name", ["SimpleRNNCell", "GRUCell", "LSTMCell"])
def test_cells_of_keras(name):
    """Without dropout they run as they are, and agree with ours."""
    ours = kseq.layers.RNN(getattr(kseq.layers, name)(U), return_sequences=True)
    theirs = kseq.layers.RNN(getattr(keras.layers, name)(U), return_sequences=True)
    theirs.build((B, T, D))
    ours.build((B, T, D))
    theirs.set_weights(set_weights_by_seed(ours, 1))
    assert_close("outputs", theirs(X), ours(X))


class CountingCell(SumCell):
    """Assigns a weight in every step."""

    def build(self, shape):
        super().build(shape)
        self.steps = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, inputs, states):
        self.steps.assign(self.steps + 1)
        return super().call(inputs, states)


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_a_cell_that_assigns_a_weight_in_the_loop_is_refused(mode):
    layer = kseq.layers.RNN(CountingCell(U))
    layer.build((B, T, D))
    with pytest.raises(
        ValueError, match=r"must not assign a weight.*Keep what changes"
    ):
        gradients(layer, [X], layer.trainable_variables, mode=mode)
