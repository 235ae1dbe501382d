"""What the variants of LSTM and GRU share: the equations, alone and over time."""

import keras
import numpy as np
import pytest
from helpers import (
    DTYPES,
    assert_close,
    cotangent,
    gradients,
    set_weights_by_seed,
    to_numpy,
)
from reference import cell_variants, cells
from reference.differences import numeric_gradients

import kseq

B, T, D, U, R = 5, 4, 3, 2, 3
MASK = np.array(
    [
        [True, True, True, True],
        [True, True, False, False],  # right
        [False, False, True, True],  # left
        [True, False, True, True],  # interior
        [False, False, False, False],
    ]
)
# the name, the reference, the widths of the states, the arguments
VARIANTS = {
    "LayerNormLSTM": (cell_variants.layer_norm_lstm_step, [U, U], {}),
    "LayerNormGRU": (cell_variants.layer_norm_gru_step, [U], {}),
    "PeepholeLSTM": (cell_variants.peephole_lstm_step, [U, U], {}),
    "ProjectedLSTM": (
        cell_variants.projected_lstm_step, [R, U], {"proj_units": R}
    ),
}  # fmt: skip
variants = pytest.mark.parametrize("name", VARIANTS)


def make_cell(name, seed=0, **options):
    cell = getattr(kseq.layers, name + "Cell")(U, **VARIANTS[name][2], **options)
    cell.build((B, D))
    return cell, set_weights_by_seed(cell, seed)


def make_layer(name, seed=0, **options):
    layer = getattr(kseq.layers, name)(
        U, return_sequences=True, return_state=True, **VARIANTS[name][2], **options
    )
    layer.build((B, T, D))
    return layer, set_weights_by_seed(layer, seed)


def data(name, seed=1, dtype="float32"):
    """Inputs `(B, T, D)` and first states."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(B, T, D)).astype(dtype)
    return x, [rng.normal(size=(B, n)).astype(dtype) for n in VARIANTS[name][1]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", [0, 1, 2])
@variants
def test_reference(name, seed, dtype):
    cell, weights = make_cell(name, seed, dtype=dtype)
    x, states = data(name, seed, dtype)
    step = VARIANTS[name][0]
    _, want, last = cells.run(step, weights, x[:, :1], states)
    output, new = cell(x[:, 0], states)
    assert_close("output", output, want, dtype)
    assert_close("states", new, last, dtype)


@variants
def test_outputs_states_and_gradients(name):
    """Of inputs, first states and weights, by central differences, compiled."""
    layer, weights = make_layer(name)
    step = VARIANTS[name][0]
    x, states = data(name)

    def reference(x, *rest):
        outputs, _, last = cells.run(
            step, rest[len(states) :], x, rest[: len(states)], MASK
        )
        return [outputs, *last]

    def loss(*args):
        return sum((y * cotangent(y, i)).sum() for i, y in enumerate(reference(*args)))

    want = numeric_gradients(loss, [x, *states, *weights])
    outputs, d_inputs, d_weights = gradients(
        lambda x, *states: layer(x, initial_state=list(states), mask=MASK),
        [x, *states], layer.trainable_variables, mode="compiled",
    )  # fmt: skip
    assert_close("outputs", outputs, reference(x, *states, *weights))
    assert_close("gradients", d_inputs + d_weights, want, gradient=True)


@variants
def test_backwards(name):
    layer, weights = make_layer(name, go_backwards=True)
    x, states = data(name)
    step = VARIANTS[name][0]
    want, _, last = cells.run(step, weights, x, states, MASK, go_backwards=True)
    outputs, *new = layer(x, initial_state=states, mask=MASK)
    assert_close("outputs", outputs, want[:, ::-1])
    assert_close("states", new, last)


@variants
def test_stepping_equals_the_layer(name):
    layer, _ = make_layer(name)
    x, _ = data(name)
    outputs, *last = layer(x)
    states = layer.cell.get_initial_state(B)
    for t in range(T):
        output, states = layer.cell(x[:, t], states)
        assert_close(f"output {t}", output, outputs[:, t])
    assert_close("states", states, last)


@variants
def test_the_layer_is_the_cell_in_an_rnn(name):
    """Every argument of the cell reaches it, and every one of the layer the layer."""
    own = VARIANTS[name][2]
    options = {
        "activation": "relu", "use_bias": False, "dropout": 0.1, "seed": 2,
        "recurrent_dropout": 0.3, "kernel_regularizer": keras.regularizers.L2(0.1),
        "recurrent_activation": "hard_sigmoid", **own,
    }  # fmt: skip
    runs = {
        "return_sequences": True, "return_state": True, "go_backwards": True,
        "zero_output_for_mask": True, "stateful": True, "name": "rnn",
        "trainable": False,
    }  # fmt: skip
    layer = getattr(kseq.layers, name)(U, **options, **runs)
    want = getattr(kseq.layers, name + "Cell")(U, **options, name=layer.cell.name)
    assert layer.cell.get_config() == want.get_config()
    config = layer.get_config()
    assert all(config[key] == value for key, value in runs.items())
    assert layer.units == U
    assert layer.state_size == VARIANTS[name][1]
    assert layer.output_size == VARIANTS[name][1][0]
    again = type(layer).from_config(config)
    assert again.get_config() == config
    layer.build((B, T, D))
    outputs = layer(data(name)[0], training=True)
    shapes = [tuple(y.shape) for y in outputs]
    assert shapes == [(B, T, layer.output_size)] + [(B, n) for n in layer.state_size]


@variants
def test_without_a_bias(name):
    """As with a bias of zeros; no other weight goes."""
    plain, _ = make_cell(name, use_bias=False)
    zeroed, weights = make_cell(name)
    weights[2] = np.zeros_like(weights[2])
    zeroed.set_weights(weights)
    plain.set_weights(weights[:2] + weights[3:])
    x, states = data(name)
    assert_close("states", plain(x[:, 0], states)[1], zeroed(x[:, 0], states)[1])


@variants
def test_activations(name):
    """With linear ones for both, all that was bounded is not."""
    cell, _ = make_cell(name, activation="linear", recurrent_activation="linear")
    x, states = data(name)
    want, _ = make_cell(name)
    got, want = (c(50 * x[:, 0], states)[0] for c in (cell, want))
    assert np.abs(to_numpy(got)).max() > 2 * np.abs(to_numpy(want)).max()


@variants
def test_the_forget_gate_starts_open(name):
    options = VARIANTS[name][2]
    cell = getattr(kseq.layers, name + "Cell")(U, **options)
    cell.build((B, D))
    want = np.zeros(cell.bias.shape)
    if name != "LayerNormGRU":
        want[U : 2 * U] = 1
    assert_close("bias", cell.bias, want)


@variants
def test_recurrent_dropout_is_one_mask_on_h(name):
    """h = 0 or twice its value: the step that the mask of the seed says."""
    cell, _ = make_cell(name, recurrent_dropout=0.5, seed=3)
    x, states = data(name)
    mask = to_numpy(cell.recurrent_mask(B, training=True))
    assert mask.shape == (B, VARIANTS[name][1][0])
    assert set(np.unique(mask)) == {0.0, 2.0}
    projected = cell.project(x[:, 0])
    got = cell.step(projected, states, mask)
    dropped = [states[0] * mask, *states[1:]]
    if name == "LayerNormGRU":  # z still keeps the whole h
        z = _update_gate(cell, x[:, 0], dropped)
        want = cell.step(projected, dropped, None)
        want = [want[0] + z * (states[0] - dropped[0])]
    else:
        want = cell.step(projected, dropped, None)
    assert_close("states", got, want)


def _update_gate(cell, x, states):
    """d h_t / d h_{t-1} along z alone, from the reference's equations."""
    weights = [to_numpy(w).astype("float64") for w in cell.weights]
    kernel, recurrent, bias, w_x, w_h, _ = weights
    zr, rows = slice(2 * U), []
    for row, h in zip(x, states[0]):
        gates = cell_variants.layer_norm(row @ kernel[:, zr], w_x[zr]) + bias[zr]
        gates = gates + cell_variants.layer_norm(h @ recurrent[:, zr], w_h[zr])
        rows.append(cells.sigmoid(gates)[:U])
    return np.stack(rows)


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
@variants
def test_mixed_precision(name, half):
    """Held to the float64 reference over all steps."""
    layer, weights = make_layer(name, dtype=f"mixed_{half}")
    x, states = data(name)
    want, _, last = cells.run(VARIANTS[name][0], weights, x, states, MASK)
    outputs, *new = layer(x, initial_state=states, mask=MASK)
    assert keras.backend.standardize_dtype(outputs.dtype) == half
    assert_close("outputs", outputs, want, half)
    assert_close("states", new, last, half)


@variants
def test_in_a_stack_and_beside_attention(name):
    x, _ = data(name)
    cell, weights = make_cell(name)
    stack = kseq.layers.RNN([cell, kseq.layers.GRUCell(2)], return_sequences=True)
    stack.build((B, T, D))
    zeros = [np.zeros((B, n)) for n in VARIANTS[name][1]]
    hidden, _, _ = cells.run(VARIANTS[name][0], weights, x, zeros)
    gru_weights = [to_numpy(w) for w in stack.weights[len(weights) :]]
    want, _, _ = cells.run(cells.gru_step, gru_weights, hidden, [np.zeros((B, 2))])
    assert_close("stack", stack(x), want)
    cell = getattr(kseq.layers, name + "Cell")(U, **VARIANTS[name][2])
    decoder = kseq.layers.AttentionRNN(
        kseq.layers.AttentionCell(cell, kseq.layers.BahdanauAttention(2))
    )
    outputs = decoder(x, np.ones((B, 7, 1), "float32"))
    assert tuple(outputs.shape) == (B, T, VARIANTS[name][1][0] + 1)
