"""ZoneoutCell: what is kept, how often, and that every step draws anew."""

import keras
import numpy as np
import pytest
from helpers import (
    assert_close,
    assert_same,
    cotangent,
    gradients,
    set_weights_by_seed,
    to_numpy,
)
from layers.sum_cell import SumCell, sum_step
from reference import cells
from reference.cell_variants import zoneout
from reference.differences import numeric_gradients

import kseq
from kseq.layers import ZoneoutCell

B, T, D = 3, 8, 4


@keras.saving.register_keras_serializable(package="kseq_tests")
class EchoCell(keras.layers.Layer):
    """Both new states are the inputs, so that zoneout alone is seen."""

    state_size = (D, D)

    def call(self, inputs, states):
        return inputs, (inputs, inputs + 0)


def counting(rows=B):
    """x_t = t + 1 in every unit."""
    steps = np.arange(1, T + 1, dtype="float32")
    return np.broadcast_to(steps[None, :, None], (rows, T, D)).copy()


def drop_half():
    """h_t = x_t * mask, whose mask is 0 or 2 for a whole sequence."""
    return kseq.layers.SimpleRNNCell(
        D, activation="linear", kernel_initializer="identity",
        recurrent_initializer="zeros", dropout=0.5, seed=1,
    )  # fmt: skip


def test_a_step_worked_in_float64():
    """p_h = .1, p_c = .2 on the LSTM with W[k] = sin(k + 1), U[k] = cos(k)."""
    cell = ZoneoutCell(kseq.layers.LSTMCell(2), [0.1, 0.2])
    cell.build((1, 2))
    k = np.arange(16)
    kernel = np.round(np.sin(k + 1), 3).reshape(2, 8)
    recurrent = np.round(np.cos(k), 3).reshape(2, 8)
    cell.set_weights([kernel, recurrent, np.array([0, 0, 1, 1, 0, 0, 0, 0])])
    states = [np.array([[0.2, -0.1]]), np.array([[0.3, 0.4]])]
    output, (h, c) = cell(np.array([[1.0, -0.5]]), states)
    assert_close("output", output, [[-0.17731687, -0.22074929]])
    assert_close("h", h, [[-0.17731687, -0.22074929]])
    assert_close("c", c, [[-0.23313449, -0.16259572]])


MASK = np.array(
    [[True, True, True], [True, False, True], [False, True, False], [False] * 3]
)


def test_outputs_states_and_gradients_at_inference():
    """By central differences, compiled, under left, right and interior padding."""
    layer = kseq.layers.RNN(
        ZoneoutCell(kseq.layers.LSTMCell(2), [0.1, 0.3]),
        return_sequences=True, return_state=True,
    )  # fmt: skip
    layer.build((4, 3, 3))
    weights = set_weights_by_seed(layer, 0)
    rng = np.random.default_rng(1)
    x, h, c = (
        rng.normal(size=s).astype("float32") for s in ((4, 3, 3), (4, 2), (4, 2))
    )
    step = zoneout(cells.lstm_step, [0.1, 0.3])

    def reference(x, h, c, *weights):
        outputs, _, last = cells.run(step, weights, x, [h, c], MASK)
        return [outputs, *last]

    def loss(*args):
        return sum((y * cotangent(y, i)).sum() for i, y in enumerate(reference(*args)))

    want = numeric_gradients(loss, [x, h, c, *weights])
    outputs, d_inputs, d_weights = gradients(
        lambda x, *states: layer(x, initial_state=list(states), mask=MASK),
        [x, h, c], layer.trainable_variables, mode="compiled",
    )  # fmt: skip
    assert_close("outputs", outputs, reference(x, h, c, *weights))
    assert_close("gradients", d_inputs + d_weights, want, gradient=True)


def test_stepping_equals_the_layer():
    cell = ZoneoutCell(kseq.layers.GRUCell(D), 0.3)
    layer = kseq.layers.RNN(cell, return_sequences=True, return_state=True)
    x = np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")
    outputs, last = layer(x)
    states = cell.get_initial_state(B)
    for t in range(T):
        output, states = cell(x[:, t], states)
        assert_close(f"output {t}", output, outputs[:, t])
    assert_close("states", states, [last])


def test_training_keeps_a_share_of_the_units():
    """Each is its old value or its new one; each state has its own mask and rate."""
    cell = ZoneoutCell(EchoCell(), [0.25, 0.6], seed=1)
    old = [np.full((2000, D), value, "float32") for value in (-1, -2)]
    output, states = cell(np.ones((2000, D)), old, training=True)
    assert isinstance(states, list)
    h, c = map(to_numpy, states)
    assert set(np.unique(h)) == {-1.0, 1.0}
    assert set(np.unique(c)) == {-2.0, 1.0}
    kept = [(h < 0).mean(axis=0), (c < 0).mean(axis=0)]
    # six standard deviations of a mean of 2000
    assert np.abs(kept[0] - 0.25).max() < 0.06
    assert np.abs(kept[1] - 0.6).max() < 0.07
    assert ((h < 0) & (c > 0)).any()
    assert (h[0] != h).any()  # rows differ
    assert_same("output", output, h)


def test_a_rate_of_zero_leaves_a_state_alone():
    cell = ZoneoutCell(EchoCell(), [0.0, 0.5], seed=1)
    old = [np.zeros((50, D), "float32")] * 2
    for training in (True, False):
        output, (h, c) = cell(np.ones((50, D)), old, training=training)
        assert_same("h", h, np.ones((50, D), "float32"))
        assert_same("output", output, h)
        assert (to_numpy(c) < 1).any()


def test_every_step_draws_anew():
    layer = kseq.layers.RNN(ZoneoutCell(EchoCell(), 0.5, seed=1), return_sequences=True)
    first, second = (to_numpy(layer(counting(), training=True)) for _ in range(2))
    kept = first == np.concatenate([np.zeros((B, 1, D)), first[:, :-1]], axis=1)
    assert (kept | (first == counting())).all()
    assert all((kept[:, t] != kept[:, t - 1]).any() for t in range(1, T))
    assert (first != second).any()
    again = kseq.layers.RNN(ZoneoutCell(EchoCell(), 0.5, seed=1), return_sequences=True)
    assert_same("again", again(counting(), training=True), first)


ROWS = 17  # so many that no two steps draw the same by chance


def in_an_rnn(cell):
    layer = kseq.layers.RNN(cell, return_sequences=True)
    return lambda x: layer(x, training=True)


def in_a_stack(cell):
    return in_an_rnn([EchoCell(), cell])


def in_a_residual_cell(cell):
    run = in_an_rnn(kseq.layers.ResidualCell(cell))
    return lambda x: run(x) - x


def beside_attention(cell):
    attention = kseq.layers.BahdanauAttention(2)
    layer = kseq.layers.AttentionRNN(kseq.layers.AttentionCell(cell, attention))
    memory = np.zeros((ROWS, 2, 1), "float32")
    return lambda x: layer(x, memory, training=True)[..., :D]


@pytest.mark.parametrize(
    "place", [in_an_rnn, in_a_stack, in_a_residual_cell, beside_attention]
)
def test_a_dropout_mask_inside_lasts_the_sequence(place):
    """A unit is 0 throughout, or x_t * 2 or its old value at every step."""
    run = place(ZoneoutCell(drop_half(), 0.4, seed=2))
    x = counting(ROWS)
    first, second = (to_numpy(run(x)) for _ in range(2))
    for y in (first, second):
        dropped = (y == 0).all(axis=1, keepdims=True)
        assert 0.3 < dropped.mean() < 0.7
        kept = y == np.concatenate([np.zeros((ROWS, 1, D)), y[:, :-1]], axis=1)
        assert (dropped | kept | (y == 2 * x)).all()
        kept &= ~dropped
        assert all((kept[:, t] != kept[:, t - 1]).any() for t in range(1, T))
    assert (first != second).any()


def test_masks_are_the_same_in_the_gradient():
    """y is linear in x, so that x . dL/dx is L: also where the loop runs twice."""
    layer = kseq.layers.RNN(
        ZoneoutCell(drop_half(), 0.4, seed=2), return_sequences=True
    )
    layer.build((B, T, D))
    y, (dx,), _ = gradients(
        lambda x: layer(x, training=True), [counting()], [], mode="compiled",
        state=layer.variables,
    )  # fmt: skip
    assert_close("L", (dx * counting()).sum(), (y * cotangent(y, 0)).sum())
    assert 0 < (dx != 0).mean() < 0.6


def test_one_rate_is_that_of_all_states():
    cell = ZoneoutCell(kseq.layers.LSTMCell(D), 0.3)
    assert cell.zoneout == [0.3, 0.3]
    assert (cell.state_size, cell.output_size) == ([D, D], D)
    stack = ZoneoutCell([kseq.layers.LSTMCell(D), kseq.layers.GRUCell(2)], 0.3)
    assert stack.zoneout == [0.3] * 3
    assert stack.output_size == 2


def test_around_a_stack():
    """The states of all its cells, and the output, which is the last cell's."""
    stack = [kseq.layers.LSTMCell(D), kseq.layers.GRUCell(2)]
    cell = ZoneoutCell(stack, [0.0, 0.5, 0.25])
    x = np.random.default_rng(0).normal(size=(B, D)).astype("float32")
    states = cell.get_initial_state(B)
    states = keras.tree.map_structure(lambda s: s + 0.5, states)
    output, new = cell(x, states)
    _, plain = cell.cell(x, states)
    keras.tree.assert_same_structure(new, plain)
    flat = zip(cell.zoneout, *map(keras.tree.flatten, (states, plain)))
    want = [to_numpy(p * old + (1 - p) * state) for p, old, state in flat]
    assert_close("states", keras.tree.flatten(new), want)
    assert_close("output", output, want[2])


@keras.saving.register_keras_serializable(package="kseq_tests")
class ReadOutCell(SumCell):
    """A cell whose output is no state."""

    def call(self, inputs, states):
        h, new = super().call(inputs, states)
        return 10 * h, new


def test_an_output_that_is_no_state_is_left_alone():
    x, h = np.ones((B, D), "float32"), np.full((B, 2), 4.0, "float32")
    cell = ZoneoutCell(ReadOutCell(2), 0.5)
    output, (state,) = cell(x, [h])
    plain_output, (plain,) = cell.cell(x, [h])
    assert_close("output", output, plain_output)
    assert_close("state", state, 0.5 * h + 0.5 * to_numpy(plain))


def test_a_users_cell_that_knows_no_training():
    layer = kseq.layers.RNN(ZoneoutCell(SumCell(2), 0.3), return_sequences=True)
    outputs = layer(counting())
    weights = [to_numpy(layer.cell.cell.kernel)]
    step = zoneout(sum_step, [0.3])
    want, _, _ = cells.run(step, weights, counting(), [np.zeros((B, 2))])
    assert_close("outputs", outputs, want)
    assert tuple(layer(counting(), training=True).shape) == (B, T, 2)


def test_a_cell_of_keras():
    ours, theirs = (
        kseq.layers.RNN(ZoneoutCell(cell, [0.1, 0.3]), return_sequences=True)
        for cell in (kseq.layers.LSTMCell(2), keras.layers.LSTMCell(2))
    )
    ours.build((B, T, D))
    theirs.build((B, T, D))
    theirs.set_weights(set_weights_by_seed(ours, 0))
    assert_close("outputs", theirs(counting()), ours(counting()))


def test_mixed_precision():
    cell = ZoneoutCell(
        kseq.layers.LSTMCell(2, dtype="mixed_float16"), 0.3, dtype="mixed_float16"
    )
    layer = kseq.layers.RNN(cell, return_sequences=True, dtype="mixed_float16")
    layer.build((B, T, D))
    weights = set_weights_by_seed(layer, 0)
    x = np.random.default_rng(1).normal(size=(B, T, D)).astype("float32")
    step = zoneout(cells.lstm_step, [0.3, 0.3])
    want, _, _ = cells.run(step, weights, x, [np.zeros((B, 2))] * 2)
    y = layer(x)
    assert keras.backend.standardize_dtype(y.dtype) == "float16"
    assert_close("outputs", y, want, "float16")
    y = layer(x, training=True)
    assert keras.backend.standardize_dtype(y.dtype) == "float16"


def test_a_saved_model_has_the_rates(tmp_path):
    cell = ZoneoutCell(kseq.layers.LSTMCell(2, dropout=0.1), [0.1, 0.3], seed=5)
    layer = kseq.layers.RNN([cell, kseq.layers.GRUCell(3)])
    inputs = keras.Input((None, D))
    model = keras.Model(inputs, layer(inputs))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert_same("outputs", again(counting()), model(counting()))
    assert [w.path for w in again.weights] == [w.path for w in model.weights]
    inner = again.layers[1].cell.cells[0]
    assert (inner.zoneout, inner.seed) == ([0.1, 0.3], 5)


@pytest.mark.parametrize(
    "rates", [1.0, -0.1, "0.1", None, [0.1], [0.1, 0.2, 0.3], [0.1, 1.0], [0.1, None]]
)
def test_rates_must_be_probabilities_one_for_each_state(rates):
    with pytest.raises(
        ValueError, match=r"`zoneout` must be a probability in \[0, 1\).*list of 2 "
    ):
        ZoneoutCell(kseq.layers.LSTMCell(2), rates)


def test_only_a_cell_can_be_wrapped():
    with pytest.raises(TypeError, match="`cell` must be a Keras layer with a `state"):
        ZoneoutCell(keras.layers.Dense(2), 0.1)
    with pytest.raises(ValueError, match="must not be a cell of Keras with dropout"):
        ZoneoutCell(keras.layers.LSTMCell(2, dropout=0.1), 0.1)
    with pytest.raises(ValueError, match="must not be a cell of Keras with dropout"):
        kseq.layers.RNN([ZoneoutCell([keras.layers.GRUCell(2, dropout=0.1)], 0.1)])
