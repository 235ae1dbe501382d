"""What all attention over a memory shares: masks, precision, Keras's masks."""

import keras
import numpy as np
import pytest
from helpers import assert_close, assert_same, gradients, to_numpy

import kseq

B, T, S, D = 3, 2, 5, 4
LAYERS = {
    "bahdanau": lambda **kw: kseq.layers.BahdanauAttention(3, **kw),
    "normalized": lambda **kw: kseq.layers.BahdanauAttention(3, normalize=True, **kw),
    "dot": lambda **kw: kseq.layers.LuongAttention("dot", scaled=True, **kw),
    "general": lambda **kw: kseq.layers.LuongAttention(**kw),
    "local": lambda **kw: kseq.layers.LocalAttention(2, **kw),
    "monotonic": lambda **kw: kseq.layers.MonotonicAttention(3, noise=0, **kw),
    "location": lambda **kw: kseq.layers.LocationSensitiveAttention(
        3, filters=2, kernel_size=3, **kw
    ),
    "coverage": lambda **kw: kseq.layers.CoverageAttention(3, **kw),
}
layers = pytest.mark.parametrize("name", LAYERS)
RNG = np.random.default_rng(0)
QUERY = RNG.normal(size=(B, T, D)).astype("float32")
MEMORY = RNG.normal(size=(B, S, D)).astype("float32")
QUERY_MASK = np.array([[True, True], [True, False], [False, True]])
VALUE_MASK = np.array([[True, True, False, True, False], [False] * 5, [True] * 5])


def make(name, **options):
    layer = LAYERS[name](**options)
    layer.build(QUERY.shape, MEMORY.shape)
    return layer


def assert_sums(name, weights):
    """They are 1, or less where the paper does not normalize."""
    sums = weights.sum(-1)
    if name in ("local", "monotonic"):
        assert 0 < sums.min() <= sums.max() < 1
    else:
        assert_close("sums", sums, np.ones(sums.shape))


@layers
def test_a_query_that_sees_nothing(name):
    layer = make(name)
    (context, weights), d_inputs, d_weights = gradients(
        lambda query, memory: layer(
            query, memory, value_mask=VALUE_MASK, return_attention_scores=True
        ),
        [QUERY, MEMORY], layer.trainable_variables,
    )  # fmt: skip
    assert not weights[1].any()
    assert not context[1].any()
    assert_sums(name, weights[[0, 2]])
    assert not d_inputs[0][1].any()
    assert not d_inputs[1][~VALUE_MASK].any()
    assert all(np.isfinite(g).all() for g in d_inputs + d_weights)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@layers
def test_a_query_that_sees_nothing_in_half_precision(name, dtype):
    layer = make(name, dtype=dtype)
    context, weights = layer(
        QUERY, MEMORY, value_mask=VALUE_MASK, return_attention_scores=True
    )
    assert keras.backend.standardize_dtype(context.dtype) == dtype
    assert keras.backend.standardize_dtype(weights.dtype) == "float32"
    assert not to_numpy(weights)[1].any()
    assert not to_numpy(context)[1].any()
    assert_sums(name, to_numpy(weights)[[0, 2]])


@layers
def test_masks_are_combined(name):
    layer = make(name)
    pairs = RNG.random((B, T, S)) < 0.7
    got = layer(QUERY, MEMORY, value_mask=VALUE_MASK, attention_mask=pairs)
    both = pairs & VALUE_MASK[:, None]
    assert_close("both", got, layer(QUERY, MEMORY, attention_mask=both))
    none = layer(QUERY, MEMORY)
    every = layer(QUERY, MEMORY, value_mask=np.ones((B, S), bool))
    assert_close("all true", every, none)


@layers
def test_padding_agrees_with_the_shorter_memory(name):
    layer = make(name)
    mask = np.zeros((B, S), bool)
    mask[:, :3] = True
    got = layer(QUERY, MEMORY, value_mask=mask)
    assert_close("right", got, layer(QUERY, MEMORY[:, :3]))
    got = layer(QUERY, MEMORY, value_mask=mask[:, ::-1].copy())
    assert_close("left", got, layer(QUERY, MEMORY[:, 2:]))


@layers
def test_a_projected_memory_gives_the_same(name):
    layer = make(name)
    projected = layer.project_memory(MEMORY)
    got = layer(QUERY, MEMORY, projected_value=projected)
    assert_same("context", got, layer(QUERY, MEMORY))


@layers
def test_the_step_variables_are_all_that_a_prepared_step_reads(name):
    layer = make(name)
    own = {id(v) for v in layer.step_variables}
    rest = [v for v in layer.trainable_variables if id(v) not in own]
    projected = layer.project_memory(MEMORY)
    _, _, unread = gradients(
        lambda query: layer(query, MEMORY, projected_value=projected), [QUERY], rest
    )
    assert not any(g.any() for g in unread)
    # every weight is either read in the step or makes the keys
    keys = gradients(layer.project_memory, [MEMORY], layer.trainable_variables)[2]
    in_keys = {
        id(v) for v, g in zip(layer.trainable_variables, keys) if g.any()
    }  # fmt: skip
    assert own | in_keys == {id(v) for v in layer.trainable_variables}


@layers
def test_the_masks_of_embeddings(name):
    """Keras fills `query_mask` and `value_mask`; the caller's tensors keep theirs."""
    layer = make(name)
    ids = np.where(VALUE_MASK, np.arange(1, 1 + B * S).reshape(B, S), 0)
    embedding = keras.layers.Embedding(1 + B * S, D, mask_zero=True)
    memory, query = embedding(ids), embedding(np.where(QUERY_MASK, 7, 0))
    context, weights = layer(query, memory, return_attention_scores=True)
    want = layer(
        to_numpy(query), to_numpy(memory), query_mask=QUERY_MASK, value_mask=VALUE_MASK
    )
    assert_close("context", to_numpy(context)[QUERY_MASK], to_numpy(want)[QUERY_MASK])
    assert not to_numpy(weights)[np.broadcast_to(~VALUE_MASK[:, None], (B, T, S))].any()
    # a layer that reads masks sees that they are still there, and the query's on
    # the context
    recurrent = keras.layers.GRU(2, bias_initializer="ones")
    for tensor, mask in [
        (query, QUERY_MASK), (memory, VALUE_MASK), (context, QUERY_MASK)
    ]:  # fmt: skip
        masked = recurrent(to_numpy(tensor), mask=keras.ops.convert_to_tensor(mask))
        assert_close("masked", recurrent(tensor), masked)
        assert np.abs(to_numpy(recurrent(to_numpy(tensor)) - masked)).max() > 1e-3


@pytest.mark.parametrize("mask", ["query_mask", "value_mask", "attention_mask"])
@layers
def test_masks_of_numbers_are_refused(name, mask):
    shape = {"query_mask": (B, T), "value_mask": (B, S)}.get(mask, (B, T, S))
    with pytest.raises(TypeError, match=rf"`{mask}` must be boolean.*attention_bias"):
        make(name)(QUERY, MEMORY, **{mask: np.ones(shape, "float32")})


@pytest.mark.parametrize("mask", ["query_mask", "value_mask"])
def test_masks_of_another_length_are_refused(mask):
    with pytest.raises(ValueError, match=f"`{mask}` must have the first two sizes"):
        make("dot")(QUERY, MEMORY, **{mask: np.ones((B, 1), bool)})


def test_the_base_asks_for_its_parts():
    from kseq.layers.attention.base import MemoryAttention

    class Half(MemoryAttention):
        def project_memory(self, value):
            return value

    with pytest.raises(NotImplementedError, match="Half must compute scores"):
        Half()(QUERY, MEMORY)
    with pytest.raises(NotImplementedError, match="must make the keys"):
        MemoryAttention()(QUERY, MEMORY)
    with pytest.raises(NotImplementedError, match="must list its weights"):
        MemoryAttention().step_variables  # noqa: B018


def test_masks_of_nested_lists_are_masks():
    layer = make("dot")
    mask = np.ones((B, S), bool)
    mask[0, 1] = False
    got = layer(QUERY, MEMORY, value_mask=mask.tolist())
    assert_same("context", got, layer(QUERY, MEMORY, value_mask=mask))


def test_a_mask_of_heads_is_refused():
    with pytest.raises(ValueError, match=r"`attention_mask` must have shape \(B, T, S"):
        make("dot")(QUERY, MEMORY, attention_mask=np.ones((B, 2, T, S), bool))
