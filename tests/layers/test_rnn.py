"""RNN over the cells of kseq: the loop, its direction, states and errors."""

import keras
import numpy as np
import pytest
from helpers import DTYPES, assert_close, assert_same, set_weights_by_seed, to_numpy
from reference import cells

import kseq

STEPS = {
    kseq.layers.SimpleRNNCell: cells.simple_rnn_step,
    kseq.layers.GRUCell: cells.gru_step,
    kseq.layers.LSTMCell: cells.lstm_step,
}
B, T, D, U = 2, 5, 3, 4
kinds = pytest.mark.parametrize("cell_class", STEPS, ids=lambda c: c.__name__)


def make(cell_class, seed=0, dtype="float32", **options):
    layer = kseq.layers.RNN(cell_class(U, dtype=dtype), dtype=dtype, **options)
    layer.build((B, T, D))
    weights = set_weights_by_seed(layer, seed)
    return layer, weights


def data(cell_class, seed, dtype="float32"):
    rng = np.random.default_rng(seed)
    count = 2 if cell_class is kseq.layers.LSTMCell else 1
    x = rng.normal(size=(B, T, D)).astype(dtype)
    return x, [rng.normal(size=(B, U)).astype(dtype) for _ in range(count)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("go_backwards", [False, True], ids=["forward", "backward"])
@kinds
def test_reference(cell_class, go_backwards, dtype):
    layer, weights = make(
        cell_class, dtype=dtype, return_sequences=True, return_state=True,
        go_backwards=go_backwards,
    )  # fmt: skip
    x, states = data(cell_class, 1, dtype)
    want, _, last = cells.run(
        STEPS[cell_class], weights, x, states, go_backwards=go_backwards
    )
    outputs, *got = layer(x, initial_state=states)
    # backwards, the outputs come in running order
    assert_close("outputs", outputs, want[:, ::-1] if go_backwards else want, dtype)
    assert_close("states", got, last, dtype)


@kinds
def test_return_options(cell_class):
    layer, _ = make(cell_class, return_sequences=True, return_state=True)
    x, _ = data(cell_class, 2)
    outputs, *states = layer(x)
    for options, want in [
        ({}, outputs[:, -1]),
        ({"return_sequences": True}, outputs),
        ({"return_state": True}, (outputs[:, -1], *states)),
    ]:
        other, _ = make(cell_class, **options)
        assert_close(str(options), other(x), want)


def test_a_sequence_of_one_step_is_a_step_of_the_cell():
    layer, _ = make(kseq.layers.LSTMCell, return_state=True)
    x, states = data(kseq.layers.LSTMCell, 3)
    output, *last = layer(x[:, :1], initial_state=states)
    want, want_states = layer.cell(x[:, 0], states)
    assert_close("output", output, want)
    assert_close("states", last, want_states)


def test_initial_state_of_one_tensor_needs_no_list():
    layer, _ = make(kseq.layers.GRUCell)
    x, (h,) = data(kseq.layers.GRUCell, 4)
    assert_close("output", layer(x, initial_state=h), layer(x, initial_state=[h]))


def test_integer_states_are_cast():
    layer, _ = make(kseq.layers.GRUCell)
    x, _ = data(kseq.layers.GRUCell, 4)
    got = layer(x, initial_state=np.zeros((B, U), "int32"))
    assert_close("output", got, layer(x))


def test_kept_states_are_float32_under_mixed_precision():
    """As every variable; they are cast on their way into the loop."""
    layer, _ = make(kseq.layers.LSTMCell, dtype="mixed_bfloat16", stateful=True)
    layer.reset_state()
    x, _ = data(kseq.layers.LSTMCell, 4)
    weights = [to_numpy(w) for w in layer.cell.weights]
    want, *_ = cells.run(cells.lstm_step, weights, x, [np.zeros((B, U))] * 2)
    layer(x[:, :2])
    output = layer(x[:, 2:])
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    assert_close("output", output, want[:, -1], "bfloat16")
    assert all(state.dtype == "float32" for state in layer.states)


def test_stateful_goes_on_from_the_batch_before():
    layer, _ = make(
        kseq.layers.LSTMCell, stateful=True, return_sequences=True, return_state=True
    )
    weights = [to_numpy(w) for w in layer.cell.weights]
    layer.reset_state()  # the kept states are weights too
    x, states = data(kseq.layers.LSTMCell, 5)
    zeros = [np.zeros((B, U))] * 2
    want, _, last = cells.run(cells.lstm_step, weights, x, zeros)
    first, *_ = layer(x[:, :2])
    second, *kept = layer(x[:, 2:])
    assert_close("first", first, want[:, :2])
    assert_close("second", second, want[:, 2:])
    assert_close("states", kept, last)
    assert_close("kept", [to_numpy(v) for v in layer.states], last)
    layer.reset_state()
    assert_close("after reset", layer(x[:, :2])[0], want[:, :2])
    # a state that is given takes the place of the kept one
    given, *_ = layer(x, initial_state=states)
    want, _, _ = cells.run(cells.lstm_step, weights, x, states)
    assert_close("given", given, want)


def test_stateful_in_a_compiled_model():
    inputs = keras.Input(batch_shape=(B, 2, D))
    layer = kseq.layers.GRU(U, stateful=True, name="gru")
    model = keras.Model(inputs, layer(inputs))
    model.compile(jit_compile=True)
    x, _ = data(kseq.layers.GRUCell, 6)
    zeros = [np.zeros((B, U))]
    weights = [to_numpy(w) for w in layer.cell.weights]
    want, _, _ = cells.run(cells.gru_step, weights, x, zeros)
    first = model.predict(x[:, :2], batch_size=B, verbose=0)
    second = model.predict(x[:, 2:4], batch_size=B, verbose=0)
    assert_close("first", first, want[:, 1])
    assert_close("second", second, want[:, 3])


def test_a_stateful_layer_without_states_has_nothing_to_reset():
    layer, _ = make(kseq.layers.GRUCell)
    layer.reset_state()
    assert layer.states is None


@pytest.mark.parametrize(
    ("shape", "message"),
    [((B, D), r"\(B, T, D\)\. Received: shape=\(2, 3\)"), ((B, T, D, 1), "shape=")],
    ids=["rank-2", "rank-4"],
)
def test_rank(shape, message):
    with pytest.raises(ValueError, match=r"`sequences` must have shape.*" + message):
        kseq.layers.RNN(kseq.layers.GRUCell(U))(np.ones(shape, "float32"))


def test_stateful_needs_a_static_batch():
    layer = kseq.layers.GRU(U, stateful=True)
    with pytest.raises(ValueError, match=r"static batch size\..*batch_shape"):
        layer(keras.Input((T, D)))


@pytest.mark.parametrize(
    "widths", [(U, U, U), (U,), (U, U + 1)], ids=["three", "one", "wrong-width"]
)
def test_initial_states_are_checked(widths):
    layer, _ = make(kseq.layers.LSTMCell)
    x, _ = data(kseq.layers.LSTMCell, 7)
    states = [np.zeros((B, width), "float32") for width in widths]
    with pytest.raises(ValueError, match=r"`initial_state` must hold .*4\), .*4\)\]"):
        layer(x, initial_state=states)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_masks_of_numbers_are_refused(dtype):
    layer, _ = make(kseq.layers.GRUCell)
    x, _ = data(kseq.layers.GRUCell, 8)
    with pytest.raises(TypeError, match=rf"`mask` must be boolean.*dtype='{dtype}'"):
        layer(x, mask=np.ones((B, T), dtype))


@pytest.mark.parametrize("cell", [None, "gru", keras.layers.Dense(3)], ids=str)
def test_what_is_no_cell_is_refused(cell):
    with pytest.raises(
        TypeError, match=r"`cell` must be a Keras layer with a `state_s"
    ):
        kseq.layers.RNN(cell)


def test_an_empty_sequence_is_refused():
    layer, _ = make(kseq.layers.GRUCell)
    with pytest.raises(ValueError, match=r"`sequences` must have at least one step"):
        layer(np.zeros((B, 0, D), "float32"))


def test_an_initial_state_of_another_batch_is_named():
    layer, _ = make(kseq.layers.GRUCell)
    x, _ = data(kseq.layers.GRUCell, 7)
    with pytest.raises(ValueError, match=rf"`initial_state` must .*\({B}, {U}\)"):
        layer(x, initial_state=np.zeros((B + 1, U), "float32"))


def test_another_width_of_the_inputs_is_named():
    layer, _ = make(kseq.layers.GRUCell)
    x, _ = data(kseq.layers.GRUCell, 7)
    layer(x)
    with pytest.raises(ValueError, match=rf"expected axis -1 .* value {x.shape[-1]}"):
        layer(x[..., :-1])


def test_reset_state_before_the_first_call_does_nothing():
    kseq.layers.GRU(U, stateful=True).reset_state()


@pytest.mark.parametrize("option", ["unroll", "implementation", "use_cudnn"])
def test_options_of_the_loop_of_keras_are_named(option):
    with pytest.raises(TypeError, match=f"`{option}` says how Keras runs its loop"):
        kseq.layers.LSTM(U, **{option: True})


def test_a_mask_of_nested_lists_is_a_mask():
    layer, _ = make(kseq.layers.GRUCell)
    x, _ = data(kseq.layers.GRUCell, 7)
    mask = np.ones(x.shape[:2], bool)
    mask[0, 1] = False
    assert_same("outputs", layer(x, mask=mask.tolist()), layer(x, mask=mask))


def test_the_number_of_steps_stays_known_inside_a_program():
    """What flattens the outputs needs it."""
    inputs = keras.Input((T, D))
    outputs = kseq.layers.GRU(U, return_sequences=True)(inputs)
    model = keras.Model(inputs, keras.layers.Flatten()(outputs))
    model.compile("sgd", "mse", jit_compile=True)
    model.fit(np.ones((B, T, D)), np.ones((B, T * U)), verbose=0)
