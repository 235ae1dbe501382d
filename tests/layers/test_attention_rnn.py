"""AttentionRNN: the decoder over time."""

import keras
import numpy as np
import pytest
from helpers import (
    DTYPES,
    assert_close,
    assert_same,
    cotangent,
    gradients,
    to_numpy,
)
from keras import ops
from layers.attention_decoders import (
    CELLS,
    MASK,
    MEMORY_MASK,
    B,
    D,
    M,
    S,
    T,
    U,
    data,
    make_cell,
    parts,
    reference,
    values,
)
from layers.sum_cell import SumCell
from reference.differences import numeric_gradients

import kseq

kinds = pytest.mark.parametrize("kind", CELLS)
scores = pytest.mark.parametrize("score", ["bahdanau", "luong"])


def make(kind="gru", score="bahdanau", dtype=None):
    cell = make_cell(kind, score, dtype=dtype)
    layer = kseq.layers.AttentionRNN(cell, return_state=True, dtype=dtype)
    layer.build((B, T, D), (B, S, M))
    return layer


@pytest.mark.parametrize("dtype", DTYPES)
@scores
@kinds
def test_reference(kind, score, dtype):
    layer = make(kind, score, dtype)
    x, memory, states = data(kind, dtype=dtype)
    weights = [w for group in parts(layer.cell) for w in values(group)]
    outputs, maps, *last = layer(
        x, memory, initial_state=states, sequences_mask=MASK, memory_mask=MEMORY_MASK,
        return_attention_scores=True,
    )  # fmt: skip
    want, want_maps, want_last = reference(
        kind, score, x, memory, states, weights, MASK, MEMORY_MASK
    )
    assert_close("outputs", outputs, want, dtype)
    assert_close("weights", maps, want_maps, dtype)
    assert_close("states", last, want_last, dtype)


@scores
def test_gradients_by_central_differences(score):
    """Of every input and weight; compiled, with padding on both sides."""
    layer = make("gru", score)
    x, memory, states = data("gru")
    variables = [v for group in parts(layer.cell) for v in group]

    def loss(x, memory, state, *weights):
        outputs, maps, last = reference(
            "gru", score, x, memory, [state], weights, MASK, MEMORY_MASK
        )
        found = [outputs, maps, *last]
        return sum((y * cotangent(y, i)).sum() for i, y in enumerate(found))

    want = numeric_gradients(loss, [x, memory, *states, *values(variables)])
    _, d_inputs, d_weights = gradients(
        lambda x, memory, state: layer(
            x, memory, initial_state=[state], sequences_mask=MASK,
            memory_mask=MEMORY_MASK, return_attention_scores=True,
        ),
        [x, memory, *states], variables, mode="compiled",
    )  # fmt: skip
    assert_close("gradients", d_inputs + d_weights, want, gradient=True)


@kinds
def test_equals_stepping_the_cell(kind):
    layer = make(kind)
    x, memory, states = data(kind)
    outputs, maps, *last = layer(
        x, memory, initial_state=states, memory_mask=MEMORY_MASK,
        return_attention_scores=True,
    )  # fmt: skip
    memory, projected = layer.cell.prepare_memory(memory, MEMORY_MASK)
    for t in range(T):
        (output, weights), states = layer.cell(
            x[:, t], states, memory, memory_mask=MEMORY_MASK, projected_memory=projected
        )
        assert_close(f"output {t}", outputs[:, t], output)
        assert_close(f"weights {t}", maps[:, t], weights)
    assert_close("states", last, states)


def test_return_options():
    layer = make("lstm")
    x, memory, _ = data("lstm")
    outputs, maps, h, c = layer(x, memory, return_attention_scores=True)
    assert_same("with state", layer(x, memory), (outputs, h, c))
    plain = kseq.layers.AttentionRNN(layer.cell)
    assert_same("outputs", plain(x, memory), outputs)
    got = plain(x, memory, return_attention_scores=True)
    assert_same("with weights", got, (outputs, maps))


def test_one_state_needs_no_list():
    layer = make("gru")
    x, memory, (h,) = data("gru")
    assert_same("all", layer(x, memory, initial_state=h), layer(x, memory, [h]))


def test_a_row_that_sees_nothing():
    """Weights 0, context 0, finite gradients; the other row as without it."""
    layer = make()
    x, memory, _ = data("gru")
    mask = np.array([[False] * S, [True] * S])
    call = lambda x, memory: layer(
        x, memory, memory_mask=mask, return_attention_scores=True
    )
    (outputs, maps, _), d_inputs, d_weights = gradients(
        call, [x, memory], layer.trainable_variables
    )
    assert not maps[0].any()
    assert not outputs[0, :, U:].any()
    assert outputs[0, :, :U].any()
    assert all(np.isfinite(g).all() for g in d_inputs + d_weights)
    assert not d_inputs[1][0].any()
    alone, *_ = layer(x[1:], memory[1:])
    assert_close("other row", outputs[1:], alone)


def test_the_masks_of_embeddings():
    """Both are filled; the caller's tensors and the outputs carry theirs."""
    layer = make()
    ids = np.where(MASK, 5, 0)
    sources = np.where(MEMORY_MASK, np.arange(1, 1 + S), 0)
    target = keras.layers.Embedding(6, D, mask_zero=True)(ids)
    source = keras.layers.Embedding(1 + S, M, mask_zero=True)(sources)
    outputs, state = layer(target, source)
    want, want_state = layer(
        to_numpy(target), to_numpy(source), sequences_mask=MASK, memory_mask=MEMORY_MASK
    )
    assert_close("outputs", outputs, want)
    assert_close("state", state, want_state)
    plain = kseq.layers.AttentionRNN(layer.cell)(target, source)
    for tensor, mask in [(target, MASK), (source, MEMORY_MASK), (plain, MASK)]:
        recurrent = keras.layers.GRU(2)
        masked = recurrent(to_numpy(tensor), mask=ops.convert_to_tensor(mask))
        assert_close("masked", recurrent(tensor), masked)
        assert np.abs(to_numpy(recurrent(to_numpy(tensor)) - masked)).max() > 1e-3


def test_a_stack_and_a_cell_of_a_user():
    cells = [kseq.layers.LSTMCell(U), SumCell(2)]
    attention_cell = kseq.layers.AttentionCell(cells, kseq.layers.LuongAttention())
    layer = kseq.layers.AttentionRNN(attention_cell)
    x, memory, _ = data("gru")
    outputs = layer(x, memory, sequences_mask=MASK)
    assert tuple(outputs.shape) == (B, T, 2 + M)
    states, steps = attention_cell.get_initial_state(B), []
    for t in range(T):
        (output, _), states = attention_cell(x[:, t], states, memory)
        steps.append(output)
    assert_close("first row", outputs[0, :2], np.stack(steps[:2], axis=1)[0])


def test_config():
    layer = kseq.layers.AttentionRNN(make_cell("lstm"), return_state=True)
    again = kseq.layers.AttentionRNN.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    assert again.return_state
    assert isinstance(again.cell.cell, kseq.layers.LSTMCell)


def test_errors():
    layer = make("lstm")
    x, memory, states = data("lstm")
    with pytest.raises(TypeError, match=r"must be a kseq\.layers\.AttentionCell.*'GRU"):
        kseq.layers.AttentionRNN(kseq.layers.GRUCell(3))
    with pytest.raises(ValueError, match=r"`initial_state` must hold .*4\), .*4\)\]"):
        layer(x, memory, initial_state=states[:1])
    with pytest.raises(TypeError, match="`sequences_mask` must be boolean"):
        layer(x, memory, sequences_mask=MASK.astype("float32"))
    with pytest.raises(TypeError, match="`memory_mask` must be boolean"):
        layer(x, memory, memory_mask=MEMORY_MASK.astype("int32"))
    with pytest.raises(ValueError, match="`memory_mask` must have the first two"):
        layer(x, memory, memory_mask=MASK)
    fresh = kseq.layers.AttentionRNN(layer.cell)
    with pytest.raises(ValueError, match=r"`sequences` must have shape \(B, T, D\)"):
        fresh(x[:, 0], memory)
    with pytest.raises(ValueError, match=r"`memory` must have shape \(B, S, M\)"):
        fresh(x, memory[:, 0])
