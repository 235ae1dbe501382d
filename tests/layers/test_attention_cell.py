"""AttentionCell: one step of the decoder of Bahdanau et al."""

import keras
import numpy as np
import pytest
from helpers import DTYPES, assert_close, assert_same, gradients, to_numpy
from layers.attention_decoders import (
    CELLS,
    MEMORY_MASK,
    B,
    M,
    S,
    U,
    data,
    make_cell,
    parts,
    reference,
    values,
)

import kseq

kinds = pytest.mark.parametrize("kind", CELLS)
scores = pytest.mark.parametrize("score", ["bahdanau", "luong"])


@pytest.mark.parametrize("dtype", DTYPES)
@scores
@kinds
def test_reference(kind, score, dtype):
    layer = make_cell(kind, score, dtype=dtype)
    x, memory, states = data(kind, dtype=dtype)
    weights = [w for group in parts(layer) for w in values(group)]
    for mask in (None, MEMORY_MASK):
        outputs, maps, last = reference(
            kind, score, x[:, :1].repeat(3, axis=1), memory, states, weights,
            np.array([[True, False, False]] * B), mask,
        )  # fmt: skip
        (output, attention), new = layer(x[:, 0], states, memory, memory_mask=mask)
        assert_close("output", output, outputs[:, 0], dtype)
        assert_close("weights", attention, maps[:, 0], dtype)
        assert_close("states", new, last, dtype)


@scores
def test_a_prepared_memory_gives_the_same(score):
    """Also the same gradients; then the memory's kernel is read in the preparation."""
    layer = make_cell("gru", score)
    x, memory, states = data("gru")
    memory[~MEMORY_MASK] = np.nan

    def plain(x, memory):
        return layer(x, states, memory, memory_mask=MEMORY_MASK)

    def prepared(x, memory):
        memory, projected = layer.prepare_memory(memory, MEMORY_MASK)
        return layer(
            x, states, memory, memory_mask=MEMORY_MASK, projected_memory=projected
        )

    variables = layer.trainable_variables
    want = gradients(plain, [x[:, 0], memory], variables)
    got = gradients(prepared, [x[:, 0], memory], variables)
    assert_same("outputs", got[0], want[0])
    assert_close("gradients", got[1:], want[1:], gradient=True)
    assert all(np.isfinite(g).all() for g in got[1] + got[2])


def test_a_row_without_memory_runs_on_a_zero_context():
    layer = make_cell("lstm")
    x, memory, states = data("lstm")
    mask = np.array([[False] * S, [True] * S])
    (output, weights), _ = layer(x[:, 0], states, memory, memory_mask=mask)
    assert not to_numpy(weights)[0].any()
    assert not to_numpy(output)[0, U:].any()
    want, _ = layer.cell(np.pad(x[:1, 0], ((0, 0), (0, M))), [s[:1] for s in states])
    assert_close("output", output[:1, :U], want)


def test_sizes_and_first_states():
    layer = make_cell("lstm")
    assert layer.state_size == [U, U]
    assert layer.query_width == layer.cell_output_size == U
    assert [tuple(s.shape) for s in layer.get_initial_state(3)] == [(3, U)] * 2
    ids = {id(v) for v in layer.step_variables}
    rest = [w.path for w in layer.weights if id(w) not in ids]
    assert [path.split("/")[-2] for path in rest] == ["memory_dense"]


def test_a_list_of_cells():
    """The query is the first state of the first cell."""
    cells = [kseq.layers.LSTMCell(U), kseq.layers.GRUCell(7)]
    layer = kseq.layers.AttentionCell(cells, kseq.layers.LuongAttention())
    assert (layer.query_width, layer.cell_output_size) == (U, 7)
    x, memory, _ = data("gru")
    (output, _), states = layer(x[:, 0], layer.get_initial_state(B), memory)
    assert tuple(output.shape) == (B, 7 + M)
    shapes = [tuple(s.shape) for s in keras.tree.flatten(states)]
    assert shapes == [(B, U), (B, U), (B, 7)]


def test_config():
    layer = kseq.layers.AttentionCell(
        kseq.layers.GRUCell(U, seed=3), kseq.layers.LuongAttention("dot", scaled=True)
    )
    again = kseq.layers.AttentionCell.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    assert again.cell.seed == 3
    assert again.attention.score == "dot"


def test_errors():
    cell, attention = kseq.layers.GRUCell(U), kseq.layers.BahdanauAttention(3)
    with pytest.raises(TypeError, match=r"`attention` must be.*attention='AdditiveAtt"):
        kseq.layers.AttentionCell(cell, keras.layers.AdditiveAttention())
    with pytest.raises(TypeError, match="`cell` must be a Keras layer with a `state_s"):
        kseq.layers.AttentionCell(keras.layers.Dense(3), attention)
    with pytest.raises(ValueError, match="must not be a cell of Keras with dropout"):
        kseq.layers.AttentionCell(keras.layers.GRUCell(3, dropout=0.1), attention)
    layer = make_cell("gru")
    x, memory, states = data("gru")
    with pytest.raises(TypeError, match="`memory_mask` must be boolean"):
        layer(x[:, 0], states, memory, memory_mask=np.ones((B, S), "int32"))
    with pytest.raises(ValueError, match=r"last axis .* must be known.*\(2, None\)"):
        kseq.layers.AttentionCell(cell, attention).build((B, None), (B, S, M))
