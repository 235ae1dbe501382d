"""ResidualCell: inputs plus outputs, alone, in deep stacks and over time."""

import keras
import numpy as np
import pytest
from helpers import assert_close, cotangent, gradients, set_weights_by_seed, to_numpy
from layers.sum_cell import SumCell, sum_step
from reference import cells
from reference.cell_variants import residual
from reference.differences import numeric_gradients

import kseq
from kseq.layers import ResidualCell

B, T, U = 4, 3, 2
MASK = np.array(
    [[True, True, True], [True, False, True], [False, True, False], [False] * 3]
)
X = np.random.default_rng(0).normal(size=(B, T, U)).astype("float32")


def test_outputs_states_and_gradients():
    """By central differences, compiled, under left, right and interior padding."""
    layer = kseq.layers.RNN(
        ResidualCell(kseq.layers.GRUCell(U)), return_sequences=True, return_state=True
    )
    layer.build((B, T, U))
    weights = set_weights_by_seed(layer, 0)
    h = np.random.default_rng(1).normal(size=(B, U)).astype("float32")

    def reference(x, h, *weights):
        step = residual(cells.gru_step)
        outputs, _, last = cells.run(step, weights, x, [h], MASK)
        return [outputs, *last]

    def loss(*args):
        return sum((y * cotangent(y, i)).sum() for i, y in enumerate(reference(*args)))

    want = numeric_gradients(loss, [X, h, *weights])
    outputs, d_inputs, d_weights = gradients(
        lambda x, h: layer(x, initial_state=[h], mask=MASK),
        [X, h], layer.trainable_variables, mode="compiled",
    )  # fmt: skip
    assert_close("outputs", outputs, reference(X, h, *weights))
    assert_close("gradients", d_inputs + d_weights, want, gradient=True)


def test_a_deep_stack():
    """As in the paper: all layers but the first add their inputs."""
    stack = [kseq.layers.LSTMCell(5)]
    stack += [ResidualCell(kseq.layers.LSTMCell(5)) for _ in range(2)]
    layer = kseq.layers.RNN(stack, return_sequences=True, return_state=True)
    layer.build((B, T, U))
    weights = set_weights_by_seed(layer, 0)
    outputs, *states = layer(X)
    want, want_states = X, []
    for index in range(3):
        step = residual(cells.lstm_step) if index else cells.lstm_step
        part = weights[3 * index : 3 * index + 3]
        want, _, last = cells.run(step, part, want, [np.zeros((B, 5))] * 2)
        want_states.append(last)
    assert_close("outputs", outputs, want)
    assert_close("states", states, want_states)


def test_stepping_equals_the_layer():
    cell = ResidualCell(kseq.layers.LSTMCell(U))
    outputs, *last = kseq.layers.RNN(cell, return_sequences=True, return_state=True)(X)
    states = cell.get_initial_state(B)
    for t in range(T):
        output, states = cell(X[:, t], states)
        assert_close(f"output {t}", output, outputs[:, t])
    assert_close("states", states, last)


def test_other_cells():
    """A user's, Keras's, and a stack, which is bridged as a whole."""
    layer = kseq.layers.RNN(ResidualCell(SumCell(U)), return_sequences=True)
    outputs = layer(X, training=True)
    weights = [to_numpy(layer.cell.cell.kernel)]
    want, _, _ = cells.run(residual(sum_step), weights, X, [np.zeros((B, U))])
    assert_close("user's", outputs, want)
    for inner in (
        keras.layers.LSTMCell(U),
        [kseq.layers.GRUCell(3), kseq.layers.ProjectedLSTMCell(3, U)],
    ):
        cell = ResidualCell(inner)
        assert cell.output_size == U
        states = cell.get_initial_state(B)
        plain, want = cell.cell(X[:, 0], states)
        output, states = cell(X[:, 0], states)
        assert_close("output", output, X[:, 0] + to_numpy(plain))
        assert_close("states", *map(keras.tree.flatten, (states, want)))


def test_dropout_inside_lasts_the_sequence():
    inner = kseq.layers.SimpleRNNCell(
        U, activation="linear", kernel_initializer="identity",
        recurrent_initializer="zeros", dropout=0.5, seed=1,
    )  # fmt: skip
    layer = kseq.layers.RNN(ResidualCell(inner), return_sequences=True)
    y = to_numpy(layer(np.ones((B, T, U), "float32"), training=True))
    assert set(np.unique(y)) == {1.0, 3.0}
    assert_close("steps", y, np.repeat(y[:, :1], T, axis=1))


def test_beside_attention():
    """The cell's inputs are the word and the context."""
    cell = ResidualCell(kseq.layers.GRUCell(U + 1))
    attention = kseq.layers.BahdanauAttention(2)
    layer = kseq.layers.AttentionRNN(kseq.layers.AttentionCell(cell, attention))
    memory = np.ones((B, 5, 1), "float32")
    outputs = to_numpy(layer(X, memory))
    assert outputs.shape == (B, T, U + 2)
    h, _ = cell.cell(np.pad(X[:, 0], ((0, 0), (0, 1)), constant_values=1),
                     cell.get_initial_state(B))  # fmt: skip
    want = to_numpy(h) + np.pad(X[:, 0], ((0, 0), (0, 1)), constant_values=1)
    assert_close("first", outputs[:, 0, : U + 1], want)


def test_a_saved_stack(tmp_path):
    stack = [kseq.layers.LSTMCell(5), ResidualCell(kseq.layers.LSTMCell(5))]
    inputs = keras.Input((None, U))
    model = keras.Model(inputs, kseq.layers.RNN(stack)(inputs))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert_close("outputs", again(X), model(X))
    assert [w.path for w in again.weights] == [w.path for w in model.weights]


def test_the_widths_must_agree():
    layer = kseq.layers.RNN(ResidualCell(kseq.layers.LSTMCell(5)))
    with pytest.raises(
        ValueError, match=r"as wide as its outputs\. .*2\), output_size=5\. Leave the"
    ):
        layer(X)
    with pytest.raises(ValueError, match=r"last axis .* must be known"):
        ResidualCell(kseq.layers.LSTMCell(5)).build((2, None))
