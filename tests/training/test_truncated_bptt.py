"""Truncated backpropagation against a loop by hand, in float64."""

import keras
import numpy as np
import pytest
from helpers import assert_close, on_jax, on_tensorflow, to_numpy
from reference import cells
from reference.differences import numeric_gradients

import kseq
from kseq.training import truncated_bptt

N, B, T, D, U = 4, 2, 7, 3, 5
RATE = 0.5


def make_model(layer_class=kseq.layers.SimpleRNN, rate=RATE, **options):
    """A recurrent layer in a model in a model."""
    layer = layer_class(U, stateful=True, return_sequences=True)
    inner = keras.Sequential([keras.Input(batch_shape=(B, None, D)), layer])
    inputs = keras.Input(batch_shape=(B, None, D))
    model = keras.Model(inputs, inner(inputs))
    options = {"loss": "mse", "jit_compile": True, **options}
    model.compile(keras.optimizers.SGD(rate), **options)
    return model, layer


def make_data(rows=N, steps=T, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, steps, D)).astype("float32")
    y = rng.normal(size=(rows, steps, U)).astype("float32")
    return x, y, rng.uniform(size=(rows, steps)).astype("float32")


def run(weights, x, state):
    outputs, _, (last,) = cells.run(cells.simple_rnn_step, weights, x, [state])
    return outputs, last


def squared_error(outputs, y, sample_weight):
    return np.mean(sample_weight * np.mean((outputs - y) ** 2, axis=-1))


def token_crossentropy(logits, targets):
    log_p = logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
    losses = -np.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0]
    return np.sum(losses * (targets != 0)) / np.sum(targets != 0)


def pass_by_hand(weights, loss, windows, *data):
    """The weights after one pass of SGD, and the mean loss of its windows."""
    weights, losses = [np.array(w, "float64") for w in weights], []
    for rows in slice(0, B), slice(B, N):
        state = np.zeros((B, U))
        for steps in windows:
            x, *rest = (a[rows, steps] for a in data)

            def window_loss(*weights, x=x, rest=rest, state=state):
                outputs, _ = run(weights, x, state)
                return loss(outputs, *rest)

            losses.append(window_loss(*weights))
            found = numeric_gradients(window_loss, weights)
            _, state = run(weights, x, state)
            weights = [w - RATE * g for w, g in zip(weights, found)]
    return weights, np.mean(losses)


@pytest.mark.parametrize(
    "layer_class",
    [
        kseq.layers.SimpleRNN,
        pytest.param(keras.layers.SimpleRNN, marks=on_tensorflow),
    ],
    ids=["kseq", "keras"],
)
def test_a_pass_equals_the_loop_by_hand(layer_class):
    model, layer = make_model(layer_class)
    x, y, sample_weight = make_data()
    first = [to_numpy(w) for w in layer.trainable_weights]
    windows = [slice(0, 1), slice(1, 4), slice(4, 7)]  # the shorter one first
    want, loss = pass_by_hand(first, squared_error, windows, x, y, sample_weight)
    history = truncated_bptt(
        model, x, y, window=3, batch_size=B, sample_weight=sample_weight, verbose=0
    )
    assert_close("weights", layer.trainable_weights, want, gradient=True)
    assert_close("loss", history.history["loss"], [loss])


def test_a_loss_over_real_tokens():
    model, layer = make_model(loss=kseq.training.MaskedCrossentropy())
    x, _, _ = make_data(steps=6)
    targets = np.random.default_rng(1).integers(1, U, (N, 6))
    targets[0, 2:] = 0
    first = [to_numpy(w) for w in layer.trainable_weights]
    windows = [slice(0, 3), slice(3, 6)]
    want, loss = pass_by_hand(first, token_crossentropy, windows, x, targets)
    history = truncated_bptt(model, x, targets, window=3, batch_size=B, verbose=0)
    assert_close("weights", layer.trainable_weights, want, gradient=True)
    assert_close("loss", history.history["loss"], [loss])


def test_one_window_is_ordinary_training():
    x, y, _ = make_data()
    model, layer = make_model()
    inputs = keras.Input((T, D))
    plain_layer = kseq.layers.SimpleRNN(U, return_sequences=True)
    plain = keras.Model(inputs, plain_layer(inputs))
    plain.compile(keras.optimizers.SGD(RATE), "mse", jit_compile=True)
    plain.set_weights([to_numpy(w) for w in layer.trainable_weights])
    want = plain.fit(x, y, batch_size=B, epochs=2, shuffle=False, verbose=0)
    got = truncated_bptt(model, x, y, window=T, batch_size=B, epochs=2, verbose=0)
    assert_close("loss", got.history["loss"], want.history["loss"])
    assert_close("weights", layer.trainable_weights, plain.get_weights())


class Batches(keras.callbacks.Callback):
    """Counts the batches, and reads the state that each leaves behind."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.states = []

    def on_train_batch_end(self, batch, logs=None):
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()
        self.states.append(to_numpy(self.layer.states[0]))


def test_states_go_through_windows_and_start_anew_for_other_rows():
    """At rate 0 the windows together are one pass over whole rows that start at 0."""
    model, layer = make_model(rate=0.0)
    (x, y, _), (other_x, other_y, _) = make_data(steps=6), make_data(2 * B, 9, seed=1)
    weights = [to_numpy(w) for w in layer.trainable_weights]
    batches = Batches(layer)
    history = truncated_bptt(
        model, x, y, window=3, batch_size=B, epochs=2, verbose=0,
        validation_data=(other_x, other_y), callbacks=[batches],
    )  # fmt: skip
    outputs, _ = run(weights, x, np.zeros((N, U)))
    assert_close("loss", history.history["loss"], [squared_error(outputs, y, 1)] * 2)
    ends = [outputs[rows, t] for rows in (slice(B), slice(B, N)) for t in (2, 5)]
    assert_close("states", batches.states, ends * 2)
    outputs, _ = run(weights, other_x, np.zeros((2 * B, U)))
    want = squared_error(outputs, other_y, 1)
    assert_close("val_loss", history.history["val_loss"], [want] * 2)
    assert_close("at the end", layer.states, [np.zeros((B, U))])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 0}, r"`window` must be a positive integer\. Received: window=0"),
        ({"window": 2.5}, r"`window` must be a positive integer"),
        ({"batch_size": 0}, r"`batch_size` must be a positive integer"),
        ({"batch_size": 3}, r"`batch_size` must divide .*batch_size=3, N=4\."),
        ({"y": np.ones((N - 1, T, U))}, r"the same \(N, T\).*\(4, 7, 3\), \(3, 7, 5\)"),
        ({"y": np.ones((N, T - 1, U))}, r"the same \(N, T\).*\(4, 7, 3\), \(4, 6, 5\)"),
        ({"y": np.ones(N)}, r"the same \(N, T\)"),
        ({"x": np.ones(N), "y": np.ones(N)}, r"the same \(N, T\)"),
        ({"sample_weight": np.ones(N)}, r"the same \(N, T\).*\(4,\)\]"),
        ({"validation_data": np.ones((N, T, D))}, r"`validation_data` must be "),
        ({"validation_data": (np.ones((N, T)),)}, r"`validation_data` must be "),
        ({"validation_data": (np.ones((1, T)),) * 2}, r"`batch_size` must .*N=1\."),
    ],
)  # fmt: skip
def test_arguments_are_checked(options, message):
    model, _ = make_model()
    x, y, _ = make_data()
    arguments = {"x": x, "y": y, "window": 3, "batch_size": B, **options}
    with pytest.raises(ValueError, match=message):
        truncated_bptt(model, **arguments)


def fit_layer(layer):
    inputs = keras.Input(batch_shape=(B, None, D))
    model = keras.Model(inputs, layer(inputs), name="tiny")
    model.compile("sgd", "mse")
    x, y, _ = make_data()
    truncated_bptt(model, x, y, window=3, batch_size=B)


def test_a_model_without_states_is_refused():
    layer = kseq.layers.GRU(U, return_sequences=True)
    with pytest.raises(ValueError, match=r"with `stateful=True`.*model='tiny'\."):
        fit_layer(layer)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_layer_that_runs_backwards_is_refused(wrapped):
    layer = kseq.layers.GRU(
        U, stateful=True, return_sequences=True, go_backwards=not wrapped
    )
    if wrapped:
        layer = keras.layers.Bidirectional(layer)
    with pytest.raises(ValueError, match=r"must run forward.*go_backwards=True\."):
        fit_layer(layer)


@on_jax
def test_a_layer_that_forgets_its_states_is_refused():
    layer = keras.layers.GRU(U, stateful=True, return_sequences=True, name="gru")
    with pytest.raises(ValueError, match=r"On JAX .* forgets.*layer='gru'\. Take"):
        fit_layer(layer)


def test_several_steps_in_one_are_refused():
    model, _ = make_model(steps_per_execution=3)
    x, y, _ = make_data()
    with pytest.raises(ValueError, match=r"`steps_per_execution=1`.*execution=3\."):
        truncated_bptt(model, x, y, window=3, batch_size=B)


def test_lists_of_outputs():
    """Fit takes them, and TensorFlow's windows must be tuples."""
    layer = kseq.layers.SimpleRNN(U, stateful=True, return_sequences=True)
    inputs = keras.Input(batch_shape=(B, None, D))
    h = layer(inputs)
    model = keras.Model(inputs, [h, keras.layers.Dense(2)(h)])
    model.compile("sgd", loss=["mse", "mse"])
    x, y, _ = make_data()
    history = truncated_bptt(
        model, x, [y, y[..., :2]], window=4, batch_size=B, verbose=0
    )
    assert np.isfinite(history.history["loss"]).all()


def test_the_batch_is_that_of_the_layers():
    model, _ = make_model()
    x, y, _ = make_data()
    with pytest.raises(ValueError, match=r"`batch_size` must be.*=1, .*built_for=2"):
        truncated_bptt(model, x, y, window=3, batch_size=1)
