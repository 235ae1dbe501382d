"""Multi-head linear attention: the reference, streams, masks, its Keras twins."""

import keras
import numpy as np
import pytest
from helpers import assert_close, gradients, set_weights_by_seed, to_numpy
from keras import ops
from reference.linear_attention import layer as reference

from kseq.backend import compiled
from kseq.layers import LinearAttention

B, T, S, D, M, H, K = 2, 5, 7, 6, 3, 4, 3
RNG = np.random.default_rng(0)
X, MEMORY, KEYS = (
    RNG.normal(size=shape).astype("float32")
    for shape in [(B, T, D), (B, S, M), (B, S, 2)]
)
MASK = np.array([[True] * 3 + [False] * 2, [False, True, False, True, True]])
MEMORY_MASK = np.array([[True] * 4 + [False] * 3, [False, True] * 3 + [True]])
VARIANTS = {
    "heads": {},
    "groups": {"num_key_value_heads": 2, "value_dim": 5},
    "one group": {"num_key_value_heads": 1, "output_shape": 7},
    "no bias": {"use_bias": False},
}
variants = pytest.mark.parametrize("name", VARIANTS)


def make(name="groups", seed=0, shapes=((B, T, D), (B, T, D)), **options):
    layer = LinearAttention(H, K, **VARIANTS[name], **options)
    layer.build(*shapes)
    return layer, set_weights_by_seed(layer, seed)


@variants
def test_reference(name):
    layer, _ = make(name)
    assert len(layer.weights) == (4 if name == "no bias" else 8)
    run = compiled(
        lambda x, mask: (
            layer(x, x, query_mask=mask, value_mask=mask, use_causal_mask=True),
            layer(x, x, value_mask=mask),
        ),
        layer.variables,
    )
    for seed in (0, 1, 2):
        weights = set_weights_by_seed(layer, seed)
        causal, full = run(X, MASK)
        want = reference(weights, X, X, mask=MASK, causal=True)
        assert_close("causal", to_numpy(causal)[MASK], want[MASK])
        assert_close("full", full, reference(weights, X, X, mask=MASK))


@variants
def test_a_memory_with_its_own_keys(name):
    shapes = X.shape, MEMORY.shape, KEYS.shape
    layer, weights = make(name, shapes=shapes)
    both = MEMORY_MASK & MEMORY_MASK[::-1]
    for options, mask in [
        ({}, None),
        ({"value_mask": MEMORY_MASK}, MEMORY_MASK),
        ({"key_mask": MEMORY_MASK}, MEMORY_MASK),
        ({"value_mask": MEMORY_MASK, "key_mask": MEMORY_MASK[::-1].copy()}, both),
    ]:
        y = layer(X, MEMORY, KEYS, **options)
        want = reference(weights, X, MEMORY, KEYS, mask=mask)
        assert_close(f"masks {list(options)}", y, want)


def test_the_weights_of_the_keras_twins():
    """Names and shapes; `set_weights` moves them across."""
    options = {"value_dim": 5, "output_shape": 7}
    twin = keras.layers.MultiHeadAttention(H, K, **options)
    twin.build(X.shape, MEMORY.shape, KEYS.shape)
    layer = LinearAttention(H, K, **options)
    layer.build(X.shape, MEMORY.shape, KEYS.shape)
    layer.set_weights(twin.get_weights())
    names = ["query_dense", "key_dense", "value_dense", "output_dense"]
    assert [w.path.split("/")[-2] for w in layer.weights[::2]] == names
    assert [getattr(layer, name).name for name in names] == names

    grouped = keras.layers.GroupQueryAttention(
        head_dim=K, num_query_heads=H, num_key_value_heads=2
    )
    grouped.build(X.shape, X.shape)
    layer = LinearAttention(H, K, num_key_value_heads=2)
    layer.build(X.shape, X.shape)
    layer.set_weights(grouped.get_weights())


@pytest.mark.parametrize("pieces", [[1] * T, [2, 1, 2]], ids=["steps", "pieces"])
def test_a_stream(pieces):
    """Compiled, in calls of one step and of several, with padding."""
    layer, _ = make()
    want = layer(X, X, value_mask=MASK, use_causal_mask=True)
    step = compiled(
        lambda x, mask, state: layer(x, x, value_mask=mask, state=state),
        layer.variables,
    )
    state, outputs = layer.initial_state(batch_size=B), []
    ends = np.cumsum(pieces)
    for start, end in zip(ends - pieces, ends):
        y, state = step(X[:, start:end], MASK[:, start:end], state)
        outputs.append(y)
    # what the contract asks of a stepped run
    error = np.abs(to_numpy(ops.concatenate(outputs, axis=1)) - to_numpy(want))
    assert error.max() < 1e-5


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16", "mixed_float16"])
def test_the_state_stays_float32(policy):
    """Keras casts what a layer is called with; the state must keep its digits."""
    layer, _ = make(dtype=policy)
    state = tuple(ops.full(x.shape, 1.0004) for x in layer.initial_state(B))
    mask = np.zeros((B, T), bool)  # padding leaves the state as it is
    run = compiled(lambda x: layer(x, x, value_mask=mask, state=state), layer.variables)
    y, after = run(X)
    assert keras.backend.standardize_dtype(y.dtype) == layer.compute_dtype
    for x in after:
        assert keras.backend.standardize_dtype(x.dtype) == "float32"
        assert_close("state", x, np.full(x.shape, 1.0004))


def test_symbolic_states():
    """The graph of a step knows the shapes and dtypes that come out."""
    layer = LinearAttention(H, K, num_key_value_heads=2, dtype="mixed_bfloat16")
    x = keras.Input((1, D), batch_size=B)
    state = tuple(
        keras.Input(s.shape[1:], batch_size=B) for s in layer.initial_state(B)
    )
    y, new = layer(x, x, state=state)
    model = keras.Model([x, *state], [y, *new])
    real = model([ops.convert_to_tensor(X[:, :1]), *layer.initial_state(B)])
    for symbolic, value in zip([y, *new], real, strict=True):
        assert tuple(symbolic.shape) == tuple(value.shape)
        dtype = keras.backend.standardize_dtype(value.dtype)
        assert keras.backend.standardize_dtype(symbolic.dtype) == dtype


def test_the_future_does_not_reach_the_past():
    """Of value and key too: d y[t] / d x[u] is exactly 0 for u > t."""
    layer, _ = make()
    _, found, _ = gradients(
        lambda *inputs: layer(*inputs, use_causal_mask=True)[:, 2], [X, X, X], [],
        mode="compiled",
    )  # fmt: skip
    for g in found:
        assert not g[:, 3:].any()
        assert g[:, 2].any()
    assert all(g[:, t].any() for g in found[1:] for t in (0, 1))


def test_padding_agrees_with_the_shorter_sequence():
    layer, _ = make()
    real = np.zeros((B, T), bool)
    real[:, :3] = True
    for name, mask, short in [
        ("right", real, X[:, :3]), ("left", real[:, ::-1].copy(), X[:, 2:])
    ]:  # fmt: skip
        y = layer(X, X, query_mask=mask, value_mask=mask, use_causal_mask=True)
        want = to_numpy(layer(short, short, use_causal_mask=True))
        assert_close(name, to_numpy(y)[mask].reshape(want.shape), want)


def test_the_masks_of_embeddings():
    """Keras fills all three; the caller's tensors keep theirs; the query's goes on."""
    layer, _ = make(shapes=((B, T, D), (B, T, D), (B, T, D)))
    embedding = keras.layers.Embedding(9, D, mask_zero=True)
    masks = [MASK, MASK[::-1], np.array([[True] * 5, [True, False] * 2 + [True]])]
    inputs = [embedding(np.where(mask, 1 + np.arange(T), 0)) for mask in masks]
    y = layer(*inputs)
    plain = [ops.convert_to_tensor(to_numpy(x)) for x in inputs]
    want = layer(
        *plain, query_mask=masks[0], value_mask=masks[1].copy(), key_mask=masks[2]
    )
    assert_close("outputs", to_numpy(y)[MASK], to_numpy(want)[MASK])
    assert np.abs(to_numpy(layer(*plain)) - to_numpy(want))[MASK].max() > 1e-3
    stepped, _ = layer(*inputs, state=layer.initial_state(B))
    # a layer that reads masks sees that they are there
    recurrent = keras.layers.GRU(2)
    for x, mask in zip([*inputs, y, stepped], [*masks, MASK, MASK]):
        masked = recurrent(to_numpy(x), mask=ops.convert_to_tensor(mask))
        assert_close("masked", recurrent(x), to_numpy(masked))


def test_a_query_that_sees_nothing_gets_the_bias():
    layer, weights = make()
    y = layer(X, X, value_mask=np.zeros((B, T), bool), use_causal_mask=True)
    assert_close("outputs", y, np.broadcast_to(weights[-1], y.shape))


def test_initializers():
    layer = LinearAttention(
        H, K, kernel_initializer="ones", bias_initializer=keras.initializers.Constant(3)
    )
    layer.build(X.shape, X.shape)
    for kernel, bias in zip(layer.weights[::2], layer.weights[1::2], strict=True):
        assert (to_numpy(kernel) == 1).all()
        assert (to_numpy(bias) == 3).all()
    layer = LinearAttention(H, K)  # one initializer, another draw for each kernel
    layer.build(X.shape, X.shape)
    query_kernel, key_kernel = map(to_numpy, layer.weights[:3:2])
    assert (query_kernel != key_kernel).any()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"num_heads": 0}, "`num_heads` must be a positive integer"),
        ({"key_dim": 2.5}, "`key_dim` must be a positive integer"),
        ({"value_dim": 0}, "`value_dim` must be a positive integer"),
        ({"output_shape": 0}, "`output_shape` must be a positive integer"),
        ({"num_key_value_heads": 0}, "`num_key_value_heads` must be a positive"),
        ({"num_key_value_heads": 3}, "`num_key_value_heads` must divide `num_heads`"),
    ],
)
def test_arguments_are_checked(options, match):
    with pytest.raises(ValueError, match=match):
        LinearAttention(**{"num_heads": H, "key_dim": K, **options})


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"query": X[0]}, r"`query` must have shape \(B, T, D\)"),
        ({"value": X[0]}, r"`value` must have shape \(B, S, D\)"),
        ({"key": X[0]}, r"`key` must have shape \(B, S, D\)"),
        ({"query_mask": MASK[:, 1:]}, "`query_mask` must have the first two sizes"),
        ({"value_mask": MASK[:, 1:]}, "`value_mask` must have the first two sizes"),
        ({"query": X[:, 1:], "use_causal_mask": True}, "as many keys as queries"),
    ],
)
def test_calls_are_checked(options, match):
    layer, _ = make()
    with pytest.raises(ValueError, match=match):
        layer(**{"query": X, "value": X, **options})


@pytest.mark.parametrize("name", ["query_mask", "value_mask", "key_mask"])
def test_masks_of_numbers_are_refused(name):
    layer, _ = make()
    with pytest.raises(TypeError, match=f"`{name}` must be boolean.*attention_bias"):
        layer(X, X, X, **{name: np.ones((B, T), "float32")})
