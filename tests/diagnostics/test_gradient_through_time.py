"""The gradient of each state, against the paper's formula and central differences."""

from functools import partial

import keras
import numpy as np
import pytest
from helpers import DTYPES, assert_close, on_tensorflow, set_weights_by_seed, to_numpy
from keras import ops
from reference import cell_variants, cells, linear_cells
from reference.differences import numeric_gradients

import kseq
from kseq.backend import compiled, gradient
from kseq.diagnostics import TimeGradientProbe, gradient_through_time
from kseq.layers.recurrent.state_tap import state_taps

B, T, D, U = 3, 4, 3, 2
MASK = np.array(
    [[True, True, True, True], [True, True, False, False], [False, True, False, True]]
)


@keras.saving.register_keras_serializable(package="kseq_tests")
class Weighted(keras.losses.Loss):
    """Sum of outputs, each times its target."""

    def __init__(self, **kwargs):
        super().__init__(reduction="sum", **kwargs)

    def call(self, y_true, y_pred):
        return ops.sum(y_true * y_pred, axis=-1)


def data(width, length=T, dtype="float32", seed=1):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(B, length, n)).astype(dtype) for n in (D, width)]


def make_model(layer, dtype="float32", masked=False):
    """`layer` over sequences, with weights by seed."""
    x = keras.Input((T, D), dtype=dtype)
    inputs = mask = None
    if masked:
        mask = keras.Input((T,), dtype="bool")
        inputs = [x, mask]
    model = keras.Model(inputs or x, layer(x, mask=mask), name="model")
    set_weights_by_seed(model, 0)
    model.compile(loss=Weighted(dtype=dtype))
    return model


def reference(step, weights, sizes, x, y, mask=None):
    """|dL/ds_t| of each state by differences, written as a loop.

    Keras takes the padded outputs out of the loss.
    """
    weights = [np.asarray(w, "float64") for w in weights]

    def loss(*added):
        total = 0.0
        for b in range(len(x)):
            states = [np.zeros(n) for n in sizes]
            for t in range(x.shape[1]):
                if mask is None or mask[b, t]:
                    output, new = step(weights, x[b, t].astype("float64"), states)
                    states = [s + a[b, t] for s, a in zip(new, added)]
                    total += np.sum(y[b, t] * (output + added[0][b, t]))
        return total

    zeros = [np.zeros((*x.shape[:2], n)) for n in sizes]
    found = numeric_gradients(loss, zeros)
    return [np.sqrt(np.sum(g**2, axis=(0, 2))) for g in found]


def linear(step):
    def listed(weights, x, states):
        h = step(weights, x, states[0])
        return h, [h]

    return listed


def around(cell, dtype="float32"):
    return kseq.layers.RNN(cell, return_sequences=True, dtype=dtype, name="layer")


def own(kind, *args, **options):
    return kind(*args, return_sequences=True, name="layer", **options)


LAYERS = {
    "SimpleRNN": (
        partial(own, kseq.layers.SimpleRNN, U), cells.simple_rnn_step, [U]
    ),
    "GRU": (partial(own, kseq.layers.GRU, U), cells.gru_step, [U]),
    "LSTM": (partial(own, kseq.layers.LSTM, U), cells.lstm_step, [U, U]),
    "LayerNormGRU": (
        partial(own, kseq.layers.LayerNormGRU, U),
        cell_variants.layer_norm_gru_step,
        [U],
    ),
    "LayerNormLSTM": (
        partial(own, kseq.layers.LayerNormLSTM, U),
        cell_variants.layer_norm_lstm_step,
        [U, U],
    ),
    "PeepholeLSTM": (
        partial(own, kseq.layers.PeepholeLSTM, U),
        cell_variants.peephole_lstm_step,
        [U, U],
    ),
    "ProjectedLSTM": (
        partial(own, kseq.layers.ProjectedLSTM, U, proj_units=3),
        cell_variants.projected_lstm_step,
        [3, U],
    ),
    "MinGRU": (
        partial(own, kseq.layers.MinGRU, U), linear(linear_cells.min_gru_step), [U]
    ),
    "RGLRU": (
        partial(own, kseq.layers.RGLRU, D, num_heads=1),
        linear(linear_cells.rglru_step),
        [D],
    ),
    "zoneout": (
        lambda **o: around(
            kseq.layers.ZoneoutCell(kseq.layers.LSTMCell(U, **o), [0.1, 0.2], **o), **o
        ),
        cell_variants.zoneout(cells.lstm_step, [0.1, 0.2]),
        [U, U],
    ),
    "residual": (
        lambda **o: around(
            kseq.layers.ResidualCell(kseq.layers.GRUCell(D, **o), **o), **o
        ),
        cell_variants.residual(cells.gru_step),
        [D],
    ),
    "a cell of Keras": (
        lambda **o: around(keras.layers.LSTMCell(U, **o), **o),
        cells.lstm_step,
        [U, U],
    ),
}  # fmt: skip
# to compile on JAX
SLOW = "LayerNormGRU", "LayerNormLSTM", "PeepholeLSTM", "ProjectedLSTM", "RGLRU"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("make", "step", "sizes"),
    [
        pytest.param(*case, id=name, marks=pytest.mark.slow if name in SLOW else ())
        for name, case in LAYERS.items()
    ],
)
def test_each_cell_against_differences(make, step, sizes, dtype):
    model = make_model(make(dtype=dtype), dtype)
    x, y = data(sizes[0], dtype=dtype)
    found = gradient_through_time(model, x, y)
    want = reference(step, model.get_weights(), sizes, x, y)
    # the differences themselves are right to 1e-8
    tolerance = "float32" if dtype == "float32" else "float64"
    for i, norms in enumerate(want):
        name = "layer" + (f"[{i}]" if i else "")
        got = found[name].norms
        if tolerance == "float64":
            np.testing.assert_allclose(got, norms, rtol=1e-7)
        else:
            assert_close(name, got, norms, gradient=True)
    assert len(found) == len(sizes)


@pytest.mark.parametrize("name", ["GRU", "LSTM"])
def test_a_masked_step_has_none(name):
    make, step, sizes = LAYERS[name]
    model = make_model(make(), masked=True)
    x, y = data(U)
    want = reference(step, model.get_weights(), sizes, x, y, MASK)
    found = gradient_through_time(model, [x, MASK], y)
    for got, norms in zip(found.values(), want, strict=True):
        assert_close("norms", got.norms, norms, gradient=True)


def test_formula_22():
    """Pascanu et al. (2013), equation 5, of h_t = tanh(.9 h_{t-1} + .5 x_t)."""
    layer = kseq.layers.SimpleRNN(1, use_bias=False, name="rnn")
    inputs = keras.Input((4, 1))
    model = keras.Model(inputs, layer(inputs))
    model.set_weights([np.array([[0.5]]), np.array([[0.9]])])
    model.compile(loss=Weighted())
    x = np.array([1, -1, 0.5, 2], "float32").reshape(1, 4, 1)
    found = gradient_through_time(model, x, np.ones((1, 1), "float32"))["rnn"]
    want = [0.2305724030, 0.2580075935, 0.2954926620, 1.0]
    assert_close("norms", found.norms, want)
    assert_close("bound", found.bound, [0.729, 0.81, 0.9, 1.0])


@pytest.mark.parametrize("go_backwards", [False, True])
@pytest.mark.parametrize("scale", [0.1, 2.0])
def test_no_norm_is_above_the_bound(scale, go_backwards):
    layer = kseq.layers.SimpleRNN(3, go_backwards=go_backwards, name="rnn")
    inputs = keras.Input((7, D))
    model = keras.Model(inputs, layer(inputs))
    set_weights_by_seed(model, 3, scale)
    model.compile(loss=Weighted())
    x, y = data(3, 7)
    norms, bound = gradient_through_time(model, x, y[:, 0])["rnn"]
    assert (norms <= bound * (1 + 1e-6)).all()
    last = 0 if go_backwards else -1
    assert_close("at the last step", norms[last], bound[last])


def test_a_masked_last_step_has_no_bound():
    inputs = keras.Input((5, D))
    x = kseq.layers.SimpleRNN(U)(keras.layers.Masking()(inputs))
    model = keras.Model(inputs, x)
    model.compile(loss=Weighted())
    x, y = data(U, 5)
    x[:, -1] = 0
    (found,) = gradient_through_time(model, x, y[:, 0]).values()
    assert found.norms[-1] == 0
    assert found.norms[0] > 0
    assert found.bound is None


def test_stacks_and_both_directions():
    cell = [kseq.layers.GRUCell(U, name=name) for name in ("low", "high")]
    layer = kseq.layers.RNN(cell, return_sequences=True, name="layer")
    model = make_model(layer)
    x, y = data(U)
    found = gradient_through_time(model, x, y)
    assert [name.rpartition("/")[2] for name in found] == ["low", "high"]

    weights = [np.asarray(w, "float64") for w in model.get_weights()]

    def loss(low, high):
        total = 0.0
        for b in range(B):
            h, g = np.zeros(U), np.zeros(U)
            for t in range(T):
                h = cells.gru_step(weights[:3], x[b, t], [h])[0] + low[b, t]
                g = cells.gru_step(weights[3:], h, [g])[0] + high[b, t]
                total += np.sum(y[b, t] * g)
        return total

    want = numeric_gradients(loss, [np.zeros((B, T, U))] * 2)
    for got, g in zip(found.values(), want, strict=True):
        norms = np.sqrt(np.sum(g**2, axis=(0, 2)))
        assert_close("norms", got.norms, norms, gradient=True)

    both = keras.layers.Bidirectional(
        kseq.layers.LSTM(U, return_sequences=True, name="lstm"),
        merge_mode="sum", name="both",
    )  # fmt: skip
    model = make_model(both)
    forward = model.get_weights()[:3]
    model.set_weights([*forward, *forward])
    found = gradient_through_time(model, x, y)
    assert list(found) == [
        f"both/{way}_lstm{state}" for way in ("forward", "backward")
        for state in ("", "[1]")
    ]  # fmt: skip
    turned = gradient_through_time(model, x[:, ::-1], y[:, ::-1])
    for state in ("", "[1]"):
        assert_close(
            "backward",
            found[f"both/backward_lstm{state}"].norms,
            turned[f"both/forward_lstm{state}"].norms[::-1],
        )


@on_tensorflow
def test_attention_in_each_step():
    """By differences in float64 of the model itself, with more added to the state."""
    cell = kseq.layers.AttentionCell(
        kseq.layers.GRUCell(U, dtype="float64"),
        kseq.layers.BahdanauAttention(3, dtype="float64"),
        dtype="float64",
    )
    layer = kseq.layers.AttentionRNN(cell, dtype="float64", name="decoder")
    x = keras.Input((T, D), dtype="float64")
    memory = keras.Input((5, 2), dtype="float64")
    model = keras.Model([x, memory], layer(x, memory))
    set_weights_by_seed(model, 0)
    model.compile(loss=Weighted(dtype="float64"))
    x, y = (a[:1] for a in data(U + 2, dtype="float64"))
    memory = np.random.default_rng(2).normal(size=(1, 5, 2))

    def loss(added):
        with state_taps({"decoder": added}):
            return float(np.sum(y * to_numpy(model([x, memory]))))

    (want,) = numeric_gradients(loss, [np.zeros((1, T, U))])
    found = gradient_through_time(model, [x, memory], y)
    norms = np.sqrt(np.sum(want**2, axis=(0, 2)))
    np.testing.assert_allclose(found["decoder"].norms, norms, rtol=1e-7)


@pytest.mark.parametrize("name", ["SimpleRNN", "LSTM"])
def test_compiled_by_xla(name):
    make, step, sizes = LAYERS[name]
    model = make_model(make())
    x, y = data(U)

    def loss(zeros, x, y):
        with state_taps(zeros):
            return ops.sum(model(x, training=False) * y)

    with state_taps() as zeros:
        model(x)
    found = compiled(gradient(loss), model.variables)(zeros, x, y)
    want = reference(step, model.get_weights(), sizes, x, y)
    for got, norms in zip(found.values(), want, strict=True):
        got = np.sqrt(np.sum(to_numpy(got) ** 2, axis=(0, 2)))
        assert_close("norms", got, norms, gradient=True)


def test_a_probe_follows_training_and_leaves_no_trace():
    layer = kseq.layers.LSTM(U, return_sequences=True, stateful=True, name="layer")
    inputs = keras.Input(batch_shape=(B, T, D))
    model = keras.Model(inputs, layer(inputs))
    model.compile("sgd", loss=Weighted())
    x, y = data(U)
    outputs = to_numpy(model(x))
    layer.reset_state()
    before = model.get_weights()
    probe = TimeGradientProbe(model, x, y)
    first = probe()["layer"].norms
    assert_close("state", model.get_weights(), before)
    np.testing.assert_array_equal(to_numpy(model(x)), outputs)
    layer.reset_state()
    assert "call" not in vars(layer.cell)
    model.set_weights([w + 0.3 for w in before])
    second = probe()["layer"].norms
    assert np.abs(first - second).max() > 1e-3
    assert_close("norms", second, gradient_through_time(model, x, y)["layer"].norms)


def test_what_has_no_such_gradient():
    model = keras.Sequential([keras.Input((T, D)), keras.layers.LSTM(U)])
    x, y = data(U)
    with pytest.raises(ValueError, match="must be compiled and built"):
        gradient_through_time(model, x, y[:, 0])
    model.compile(loss="mse")
    with pytest.raises(ValueError, match="must hold a recurrent layer of kseq"):
        gradient_through_time(model, x, y[:, 0])
