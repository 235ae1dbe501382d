"""Linear attention against float64 loops, their central differences, the paper."""

from functools import partial

import keras
import numpy as np
import pytest
from helpers import (
    DTYPES,
    assert_close,
    assert_same,
    cotangent,
    gradients,
    on_jax,
    on_tensorflow,
    to_numpy,
)
from keras import ops
from reference.differences import numeric_gradients
from reference.linear_attention import linear_attention as reference

from kseq.backend import compiled
from kseq.ops import linear_attention

B, T, S, K, V = 2, 5, 7, 3, 2
causal = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
heads = pytest.mark.parametrize(
    ("H", "G"), [(3, 3), (4, 2), (3, 1)], ids=["heads", "groups", "one group"]
)


def arrays(queries=T, entries=T, H=2, G=1, seed=0, dtype="float32"):
    rng = np.random.default_rng(seed)
    shapes = (B, queries, H, K), (B, entries, G, K), (B, entries, G, V)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def states(G=1, seed=1, dtype="float32"):
    """S and z such as real features make them: z is positive."""
    rng = np.random.default_rng(seed)
    sums, totals = rng.normal(size=(B, G, K, V)), rng.uniform(1, 3, (B, G, K))
    return [sums.astype(dtype), totals.astype(dtype)]


def padding(entries=T):
    """Left, right and interior."""
    mask = np.ones((B, entries), bool)
    mask[0, -2:] = mask[1, 0] = mask[1, 2] = False
    return mask


def test_the_value_of_the_formulas():
    """F-A9: worked by hand from eq. 9 to 12 for two steps and one head."""
    q, k, v = (
        np.array(x, "float32")[None, :, None]
        for x in ([[1, -1], [0.5, 2]], [[0, 1], [-2, 0.5]], [[1, 2], [3, -1]])
    )
    for chunk_size in (1, 2, 128):
        y = linear_attention(q, k, v, use_causal_mask=True, chunk_size=chunk_size)
        want = [[1, 2], [1.77079436, 0.84380846]]
        assert_close(f"chunk_size={chunk_size}", y[0, :, 0], want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", [0, 1, 2])
@causal
@heads
def test_reference(H, G, causal, seed, dtype):
    inputs = arrays(T, T if causal else S, H, G, seed, dtype)
    mask = padding(inputs[1].shape[1])
    for name, value_mask in [("all", None), ("masked", mask)]:
        y = linear_attention(
            *inputs, value_mask=value_mask, use_causal_mask=causal, chunk_size=2
        )
        assert keras.backend.standardize_dtype(y.dtype) == dtype
        want, _ = reference(*inputs, value_mask, causal)
        assert_close(name, y, want, dtype)
    every = linear_attention(
        *inputs, value_mask=np.ones_like(mask), use_causal_mask=causal, chunk_size=2
    )
    plain = linear_attention(*inputs, use_causal_mask=causal, chunk_size=2)
    assert_same("all True", every, plain)


@pytest.mark.parametrize("length", [1, 2, 7, 13])
@pytest.mark.parametrize("chunk_size", [1, 3, 13, 64])
def test_chunks(length, chunk_size):
    """Whole and broken chunks, one step each, and one chunk: the parallel form."""
    inputs = arrays(length, length, 4, 2)
    mask, state = padding(length) if length > 2 else None, states(2)
    y, last = linear_attention(
        *inputs, value_mask=mask, chunk_size=chunk_size, state=tuple(state)
    )
    want, want_last = reference(*inputs, mask, True, state)
    assert_close("outputs", y, want)
    assert_close("state", last, want_last)


@pytest.mark.parametrize("pieces", [[1] * 13, [5, 1, 7]], ids=["steps", "pieces"])
def test_a_stream(pieces):
    """In calls of one step, the recurrent form, and of several."""
    inputs, mask = arrays(13, 13, 4, 2), padding(13)
    state = tuple(np.zeros_like(x) for x in states(2))
    ends, outputs = np.cumsum(pieces), []
    for start, end in zip(ends - pieces, ends):
        piece = [x[:, start:end] for x in inputs]
        y, state = linear_attention(
            *piece, value_mask=mask[:, start:end], chunk_size=3, state=state
        )
        outputs.append(y)
    want, want_state = reference(*inputs, mask, True)
    assert_close("outputs", ops.concatenate(outputs, axis=1), want)
    assert_close("state", state, want_state)
    at_once = linear_attention(*inputs, value_mask=mask, use_causal_mask=True)
    assert_close("at once", ops.concatenate(outputs, axis=1), to_numpy(at_once))


@pytest.fixture(scope="module")
def differences():
    """Central differences of the reference, causal from a state, and not."""
    mask = padding()

    def loss(is_causal, *values):
        y, sums = reference(*values[:3], mask, is_causal, values[3:] or None)
        outputs = [y, *sums] if values[3:] else [y]
        return sum((x * cotangent(x, i)).sum() for i, x in enumerate(outputs))

    return {
        False: numeric_gradients(partial(loss, False), arrays()),
        True: numeric_gradients(partial(loss, True), [*arrays(), *states()]),
    }


@pytest.mark.parametrize(
    "mode", [pytest.param("eager", marks=on_tensorflow), "compiled", "forward"]
)
@causal
def test_gradients(causal, mode, differences):
    """Of the inputs, and of the state; 5 steps in chunks of 2."""

    def call(query, key, value, *rest):
        *state, mask = rest
        return linear_attention(
            query, key, value, value_mask=mask, use_causal_mask=causal, chunk_size=2,
            state=tuple(state) or None,
        )  # fmt: skip

    inputs = [*arrays(), *states()] if causal else arrays()
    _, found, _ = gradients(call, inputs, [], mode=mode, extras=[padding()])
    assert_close("gradients", found, differences[causal], gradient=True)


@on_tensorflow
def test_one_program_for_every_batch_and_length():
    """Traced once; forward and gradient compiled, chunks of 3."""
    import tensorflow as tf

    def both(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            y = linear_attention(*inputs, use_causal_mask=True, chunk_size=3)
            loss = tf.reduce_sum(y * tf.cos(y))
        return y, tape.gradient(loss, inputs)

    signature = [tf.TensorSpec([None, None, *x.shape[2:]]) for x in arrays()]
    both = tf.function(
        both, jit_compile=True, input_signature=signature, autograph=False
    )
    for length in (1, 7):
        inputs = arrays(length, length)
        y, found = both(*inputs)
        assert_close("outputs", y, reference(*inputs, causal=True)[0])
        call = partial(linear_attention, use_causal_mask=True)
        _, want, _ = gradients(call, inputs, [], loss=lambda y: ops.sum(y * ops.cos(y)))
        assert_close("gradients", found, want, gradient=True)


@causal
def test_a_query_that_sees_nothing(causal):
    """0 exactly and finite gradients; what is masked may hold NaN."""
    inputs, mask = arrays(), padding()
    mask[0] = False
    for x in inputs[1:]:
        x[~mask] = np.nan

    def call(*inputs):
        return linear_attention(
            *inputs, value_mask=mask, use_causal_mask=causal, chunk_size=2
        )

    y, found, _ = gradients(call, inputs, [], mode="compiled")
    assert not y[0].any()
    if causal:  # the first entry of row 1 is masked too
        assert not y[1, 0].any()
    assert_close("outputs", y, reference(*inputs, mask, causal)[0])
    assert all(np.isfinite(g).all() for g in found)
    assert not found[0][0].any()
    assert not any(g[~mask].any() for g in found[1:])


@pytest.mark.parametrize("size", [40.0, 80.0, 300.0])
def test_features_that_vanish(size):
    """A query's scale cancels; keys that vanish altogether count as nothing."""
    query, key, value = arrays()
    call = partial(linear_attention, use_causal_mask=True)
    for name, inputs in [
        ("query", [query - size, key, value]), ("key", [query, key - size, value])
    ]:  # fmt: skip
        y, found, _ = gradients(call, inputs, [], mode="compiled")
        want, _ = reference(*inputs, causal=True)
        if name == "key" and size > 70:  # exp(-70) is 4e-31
            want = np.zeros_like(want)
        assert_close(name, y, want)
        assert all(np.isfinite(g).all() for g in found)


def test_large_inputs():
    """The slope of exp at 800 must not reach that of f, nor that of the quotient."""
    inputs = [x * 400 for x in arrays()]
    y, found, _ = gradients(linear_attention, inputs, [])
    assert_close("outputs", y, reference(*inputs)[0])
    assert all(np.isfinite(g).all() for g in found)


def test_the_features_keep_their_precision():
    """exp(x) - 1 + 1 has no digit left at -17; the weights of two keys differ."""
    query, key, value = arrays()
    key = key - 17
    y = linear_attention(query, key, value)
    assert_close("outputs", y, reference(query, key, value)[0])


def test_the_slope_at_zero():
    """f'(0) = 1 from either side, and so for a query of zeros."""
    _, key, value = arrays()
    query = np.zeros((B, T, 2, K), "float32")
    inputs = [query, key, value]
    _, (got, *_), _ = gradients(linear_attention, inputs, [], mode="compiled")

    def loss(query):
        y, _ = reference(query, key, value)
        return (y * cotangent(y, 0)).sum()

    assert_close("gradient", got, numeric_gradients(loss, [query])[0], gradient=True)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype):
    """Sums of products of 400 x 400 do not fit in float16; the state is float32."""
    query, key, value = (x * 400 for x in arrays(13, 13))
    inputs = [ops.cast(x, dtype) for x in (query, np.abs(key), value)]
    state = tuple(np.zeros_like(x) for x in states())
    run = compiled(partial(linear_attention, chunk_size=5, state=state), [])
    y, last = run(*inputs)
    assert keras.backend.standardize_dtype(y.dtype) == dtype
    assert keras.backend.standardize_dtype(last[0].dtype) == "float32"
    want, want_last = reference(*map(to_numpy, inputs), causal=True)
    assert_close("outputs", to_numpy(y) / 400, want / 400, dtype)
    assert_close("S", last[0], want_last[0])
    assert_close("z", last[1], want_last[1])


@on_jax
def test_memory_is_linear_in_time():
    """Of forward and gradient: twice the steps take twice the memory."""
    import jax

    def loss(x):
        return linear_attention(x, x, x, use_causal_mask=True, chunk_size=32).sum()

    def memory(length):
        x = jax.ShapeDtypeStruct((1, length, 2, 16), "float32")
        program = jax.jit(jax.grad(loss)).lower(x).compile()
        return program.memory_analysis().temp_size_in_bytes

    assert memory(1024) < 2.2 * memory(512)


def test_4096_steps():
    """In float32, over many chunks, held to a float64 running sum."""
    query, key, value = arrays(4096, 4096, 1, 1)
    y = linear_attention(query, key, value, use_causal_mask=True)
    q, k = (np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in (query, key))
    products = k[..., None].astype("float64") * value[:, :, :, None]
    sums, totals = products.cumsum(1), k.astype("float64").cumsum(1)
    want = np.einsum("bthk,bthkv->bthv", q, sums)
    want /= np.einsum("bthk,bthk->bth", q, totals)[..., None]
    assert_close("outputs", y, want)


BAD = {
    "query rank": (dict(query=(B, T, K)), r"`query` must have shape \(B, T, H, K\)"),
    "key rank": (dict(key=(B, T, K)), r"`key` must have shape \(B, S, G, K\)"),
    "value rank": (dict(value=(B, T, V)), r"`value` must have shape \(B, S, G, V\)"),
    "heads": (dict(query=(B, T, 3, K)), "must have the same length and heads"),
    "value heads": (dict(value=(B, T, 1, V)), "must have the same length and heads"),
    "value length": (dict(value=(B, S, 2, V)), "must have the same length and heads"),
    "causal": (dict(query=(B, S, 2, K)), "needs as many keys as queries"),
    "state": (dict(state=(B, 2, V)), r"`state` must be \(S, z\)"),
    "chunks": (dict(chunk_size=0), "`chunk_size` must be a positive integer"),
    "mask rank": (dict(value_mask=(T,)), r"`value_mask` must have shape \(B, S\)"),
    "mask length": (dict(value_mask=(B, S)), "`value_mask` must have the first two"),
}


@pytest.mark.parametrize("name", BAD)
def test_errors(name):
    changes, match = BAD[name]
    shapes = {"query": (B, T, 2, K), "key": (B, T, 2, K), "value": (B, T, 2, V)}
    inputs = {key: np.ones(changes.get(key, shapes[key]), "float32") for key in shapes}
    options = {}
    if "state" in changes:
        options["state"] = np.ones((B, 2, K, V)), np.ones(changes["state"])
    if "chunk_size" in changes:
        options["chunk_size"] = changes["chunk_size"]
    if "value_mask" in changes:
        options["value_mask"] = np.ones(changes["value_mask"], bool)
    with pytest.raises(ValueError, match=match):
        linear_attention(**inputs, use_causal_mask=True, **options)


def test_a_mask_of_numbers_is_refused():
    with pytest.raises(TypeError, match="`value_mask` must be boolean"):
        linear_attention(*arrays(), value_mask=np.ones((B, T), "float32"))
