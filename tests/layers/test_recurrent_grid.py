"""Every way to run a recurrent layer against the reference, masks and resets too.

The rows of the batch have the kinds of masks.
"""

import itertools

import numpy as np
import pytest
from helpers import assert_close, cotangent, gradients, on_tensorflow
from reference import cells
from reference.differences import numeric_gradients

import kseq
from kseq.backend import compiled as compile_function

MASK = np.array(
    [
        [True, True, True, True, True],
        [True, True, True, False, False],  # right
        [False, False, True, True, True],  # left
        [True, False, True, True, False],  # interior
        [False, False, False, False, False],
    ]
)
# at real and at masked steps, at the ends, two in a row, none
RESETS = np.array(
    [
        [False, False, True, True, False],
        [True, False, False, False, True],
        [False, True, False, True, False],
        [False, True, False, False, False],
        [False, False, False, True, False],
    ]
)
(B, T), D, U = MASK.shape, 3, 2
KINDS = {
    "simple_rnn": (kseq.layers.SimpleRNNCell, {}, cells.simple_rnn_step, 1),
    "gru": (kseq.layers.GRUCell, {}, cells.gru_step, 1),
    "gru_before": (
        kseq.layers.GRUCell, {"reset_after": False}, cells.gru_before_step, 1
    ),
    "lstm": (kseq.layers.LSTMCell, {}, cells.lstm_step, 2),
    "no_bias": (kseq.layers.GRUCell, {"use_bias": False}, cells.gru_step, 1),
}  # fmt: skip
# return_sequences, return_state, zero_output_for_mask
RETURNS = [
    (True, True, False),
    (True, False, False),
    (True, True, True),
    (False, True, False),
    (False, False, False),
]
MODES = ["compiled", "forward", pytest.param("unknown", marks=on_tensorflow)]
MASKS = {
    "plain": {},
    "masked": {"mask": MASK},
    "reset": {"mask": MASK, "reset_mask": RESETS},
}
kinds = pytest.mark.parametrize("kind", KINDS)


def make(kind, seed=0):
    """A cell with normal weights, its weights, inputs and first states."""
    cell_class, options, _, count = KINDS[kind]
    cell = cell_class(U, **options)
    cell.build((B, D))
    rng = np.random.default_rng(seed)
    weights = [rng.normal(0, 0.6, w.shape).astype("float32") for w in cell.weights]
    cell.set_weights(weights)
    x = rng.normal(size=(B, T, D)).astype("float32")
    states = [rng.normal(size=(B, U)).astype("float32") for _ in range(count)]
    return cell, weights, x, states


def reference(kind, weights, x, states, masks, go_backwards):
    """Outputs in the order of the layer, last output and last states."""
    if kind == "no_bias":
        weights = [*weights, np.zeros((2, 3 * U))]
    outputs, last_output, last_states = cells.run(
        KINDS[kind][2], weights, x, states, masks.get("mask"), go_backwards,
        reset_mask=masks.get("reset_mask"),
    )  # fmt: skip
    return outputs[:, ::-1] if go_backwards else outputs, last_output, last_states


def reference_gradients(kind, x, states, weights, masks, directions):
    """Of the outputs and the last states, as `run_layers` returns them."""

    def loss(x, *rest):
        states, weights = rest[: -len(given)], rest[-len(given) :]
        results = []
        for go_backwards in directions:
            outputs, _, last = reference(kind, weights, x, states, masks, go_backwards)
            results += [outputs, *last]
        return sum((y * cotangent(y, i)).sum() for i, y in enumerate(results))

    given = weights
    return numeric_gradients(loss, [x, *states, *weights])


def layer_of(cell, returns, go_backwards):
    sequences, state, zero = returns
    return kseq.layers.RNN(
        cell,
        return_sequences=sequences,
        return_state=state,
        zero_output_for_mask=zero,
        go_backwards=go_backwards,
    )


@pytest.mark.parametrize("masks", ["masked", "reset"])
@pytest.mark.parametrize("kind", ["gru_before", "lstm"])
def test_what_is_returned(kind, masks):
    """Ten layers over one cell in one program: step by step, and all at once."""
    cell, weights, x, states = make(kind)
    masks = MASKS[masks]
    options = list(itertools.product((False, True), RETURNS))
    layers = [layer_of(cell, returns, backwards) for backwards, returns in options]

    def run(x, states, masks):
        return [layer(x, initial_state=states, **masks) for layer in layers]

    results = compile_function(run, cell.variables)(x, states, masks)
    for got, (backwards, (sequences, state, zero)) in zip(
        results, options, strict=True
    ):
        outputs, last, last_states = reference(
            kind, weights, x, states, masks, backwards
        )
        real = (MASK[:, ::-1] if backwards else MASK)[..., None]
        want = np.where(real | (not zero), outputs, 0) if sequences else last
        assert_close("results", got if state else [got], [want, *(last_states * state)])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("masks", ["plain", "reset"])
@kinds
def test_gradients(kind, masks, mode):
    """Both directions in one program."""
    cell, weights, x, states = make(kind)
    masks = MASKS[masks]
    layers = [layer_of(cell, RETURNS[0], backwards) for backwards in (False, True)]

    def run(x, *rest):
        given = dict(zip(masks, rest[len(states) :], strict=True))
        first = list(rest[: len(states)])
        return [layer(x, initial_state=first, **given) for layer in layers]

    outputs, d_inputs, d_weights = gradients(
        run, [x, *states], cell.trainable_variables, mode=mode, extras=masks.values()
    )
    for got, backwards in zip(outputs, (False, True), strict=True):
        want, _, last = reference(kind, weights, x, states, masks, backwards)
        assert_close("outputs", got, [want, *last])
    wanted = reference_gradients(kind, x, states, weights, masks, (False, True))
    assert_close("gradients", d_inputs + d_weights, wanted, gradient=True)


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("kind", ["simple_rnn", "gru", "lstm"])
def test_gradients_in_eager_mode(kind, masks):
    cell, weights, x, states = make(kind, seed=1)
    masks = MASKS[masks]
    layer = layer_of(cell, RETURNS[0], False)
    outputs, d_inputs, d_weights = gradients(
        lambda x, *states: layer(x, initial_state=list(states), **masks),
        [x, *states], cell.trainable_variables,
    )  # fmt: skip
    want, _, last = reference(kind, weights, x, states, masks, False)
    assert_close("outputs", outputs, [want, *last])
    wanted = reference_gradients(kind, x, states, weights, masks, [False])
    assert_close("gradients", d_inputs + d_weights, wanted, gradient=True)


@pytest.mark.parametrize("go_backwards", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("kind", ["simple_rnn", "gru", "lstm"])
def test_rows_enough_for_two_chains(kind, go_backwards):
    """As on a processor of two cores, which works on both halves at a time."""
    cell, weights, x, states = make(kind)
    x, *states = (np.concatenate([a, -a[:4]]) for a in (x, *states))
    masks = {k: np.concatenate([m, ~m[:4]]) for k, m in MASKS["reset"].items()}
    layer = layer_of(cell, RETURNS[0], go_backwards)
    outputs, d_inputs, d_weights = gradients(
        lambda x, *rest: layer(
            x, initial_state=list(rest[:-2]), mask=rest[-2], reset_mask=rest[-1]
        ),
        [x, *states], cell.trainable_variables, mode="compiled", extras=masks.values(),
    )  # fmt: skip
    want, _, last = reference(kind, weights, x, states, masks, go_backwards)
    assert_close("outputs", outputs, [want, *last])
    wanted = reference_gradients(kind, x, states, weights, masks, [go_backwards])
    assert_close("gradients", d_inputs + d_weights, wanted, gradient=True)


@pytest.mark.parametrize("rows", [1, 2, 9])
@on_tensorflow
def test_any_number_of_rows_in_one_program(rows):
    import tensorflow as tf

    cell, weights, _, _ = make("gru")
    layer = kseq.layers.RNN(cell, return_sequences=True)
    spec = [tf.TensorSpec((None, T, D), "float32")]
    run = tf.function(layer, input_signature=spec, jit_compile=True)
    x = np.random.default_rng(rows).normal(size=(rows, T, D)).astype("float32")
    want, *_ = reference("gru", weights, x, [np.zeros((rows, U))], {}, False)
    assert_close("outputs", run(x), want)
