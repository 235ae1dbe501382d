"""A sequence in pieces: steps, windows, packed rows, rows that start anew."""

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
from reference import cells
from reference.differences import numeric_gradients

import kseq
from kseq.ops import segment_starts

B, T, D, U = 3, 6, 5, 2
STEPS = {
    kseq.layers.SimpleRNN: cells.simple_rnn_step,
    kseq.layers.GRU: cells.gru_step,
    kseq.layers.LSTM: cells.lstm_step,
}
kinds = pytest.mark.parametrize("layer_class", STEPS, ids=lambda c: c.__name__)


def make(layer_class, seed=0, **options):
    layer = layer_class(U, return_sequences=True, return_state=True, **options)
    layer.build((B, T, D))
    return layer, set_weights_by_seed(layer, seed)


def inputs(seed=1, rows=B):
    return np.random.default_rng(seed).normal(size=(rows, T, D)).astype("float32")


def reference(layer_class, weights, x, **options):
    count = 2 if layer_class is kseq.layers.LSTM else 1
    zeros = [np.zeros((len(x), U))] * count
    outputs, _, last = cells.run(STEPS[layer_class], weights, x, zeros, **options)
    return [outputs, *last]


@kinds
def test_a_step_at_a_time_and_in_windows(layer_class):
    """The cell's own call is the step; states move on by hand, batches of any size."""
    layer, weights = make(layer_class)
    for rows in (B, 1):
        x = inputs(rows=rows)
        want = reference(layer_class, weights, x)
        states = layer.cell.get_initial_state(rows)
        outputs = []
        for t in range(T):
            y, states = layer.cell(x[:, t], states)
            outputs.append(to_numpy(y))
        assert_close("steps", [np.stack(outputs, 1), *states], want)
        first, *states = layer(x[:, :4])
        second, *states = layer(x[:, 4:], initial_state=states)
        outputs = np.concatenate([to_numpy(first), to_numpy(second)], axis=1)
        assert_close("windows", [outputs, *states], want)


@pytest.mark.parametrize("go_backwards", [False, True], ids=["forward", "backward"])
@kinds
def test_packed_rows_equal_the_segments_apart(layer_class, go_backwards):
    layer, weights = make(layer_class, go_backwards=go_backwards)
    x = inputs(rows=1)
    ids = np.array([[7, 7, 7, 2, 2, 5]])
    outputs, *_ = layer(x, reset_mask=segment_starts(ids, go_backwards))
    if go_backwards:
        outputs = to_numpy(outputs)[:, ::-1]
    for start, end in ((0, 3), (3, 5), (5, 6)):
        want, *_ = reference(
            layer_class, weights, x[:, start:end], go_backwards=go_backwards
        )
        assert_close(f"{start}:{end}", outputs[:, start:end], want)


def test_a_reset_in_a_stack_of_foreign_and_own_cells():
    """The general loop: every cell of the stack starts anew."""
    stack = keras.layers.StackedRNNCells(
        [keras.layers.LSTMCell(4), kseq.layers.GRUCell(U)]
    )
    layer = kseq.layers.RNN(stack, return_sequences=True)
    x = inputs()
    reset = np.zeros((B, T), bool)
    reset[:, 2] = True
    outputs = layer(x, reset_mask=reset)
    assert_close("after", outputs[:, 2:], layer(x[:, 2:]))
    assert_close("before", outputs[:, :2], layer(x[:, :2]))


def test_a_step_that_is_reset_does_not_see_the_past():
    layer, _ = make(kseq.layers.LSTM)
    reset = np.zeros((B, T), bool)
    reset[:, 3] = True
    x = inputs()
    got = layer(x, reset_mask=reset)
    x[:, :3] = np.nan
    states = [np.full((B, U), np.nan, "float32")] * 2
    changed, *last = layer(x, initial_state=states, reset_mask=reset)
    assert_same("outputs", changed[:, 3:], got[0][:, 3:])
    assert_same("states", last, list(got[1:]))


@kinds
def test_the_first_states_are_trained(layer_class):
    """With a reset too, where the loop goes a step at a time."""
    layer, weights = make(layer_class, trainable_initial_state=True)
    count = len(layer.state_size)
    assert [w.path.split("/")[-1] for w in layer.weights[:count]] == (
        ["initial_state"] * count
    )
    first, cell_weights = weights[:count], weights[count:]
    x = inputs()
    reset = np.zeros((B, T), bool)
    reset[0, 2] = True

    def reference(first, cut):
        rows = [np.tile(state, (B, 1)) for state in first]
        outputs, _, last = cells.run(STEPS[layer_class], cell_weights, x, rows)
        if cut:
            again, _, states = cells.run(
                STEPS[layer_class], cell_weights, x[:1, 2:], [s[:1] for s in rows]
            )
            outputs[:1, 2:] = again
            for state, value in zip(last, states, strict=True):
                state[:1] = value
        return [outputs, *last]

    def check(cut, **masks):
        outputs, _, found = gradients(
            lambda x: layer(x, **masks), [x], layer.initial_states, mode="compiled"
        )
        assert_close("outputs", outputs, reference(first, cut))
        wanted = numeric_gradients(lambda *f: loss(reference(f, cut)), first)
        assert_close("gradients", found, wanted, gradient=True)

    check(False)
    check(True, reset_mask=reset)


def loss(results):
    return sum((y * cotangent(y, i)).sum() for i, y in enumerate(results))


def test_the_trained_first_states_are_in_the_config_and_in_the_file(tmp_path):
    x = keras.Input((T, D))
    layer = kseq.layers.GRU(U, trainable_initial_state=True)
    model = keras.Model(x, layer(x))
    set_weights_by_seed(model, 0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.layers[1].trainable_initial_state
    assert_same("outputs", loaded(inputs()), model(inputs()))


def test_kept_states_are_not_trained_ones():
    with pytest.raises(ValueError, match="starts from the states that it kept"):
        kseq.layers.GRU(U, stateful=True, trainable_initial_state=True)


def test_rows_of_a_stateful_layer_are_reset():
    layer = kseq.layers.LSTM(U, stateful=True)
    x = inputs()
    first = to_numpy(layer(x))
    second = to_numpy(layer(x))
    layer.reset_state()
    layer(x)
    layer.reset_state(rows=[True, False, True])
    got = to_numpy(layer(x))
    assert_close("reset", got[[0, 2]], first[[0, 2]])
    assert_close("kept", got[1], second[1])
    layer.reset_state()
    assert_close("all", layer(x), first)


def test_rows_must_fit_the_batch():
    layer = kseq.layers.LSTM(U, stateful=True)
    layer(inputs())
    with pytest.raises(ValueError, match=r"`rows` must be boolean, of shape \(3,\)"):
        layer.reset_state(rows=[0, 2])


def test_another_batch_is_no_continuation():
    layer = kseq.layers.LSTM(U, stateful=True)
    layer(inputs())
    with pytest.raises(ValueError, match=r"built for.*built_for=3.*received=1"):
        layer(inputs(rows=1))


def test_a_reset_mask_must_be_boolean_and_fit():
    layer, _ = make(kseq.layers.GRU)
    with pytest.raises(TypeError, match="`reset_mask` must be boolean"):
        layer(inputs(), reset_mask=np.ones((B, T), "float32"))
    with pytest.raises(ValueError, match="`reset_mask` must have the first two sizes"):
        layer(inputs(), reset_mask=np.ones((B, T + 1), bool))


class Doubled(kseq.layers.LSTMCell):
    """A cell of a user that changes a step: the output counts twice."""

    def step(self, projected, states, recurrent_mask):
        h, c = super().step(projected, states, recurrent_mask)
        return [2 * h, c]


class Shifted(kseq.layers.GRUCell):
    """A cell of a user that changes the projection."""

    def project(self, inputs, training=False):
        return super().project(inputs, training) + 0.5


class Called(kseq.layers.LSTMCell):
    """A cell of a user that changes its call."""

    def call(self, inputs, states, training=False):
        output, (h, c) = super().call(inputs, states, training=training)
        return output + 1, [h, 2 * c]


class Slower(kseq.layers.MinGRUCell):
    """A cell of a user that changes a step of what runs in parallel."""

    def step(self, projected, states, recurrent_mask):
        (h,) = super().step(projected, states, recurrent_mask)
        return [(h + states[0]) / 2]


@pytest.mark.parametrize("cell_class", [Doubled, Shifted, Called, Slower])
def test_a_subclass_that_changes_a_step_is_heard(cell_class):
    layer = kseq.layers.RNN(cell_class(U), return_sequences=True)
    x = inputs()
    outputs = to_numpy(layer(x))
    states = layer.cell.get_initial_state(B)
    for t in range(T):
        y, states = layer.cell(x[:, t], states)
        assert_close(f"step {t}", outputs[:, t], y)


@pytest.mark.parametrize(
    "options",
    [{"activation": "relu"}, {"recurrent_activation": "hard_sigmoid"}],
    ids=lambda o: next(iter(o)),
)
def test_other_activations(options):
    """Against Keras, through `set_weights`."""
    ours = kseq.layers.GRU(U, return_sequences=True, **options)
    twin = keras.layers.GRU(U, return_sequences=True, **options)
    x = inputs()
    ours.build(x.shape), twin.build(x.shape)
    twin.set_weights(set_weights_by_seed(ours, 0))
    assert_close("outputs", ours(x), twin(x))
