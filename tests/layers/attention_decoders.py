"""Attention decoders of every kind, beside their float64 references."""

import keras
import numpy as np
from helpers import set_weights_by_seed
from reference import attention, cells

import kseq

B, T, S, D, M, U = 2, 3, 5, 2, 3, 4
CELLS = {
    "rnn": (kseq.layers.SimpleRNNCell, cells.simple_rnn_step, 1),
    "gru": (kseq.layers.GRUCell, cells.gru_step, 1),
    "lstm": (kseq.layers.LSTMCell, cells.lstm_step, 2),
}
MASK = np.array([[True, True, False], [False, True, True]])
MEMORY_MASK = np.array(
    [[True, True, False, True, False], [False, True, True, True, True]]
)


def make_cell(kind, score="bahdanau", seed=0, dtype=None):
    """A built `AttentionCell`; weights of `seed`."""
    cell = CELLS[kind][0](U, dtype=dtype)
    if score == "bahdanau":
        mechanism = kseq.layers.BahdanauAttention(3, dtype=dtype)
    else:
        mechanism = kseq.layers.LuongAttention("general", dtype=dtype)
    layer = kseq.layers.AttentionCell(cell, mechanism, dtype=dtype)
    layer.build((B, D), (B, S, M))
    set_weights_by_seed(layer, seed)
    return layer


def parts(layer):
    """Variables of the cell, and of the attention in the reference's order."""
    mechanism = layer.attention
    if isinstance(mechanism, kseq.layers.BahdanauAttention):
        kernels = [mechanism.query_dense.kernel, mechanism.memory_dense.kernel]
        return layer.cell.weights, [*kernels, mechanism.scale]
    return layer.cell.weights, [mechanism.memory_dense.kernel]


def values(variables):
    return [keras.ops.convert_to_numpy(v).astype("float64") for v in variables]


def data(kind, seed=1, dtype="float32"):
    """Inputs `(B, T, D)`, memory `(B, S, M)` and the first states."""
    rng = np.random.default_rng(seed)
    x, memory = rng.normal(size=(B, T, D)), rng.normal(size=(B, S, M))
    states = [rng.normal(size=(B, U)).astype(dtype) for _ in range(CELLS[kind][2])]
    return x.astype(dtype), memory.astype(dtype), states


def reference(kind, score, x, memory, states, weights, mask, memory_mask):
    """`weights` are those of the cell and of the attention; masks may be None."""
    score = {
        "bahdanau": attention.additive_score, "luong": attention.general_score
    }[score]  # fmt: skip
    mask = np.ones((B, T), bool) if mask is None else mask
    memory_mask = np.ones((B, S), bool) if memory_mask is None else memory_mask
    return attention.decoder(
        CELLS[kind][1], weights[:3], score, weights[3:], x, states, memory, mask,
        memory_mask,
    )  # fmt: skip
