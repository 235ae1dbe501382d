"""Attention that depends on earlier queries: references, gradients, order, decoders."""

import keras
import numpy as np
import pytest
from helpers import (
    DTYPES,
    assert_close,
    assert_same,
    cotangent,
    gradients,
    set_weights_by_seed,
    to_numpy,
)
from layers import attention_decoders
from layers.alignments import (
    ALIGNED,
    MAKE,
    MASK,
    QUERY_MASK,
    REFERENCE,
    B,
    S,
    T,
    data,
    make,
    parts,
)
from layers.attention_decoders import values
from reference import alignment
from reference.cells import gru_step
from reference.differences import numeric_gradients

import kseq

names = pytest.mark.parametrize("name", MAKE)
aligned = pytest.mark.parametrize("name", ALIGNED)
MASKS = {"attention_mask": MASK, "query_mask": QUERY_MASK}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", [0, 1, 2])
@names
def test_reference(name, seed, dtype):
    layer, (query, memory) = make(name, seed, dtype), data(seed, dtype)
    want = alignment.attend(
        REFERENCE[name], values(parts(layer)), query, memory, MASK, QUERY_MASK
    )
    got = layer(query, memory, return_attention_scores=True, **MASKS)
    real = QUERY_MASK  # what a padded query gets is unspecified
    assert_close("context", to_numpy(got[0])[real], want[0][real], dtype)
    assert_close("weights", to_numpy(got[1])[real], want[1][real], dtype)


@names
def test_gradients_by_central_differences(name):
    layer, (query, memory) = make(name), data()
    variables = parts(layer)

    def loss(query, memory, *weights):
        found = alignment.attend(
            REFERENCE[name], weights, query, memory, MASK, QUERY_MASK
        )
        found = [np.where(QUERY_MASK[..., None], y, 0) for y in found]
        return sum((y * cotangent(y, i)).sum() for i, y in enumerate(found))

    def call(query, memory):
        found = layer(query, memory, return_attention_scores=True, **MASKS)
        return [keras.ops.where(QUERY_MASK[..., None], y, 0.0) for y in found]

    want = numeric_gradients(loss, [query, memory, *values(variables)])
    _, d_inputs, d_weights = gradients(call, [query, memory], variables)
    assert_close("gradients", d_inputs + d_weights, want, gradient=True)


@aligned
def test_one_query_at_a_time(name):
    """From the alignment that the query before left; None begins anew."""
    layer, (query, memory) = make(name), data()
    want = to_numpy(layer(query, memory, return_attention_scores=True)[1])
    carried = layer.first_alignment(memory)
    for t in range(T):
        _, weights = layer(
            query[:, t : t + 1], memory, alignment=carried, return_attention_scores=True
        )
        assert_close(f"weights {t}", weights[:, 0], want[:, t])
        carried = layer.next_alignment(carried, weights[:, 0])
    alone = layer(query[:, 1:2], memory, return_attention_scores=True)[1]
    assert np.abs(to_numpy(alone)[:, 0] - want[:, 1]).max() > 1e-3
    # many queries go on from it too
    first = layer(query[:, :1], memory, return_attention_scores=True)[1][:, 0]
    carried = layer.next_alignment(layer.first_alignment(memory), first)
    rest = layer(query[:, 1:], memory, alignment=carried, return_attention_scores=True)[
        1
    ]
    assert_close("rest", rest, want[:, 1:])


@aligned
def test_padded_queries_take_no_step(name):
    """Padding on either side agrees with the shorter run."""
    layer, (query, memory) = make(name), data()
    want = to_numpy(layer(query[:, :2], memory))
    hole = query[:, [0, 2, 1]].copy()
    hole[:, 1] = np.nan
    mask = np.array([[True, False, True]] * B)
    got = to_numpy(layer(hole, memory, query_mask=mask))
    assert_close("context", got[:, [0, 2]], want)
    assert np.isfinite(got).all()


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "bfloat16"])
@aligned
def test_the_alignment_is_not_rounded(name, dtype):
    """In half precision it is float32, and a call takes it in as it is."""
    layer, (query, memory) = make(name, dtype=dtype), data()
    query, memory = (keras.ops.cast(x, "bfloat16") for x in (query, memory))
    carried = [keras.ops.full((B, S), 1 / 3)]  # has no exact half
    seen = []
    align = layer.align
    layer.align = lambda *a: seen.append(a[3]) or align(*a)
    layer(query[:, :1], memory, alignment=carried)
    layer(query, memory)
    assert all(keras.backend.standardize_dtype(x.dtype) == "float32" for x in seen)
    assert_same("taken in", seen[0], carried[0])


@aligned
def test_an_alignment_that_does_not_fit(name):
    layer, (query, memory) = make(name), data()
    one = np.zeros((B, S), "float32")
    for wrong in ([one, one], [one[:, :1]], [one[0]]):
        with pytest.raises(ValueError, match=r"`alignment` must hold one .*\(B, S\)"):
            layer(query, memory, alignment=wrong)


def test_an_alignment_where_there_is_none():
    query, memory = data()
    with pytest.raises(ValueError, match="`alignment` must be empty for BahdanauAtt"):
        kseq.layers.BahdanauAttention(3)(
            query, memory, alignment=[np.zeros((B, S), "float32")]
        )


def test_the_base_asks_for_its_part():
    from kseq.layers.attention.aligned_attention import AlignedAttention

    query, memory = data()
    with pytest.raises(NotImplementedError, match="must implement `align`"):
        AlignedAttention(3)(query, memory)


# in a decoder: B, T, S and D are those of `attention_decoders`


def make_decoder(name, dtype=None, **options):
    """An `AttentionRNN` over a GRU, weights of a seed."""
    d = attention_decoders
    cell = kseq.layers.GRUCell(d.U, dtype=dtype)
    attention = MAKE[name](dtype=dtype)
    layer = kseq.layers.AttentionRNN(
        kseq.layers.AttentionCell(cell, attention, dtype=dtype),
        return_state=True, dtype=dtype, **options,
    )  # fmt: skip
    layer.build((d.B, d.T, d.D), (d.B, d.S, d.M))
    set_weights_by_seed(layer, 0)
    return layer


def run(layer, x, memory, states, **options):
    """Outputs, maps and states, under both masks."""
    return layer(
        x, memory, initial_state=states,
        **{
            "sequences_mask": attention_decoders.MASK,
            "memory_mask": attention_decoders.MEMORY_MASK,
            "return_attention_scores": True, **options,
        },
    )  # fmt: skip


def decoder_reference(name, x, memory, states, weights):
    """`weights` are the three of the cell, then those of the attention."""
    found = alignment.decoder(
        REFERENCE[name], weights[3:], gru_step, weights[:3], x, states, memory,
        attention_decoders.MASK, attention_decoders.MEMORY_MASK,
    )  # fmt: skip
    return (*found[:2], found[2] if name in ALIGNED else found[2][:-1])


@pytest.mark.parametrize("dtype", DTYPES)
@names
def test_decoder_reference(name, dtype):
    """Also the last states: a masked step copies the alignment."""
    layer = make_decoder(name, dtype)
    x, memory, states = attention_decoders.data("gru", dtype=dtype)
    variables = [*layer.cell.cell.weights, *parts(layer.cell.attention)]
    outputs, maps, *last = run(layer, x, memory, states)
    want = decoder_reference(name, x, memory, states, values(variables))
    assert_close("outputs", outputs, want[0], dtype)
    assert_close("weights", maps, want[1], dtype)
    assert_close("states", last, want[2], dtype)


@aligned
def test_decoder_gradients_by_central_differences(name):
    """Compiled, of every input and weight, through all steps."""
    layer = make_decoder(name)
    x, memory, states = attention_decoders.data("gru")
    variables = [*layer.cell.cell.weights, *parts(layer.cell.attention)]

    def loss(x, memory, state, *weights):
        outputs, maps, last = decoder_reference(name, x, memory, [state], weights)
        found = [outputs, maps, *last]
        return sum((y * cotangent(y, i)).sum() for i, y in enumerate(found))

    want = numeric_gradients(loss, [x, memory, *states, *values(variables)])
    _, d_inputs, d_weights = gradients(
        lambda x, memory, state: run(layer, x, memory, [state]),
        [x, memory, *states], variables, mode="compiled",
    )  # fmt: skip
    assert_close("gradients", d_inputs + d_weights, want, gradient=True)


@aligned
def test_stepping_the_cell(name):
    """The first call begins the alignment; then it is the last of the states."""
    layer = make_decoder(name)
    x, memory, states = attention_decoders.data("gru")
    outputs, maps, *last = run(layer, x, memory, states, sequences_mask=None)
    for t in range(x.shape[1]):
        (output, weights), states = layer.cell(
            x[:, t], states, memory, memory_mask=attention_decoders.MEMORY_MASK
        )
        assert_close(f"output {t}", outputs[:, t], output)
        assert_close(f"weights {t}", maps[:, t], weights)
    assert_close("states", last, states)
    assert layer.cell.state_size == [attention_decoders.U]
    assert [tuple(s.shape) for s in layer.cell.get_initial_state(3)] == [(3, 4)]


@aligned
def test_windows_of_a_decoder(name):
    """The states of one window, alignment included, begin the next."""
    layer = make_decoder(name)
    x, memory, states = attention_decoders.data("gru")
    whole, _, *last = run(layer, x, memory, states, sequences_mask=None)
    first, _, *carried = run(layer, x[:, :2], memory, states, sequences_mask=None)
    rest, _, *end = run(layer, x[:, 2:], memory, carried, sequences_mask=None)
    assert_close("first", first, whole[:, :2])
    assert_close("rest", rest, whole[:, 2:])
    assert_close("states", end, last)
    with pytest.raises(ValueError, match="`alignment` must hold one tensor"):
        run(layer, x, memory, [*carried, carried[-1]])
    with pytest.raises(ValueError, match="`initial_state` must hold one tensor"):
        run(layer, x, memory, [])


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "float16"])
@aligned
def test_a_decoder_of_half_precision_carries_float32(name, dtype):
    layer = make_decoder(name, dtype)
    x, memory, states = attention_decoders.data("gru")
    _, maps, h, carried = run(layer, x, memory, states, sequences_mask=None)
    dtypes = [keras.backend.standardize_dtype(y.dtype) for y in (maps, h, carried)]
    assert dtypes == ["float32", dtype.removeprefix("mixed_"), "float32"]
    weights = to_numpy(maps)
    summed = name in ("coverage", "cumulative location")
    assert_close("carried", carried, weights.sum(1) if summed else weights[:, -1])


@names
def test_a_symbolic_decoder_of_unknown_lengths(name):
    """Keras infers its shapes by tracing it; on JAX with sizes that are no numbers."""
    d = attention_decoders
    layer = make_decoder(name)
    found = layer(
        keras.Input((None, d.D)), keras.Input((None, d.M)), return_attention_scores=True
    )
    shapes = [(None, None, d.U + d.M), (None, None, None), (None, d.U), (None, None)]
    assert [y.shape for y in found] == shapes[: len(found)]
    assert len(found) == (4 if name in ALIGNED else 3)


def test_a_stack_of_cells_has_the_alignment_last():
    cells = [kseq.layers.LSTMCell(4), kseq.layers.GRUCell(7)]
    cell = kseq.layers.AttentionCell(cells, MAKE["coverage"]())
    layer = kseq.layers.AttentionRNN(cell, return_state=True)
    x, memory, _ = attention_decoders.data("gru")
    _, *states = layer(x, memory)
    shapes = [tuple(s.shape) for s in keras.tree.flatten(states)]
    assert shapes == [(2, 4), (2, 4), (2, 7), (2, 5)]
    (_, weights), new = cell(x[:, 0], states, memory)
    assert_close("coverage", new[-1], to_numpy(states[-1]) + to_numpy(weights))


def test_dropout_of_the_cell_lasts_a_sequence_beside_an_alignment():
    """Equal steps with equal states would differ if each drew its own mask."""
    cell = kseq.layers.SimpleRNNCell(5, dropout=0.5, seed=3)
    layer = kseq.layers.AttentionRNN(
        kseq.layers.AttentionCell(cell, MAKE["coverage"]())
    )
    layer.build((1, 11, 6), (1, 5, 3))
    cell.recurrent_kernel.assign(np.zeros((5, 5)))
    x, memory = np.ones((1, 11, 6), "float32"), np.zeros((1, 5, 3), "float32")
    outputs = to_numpy(layer(x, memory, training=True))[0, :, :5]
    assert_same("steps", outputs, outputs[:1].repeat(11, axis=0))
    assert np.abs(outputs[0] - to_numpy(layer(x, memory))[0, 0, :5]).max() > 1e-3


@names
def test_the_weights_are_captured_once(name):
    from kseq.layers.attention.capture import capture

    layer, (query, memory) = make(name), data()
    decoder = make_decoder(name)
    x, decoder_memory, _ = attention_decoders.data("gru")
    with capture() as maps:
        _, weights = layer(query, memory, return_attention_scores=True)
        decoder(x, decoder_memory)
    assert list(maps) == [layer.path, decoder.path]
    assert_same("weights", maps[layer.path], weights)
