"""Multi-head attention: a float64 reference, Keras's layers, caches, captures."""

import keras
import numpy as np
import pytest
from helpers import (
    assert_close,
    assert_same,
    gradients,
    on_tensorflow,
    set_weights_by_seed,
    to_numpy,
)
from keras import ops
from reference.dot_product_attention import dot_product_attention
from reference.positions import plain, rotated, slopes

from kseq.backend import compiled
from kseq.diagnostics import capture
from kseq.layers import AlibiBias, MultiHeadAttention, RotaryEmbedding, T5RelativeBias

B, T, S, D, E, H, G, K, V = 2, 5, 7, 6, 3, 4, 2, 4, 3


def draw(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype("float32")


def holes(*shape, seed=1):
    """A mask with Falses, and a True in each row."""
    mask = np.random.default_rng([seed, *shape]).random(shape) > 0.4
    mask[..., 0] = True
    return mask


def t5():
    return T5RelativeBias(H, num_buckets=8, max_distance=6, bidirectional=False)


KINDS = {
    "plain": {},
    "grouped": {"num_key_value_heads": G, "value_dim": V},
    "rotary": {"rotary": RotaryEmbedding},
    "alibi": {"bias": lambda: AlibiBias(H)},
    "t5": {"bias": t5, "num_key_value_heads": 1},
    "norm": {"query_key_norm": True, "soft_cap": 2.0, "sinks": True},
    "window": {"window": 3},
    "all": {
        "num_key_value_heads": G,
        "rotary": lambda: RotaryEmbedding(interleaved=True, rotary_dim=2),
        "bias": lambda: AlibiBias(H),
        "query_key_norm": True,
        "window": 2,
        "sinks": True,
    },
}


def make(kind="plain", **options):
    found = {**KINDS[kind], **options}
    made = {n: v() if callable(v) else v for n, v in found.items()}
    layer = MultiHeadAttention(H, K, **made)
    layer.build((B, T, D), (B, S, D))
    set_weights_by_seed(layer, 3)
    return layer


def normalized(x, scale):
    """RMS norm, with the epsilon inside the root."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale


def reference(layer, query, value, **masks):
    """In float64; the layer's parts are those of `KINDS`."""
    w = {w.path.split("/", 1)[1]: to_numpy(w).astype("float64") for w in layer.weights}

    def project(name, x):
        return np.einsum("btd,dhk->bthk", x, w[f"{name}/kernel"]) + w[f"{name}/bias"]

    q, k = project("query_dense", query), project("key_dense", value)
    v = project("value_dense", value)
    if layer.query_key_norm:
        q = normalized(q, w["query_norm/scale"])
        k = normalized(k, w["key_norm/scale"])
    if layer.rotary is not None:
        width = layer.rotary.rotary_dim or K
        q, k = (
            rotated(
                x,
                np.broadcast_to(np.arange(x.shape[1]), x.shape[:2]),
                plain(width, 1e4),
                layer.rotary.interleaved,
            )
            for x in (q, k)
        )
    bias = None
    if layer.bias is not None:
        distance = np.arange(k.shape[1])[None] - np.arange(q.shape[1])[:, None]
        if isinstance(layer.bias, AlibiBias):
            bias = -np.array(slopes(H))[:, None, None] * np.abs(distance)
        else:
            # 8 causal buckets up to a distance of 6: 0 1 2 3, then 4 of logarithms
            from reference.positions import bucket

            table = to_numpy(layer.bias.weights[0]).astype("float64")
            buckets = np.vectorize(lambda d: bucket(int(d), 8, 6, False))(distance)
            bias = np.moveaxis(table[buckets], -1, 0)
        bias = bias[None]
    y, weights = dot_product_attention(
        q,
        k,
        v,
        attention_bias=bias,
        soft_cap=layer.soft_cap,
        window=layer.window,
        sinks=w.get("sinks"),
        **masks,
    )
    kernel, offset = w["output_dense/kernel"], w["output_dense/bias"]
    return np.einsum("bthv,hvd->btd", y, kernel) + offset, weights


@pytest.mark.parametrize("blockwise", [False, True], ids=["plain", "blockwise"])
@pytest.mark.parametrize("kind", KINDS)
def test_self_attention(kind, blockwise):
    """Causal, over padding; outputs and weights, eager and compiled."""
    layer, x = make(kind, blockwise=blockwise), draw(B, T, D)
    mask = holes(B, T)
    want, weights = reference(
        layer, x, x, query_mask=mask, value_mask=mask, use_causal_mask=True
    )
    masks = {"query_mask": mask, "value_mask": mask, "use_causal_mask": True}
    y, found = layer(x, x, **masks, return_attention_scores=True)
    assert_close("y with weights", y, want)
    assert_close("weights", found, weights)
    run = compiled(lambda x: layer(x, x, **masks), layer.variables)
    assert_close("y", run(x), want)


@pytest.mark.parametrize("blockwise", [False, True], ids=["plain", "blockwise"])
@pytest.mark.parametrize("kind", ["grouped", "norm", "alibi"])
def test_cross_attention_with_every_mask(kind, blockwise):
    layer = make(kind, blockwise=blockwise)
    x, memory = draw(B, T, D), draw(B, S, D)
    masks = {
        "query_mask": holes(B, T),
        "value_mask": holes(B, S),
        "attention_mask": holes(B, T, S),
    }
    key_mask = holes(B, S, seed=2)
    seen = {**masks, "value_mask": masks["value_mask"] & key_mask}
    want, _ = reference(layer, x, memory, **seen)
    assert_close("y", layer(x, memory, **masks, key_mask=key_mask), want)


@pytest.mark.parametrize("mode", ["compiled", "forward"])
@pytest.mark.parametrize("kind", ["grouped", "all"])
def test_gradients_of_both_paths_agree(kind, mode):
    """Those of plain attention, eager; the paths' own oracles are in tests/ops."""
    x, mask = draw(B, T, D), holes(B, T)
    found = []
    for blockwise in (False, True):
        layer = make(kind, blockwise=blockwise)

        def call(x, layer=layer):
            return layer(x, x, value_mask=mask, query_mask=mask, use_causal_mask=True)

        found.append(
            gradients(
                call,
                [x],
                layer.trainable_variables,
                mode=mode if blockwise else "eager",
            )
        )
    assert_close("outputs", found[1][0], found[0][0])
    assert_close("gradients", found[1][1:], found[0][1:], gradient=True)


TWINS = {
    "MultiHeadAttention": lambda: keras.layers.MultiHeadAttention(H, K, V),
    "GroupQueryAttention": lambda: keras.layers.GroupQueryAttention(K, H, G),
}


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("name", TWINS)
def test_weights_move_from_and_to_keras(name, causal):
    """Outputs and gradients of the twin; scores on, where Keras masks right."""
    twin, x, memory = TWINS[name](), draw(B, T, D), draw(B, T, E)
    options = {"value_dim": V} if name == "MultiHeadAttention" else {}
    groups = {} if options else {"num_key_value_heads": G}
    layer = MultiHeadAttention(H, K, **options, **groups)
    masks = {"query_mask": holes(B, T), "value_mask": holes(B, T)}
    arguments = {"use_causal_mask": causal, "return_attention_scores": True}
    layer(x, memory)
    twin(x, memory, return_attention_scores=True)
    layer.set_weights(set_weights_by_seed(twin, 4))
    for got, want in zip(layer.get_weights(), twin.get_weights(), strict=True):
        assert_same("weight", got, want)

    def run(layer):
        real = masks["query_mask"][..., None]

        def call(x, memory):
            y, _ = layer(x, memory, **masks, **arguments)
            return ops.where(real, y, 0.0)  # of padded queries nothing is said

        return gradients(call, [x, memory], layer.trainable_variables)

    got, want = run(layer), run(twin)
    assert_close("outputs", got[0], want[0])
    assert_close("gradients", got[2], want[2], gradient=True)
    twin.set_weights(layer.get_weights())


def test_three_post_norm_blocks_keep_their_padding():
    """Pads get weight 0 in every block, and a pad embedding changes nothing.

    In such a stack Keras's layer deletes the mask of its caller's tensors, and the
    pads of the second and third block get weight.
    """
    ids = np.array([[1, 2, 3, 0, 0]])
    embedding = keras.layers.Embedding(4, D, mask_zero=True)
    attentions = [MultiHeadAttention(2, K) for _ in range(3)]
    norms = [keras.layers.LayerNormalization() for _ in range(3)]

    def run():
        x, found = embedding(ids), []
        for attention, norm in zip(attentions, norms, strict=True):
            y, weights = attention(x, x, return_attention_scores=True)
            x = norm(keras.layers.Add()([x, y]))
            found.append(to_numpy(weights))
        return to_numpy(x), found

    x, found = run()
    assert all(not weights[..., 3:].any() for weights in found)
    table = embedding.get_weights()[0]
    table[0] = 1e4
    embedding.set_weights([table])
    changed, _ = run()
    assert_same("real outputs", changed[:, :3], x[:, :3])


def test_masks_of_the_caller_stay():
    embedding = keras.layers.Embedding(4, D, mask_zero=True)
    x = embedding(np.array([[1, 2, 0]]))
    mask = np.array([[True, True, False]])
    y = MultiHeadAttention(2, K)(x, x)
    for tensor in (x, y):
        assert_same("mask", tensor._keras_mask, mask)


@pytest.mark.parametrize("blockwise", [False, True], ids=["plain", "blockwise"])
def test_a_query_that_sees_nothing_gives_the_bias_alone(blockwise):
    """0 before the output projection, with NaN in the padding."""
    layer, x = make(blockwise=blockwise), draw(B, T, D)
    mask = np.ones((B, T), bool)
    mask[1] = False
    x[1] = np.nan
    y, d_x, d_weights = gradients(
        lambda x: layer(x, x, value_mask=mask, query_mask=mask),
        [x],
        layer.trainable_variables,
    )
    bias = np.broadcast_to(to_numpy(layer.output_dense.bias), (T, D))
    assert_same("output", y[1], bias)
    assert all(np.isfinite(g).all() for g in [*d_x, *d_weights])


@pytest.mark.parametrize("blockwise", [False, True], ids=["plain", "blockwise"])
@pytest.mark.parametrize("kind", ["grouped", "window", "alibi", "norm"])
def test_the_future_does_not_reach_the_past(kind, blockwise):
    """A changed input leaves every output before it as it was, bit for bit."""
    layer, x = make(kind, blockwise=blockwise), draw(B, T, D)
    mask = holes(B, T, T)

    def run(x):
        options = {"use_causal_mask": True, "attention_mask": mask}
        return to_numpy(layer(x, x, **options))

    want = run(x)
    for u in (1, T - 1):
        changed = x.copy()
        changed[:, u] = 1e3
        y = run(changed)
        assert_same(f"before {u}", y[:, :u], want[:, :u])
        assert (y[:, u] != want[:, u]).any()


INDEX = {"scalar": lambda t: t, "rows": lambda t: np.full(B, t, "int32")}


@pytest.mark.parametrize("index", INDEX)
@pytest.mark.parametrize("kind", KINDS)
def test_cached_steps_equal_the_full_run(kind, index):
    """One token at a time, two at a time, and all at once; the window is a ring."""
    layer, x = make(kind), draw(B, 6, D)
    want = layer(x, x, use_causal_mask=True)

    @compiled_with(layer)
    def step(x, cache, t):
        return layer(x, x, use_causal_mask=True, cache=cache, cache_index=t)

    for size in (1, 2, 6):
        cache, found = layer.empty_cache(B, 6), []
        for t in range(0, 6, size):
            y, cache = step(x[:, t : t + size], cache, np.asarray(INDEX[index](t)))
            found.append(to_numpy(y))
        assert_close(f"{size} at a time", np.concatenate(found, 1), want)
        assert cache.key.shape[1] == min(6, layer.window or 6)


def compiled_with(layer):
    return lambda function: compiled(function, layer.variables)


def test_prompts_of_different_lengths():
    """Right-padded, with an index for each row: as each row alone."""
    layer, x, lengths = make("rotary"), draw(B, 6, D), np.array([3, 5], "int32")
    mask = np.arange(5) < lengths[:, None]
    prompt = np.where(mask[..., None], x[:, :5], np.nan)
    masks = {"query_mask": mask, "value_mask": mask}
    options = {"use_causal_mask": True}
    cache = layer.empty_cache(B, 6)
    _, cache = layer(
        prompt,
        prompt,
        **masks,
        **options,
        cache=cache,
        cache_index=np.zeros(B, "int32"),
    )
    new = x[np.arange(B), lengths][:, None]
    y, _ = layer(new, new, **options, cache=cache, cache_index=lengths)
    for b, length in enumerate(lengths):
        row = x[b : b + 1, : length + 1]
        assert_close(f"row {b}", y[b, 0], layer(row, row, **options)[0, -1])


def test_left_padding_with_positions():
    """The cache remembers what was padding."""
    layer, x = make("rotary"), draw(1, 4, D)
    options = {"use_causal_mask": True}
    want = layer(x, x, **options)[:, -1:]
    prompt = np.concatenate([np.full((1, 2, D), np.nan, "float32"), x[:, :3]], axis=1)
    mask = np.array([[False, False, True, True, True]])
    positions = np.array([[0, 0, 0, 1, 2]])
    _, cache = layer(
        prompt,
        prompt,
        query_mask=mask,
        value_mask=mask,
        positions=positions,
        **options,
        cache=layer.empty_cache(1, 6),
        cache_index=0,
    )
    last = x[:, 3:]
    y, _ = layer(
        last, last, **options, positions=np.array([[3]]), cache=cache, cache_index=5
    )
    assert_close("y", y, want)


def test_a_ring_goes_on_for_ever():
    """9 tokens through 3 slots, in chunks larger and smaller than the ring."""
    layer, x = make("window"), draw(B, 9, D)
    want = to_numpy(layer(x, x, use_causal_mask=True))
    cache, t = layer.empty_cache(B, 100), 0
    assert cache.key.shape[1] == 3
    for size in (4, 1, 3, 1):
        chunk = x[:, t : t + size]
        y, cache = layer(chunk, chunk, use_causal_mask=True, cache=cache, cache_index=t)
        assert_close(f"from {t}", y, want[:, t : t + size])
        t += size


def test_a_full_cache_is_not_written_over():
    """Eager: an error; compiled, where none can be raised: nothing is written."""
    layer, x = make(), draw(B, 2, D)
    cache = layer.empty_cache(B, 3)
    with pytest.raises(ValueError, match="The cache must have room for the new tokens"):
        layer(x, x, cache=cache, cache_index=2)
    with pytest.raises(ValueError, match="cache_index=2, tokens=2"):
        layer(x, x, cache=cache, cache_index=np.array([0, 2]))

    @compiled_with(layer)
    def step(x, cache, t):
        return layer(x, x, cache=cache, cache_index=t)[1]

    for new in step(x, cache, np.int32(2)), step(x, cache, np.int32(7)):
        assert not to_numpy(new.mask)[:, :2].any()
        assert not to_numpy(new.key)[:, :2].any()
    assert to_numpy(step(x, cache, np.int32(2)).mask)[:, 2].all()


def test_keys_and_values_of_another_layer():
    """Cross-layer attention: a layer without projections of its own for them."""
    owner, x, memory = make("grouped"), draw(B, T, D), draw(B, S, D)
    mask = holes(B, S)
    pair = owner.project_key_value(memory, value_mask=mask)
    reader = MultiHeadAttention(H, K, V, num_key_value_heads=G)
    reader.build((B, T, D))
    names = [w.path.split("/", 1)[1] for w in reader.weights]
    assert names == [f"{n}/{w}" for n in ("query_dense", "output_dense") for w in
                     ("kernel", "bias")]  # fmt: skip
    mine = {w.path.split("/", 1)[1]: w for w in owner.weights}
    reader.set_weights([mine[name] for name in names])
    want = owner(x, memory, value_mask=mask)
    assert_close("own", owner(x, key_value=pair, value_mask=mask), want)
    assert_close("another's", reader(x, key_value=pair, value_mask=mask), want)


def test_dropout_is_the_same_on_both_paths():
    x, found = draw(B, T, D), []
    for blockwise in (False, True):
        layer = make("grouped", dropout=0.4, seed=5, blockwise=blockwise)
        found.append(layer(x, x, use_causal_mask=True, training=True))
        still = layer(x, x, use_causal_mask=True)
        assert (to_numpy(found[-1]) != to_numpy(still)).any()
    assert_close("outputs", found[1], found[0])


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize("blockwise", [False, True], ids=["plain", "blockwise"])
def test_large_values_in_half_precision(half, blockwise):
    """Key width 64 and inputs of N(0, 1) * 400 stay finite."""
    layer = MultiHeadAttention(2, 64, dtype=half, blockwise=blockwise)
    x = 400 * draw(B, T, 64)
    y = to_numpy(layer(x, x, use_causal_mask=True))
    assert np.isfinite(y).all()


def test_kernels_are_drawn_as_matrices():
    """Glorot: 6 / (inputs + outputs) bounds the square of an entry."""
    layer = MultiHeadAttention(4, 16, num_key_value_heads=2, seed=0)
    layer.build((B, T, 48), (B, S, 40))
    for dense, inputs, outputs in (
        (layer.query_dense, 48, 64),
        (layer.key_dense, 40, 32),
        (layer.output_dense, 64, 48),
    ):
        largest = np.abs(to_numpy(dense.kernel)).max()
        bound = np.sqrt(6 / (inputs + outputs))
        assert 0.97 * bound < largest <= bound


def test_capture_of_weights_and_of_statistics():
    layer, x = make("grouped"), draw(B, T, D)
    want, weights = layer(x, x, use_causal_mask=True, return_attention_scores=True)
    with capture() as maps:
        y = layer(x, x, use_causal_mask=True)
    assert_close("y", y, want)
    assert_close("maps", maps, {layer.path: weights})
    with capture(statistics=True) as found:
        y = layer(x, x, use_causal_mask=True)
    assert_close("y", y, want)
    weights = to_numpy(weights).astype("float64")
    logs = np.log(np.where(weights > 0, weights, 1))
    (found,) = found.values()
    assert_close("entropy", found["entropy"], -(weights * logs).sum(-1))
    assert_close("max_weight", found["max_weight"], weights.max(-1))


@pytest.mark.parametrize("dtype", ["uint8", "int64"])
def test_positions_of_any_integer_type(dtype):
    """Distances to keys before the query are negative."""
    layer, x = make("alibi"), draw(B, T, D)
    positions = np.arange(T, dtype=dtype)
    want = layer(x, x)
    for given in ({"key_positions": positions}, {}):
        assert_close("y", layer(x, x, positions=positions, **given), want)
    pair = layer.project_key_value(x)
    last = layer(x[:, -1:], key_value=pair, positions=positions[-1:])
    assert_close("last", last, to_numpy(want)[:, -1:])


@pytest.mark.parametrize("shape", [(0, T, S), (B, 0, S), (B, T, 0)], ids=str)
def test_sizes_of_zero(shape):
    batch, length, source = shape
    y = make()(draw(batch, length, D), draw(batch, source, D))
    assert tuple(y.shape) == (batch, length, D)
    assert np.isfinite(to_numpy(y)).all()


@on_tensorflow
def test_float64():
    layer = MultiHeadAttention(H, K, dtype="float64")
    x = draw(B, T, D).astype("float64")
    layer(x, x)
    want, _ = reference(layer, x, x)
    assert_close("y", layer(x, x), want, "float64")


ERRORS = {
    "groups": (
        lambda: MultiHeadAttention(4, 3, num_key_value_heads=3),
        "`num_key_value_heads` must divide `num_heads`",
    ),
    "heads of the bias": (
        lambda: MultiHeadAttention(4, 3, bias=AlibiBias(2)),
        "`bias` must have as many heads as the layer",
    ),
    "rank": (lambda: make()(draw(T, D), draw(B, S, D)), "`query` must have shape"),
    "no value": (lambda: make()(draw(B, T, D)), "`value` or `key_value` must be given"),
    "cache without index": (
        lambda: make()(draw(B, 1, D), draw(B, 1, D), cache=make().empty_cache(B, 3)),
        "`cache` needs a `cache_index`",
    ),
    "cache and scores": (
        lambda: make()(
            draw(B, 1, D),
            draw(B, 1, D),
            cache=make().empty_cache(B, 3),
            cache_index=0,
            return_attention_scores=True,
        ),
        "`cache` can't be combined with `key_value`",
    ),
    "mask and ring": (
        lambda: make("window")(
            draw(B, 1, D),
            draw(B, 1, D),
            cache=make("window").empty_cache(B, 3),
            cache_index=0,
            attention_mask=np.ones((B, 1, 3), bool),
        ),
        "`attention_mask` can't be combined with the cache of a window",
    ),
    "window, not causal": (
        lambda: make("window")(draw(B, T, D), draw(B, T, D)),
        "`window` needs `use_causal_mask=True`",
    ),
    "cache of another batch": (
        lambda: make()(
            draw(B, 1, D),
            draw(B, 1, D),
            cache=make().empty_cache(3, 4),
            cache_index=0,
        ),
        r"`cache.key` must have shape \(2, 4, 4, 4\)",
    ),
    "negative index": (
        lambda: make()(
            draw(B, 1, D),
            draw(B, 1, D),
            cache=make().empty_cache(B, 4),
            cache_index=-1,
        ),
        "`cache_index` must not be negative",
    ),
    "index of another batch": (
        lambda: make()(
            draw(B, 1, D),
            draw(B, 1, D),
            cache=make().empty_cache(B, 4),
            cache_index=np.zeros(3, "int32"),
        ),
        r"`cache_index` must have shape \(2,\)",
    ),
    "positions, bias and cache": (
        lambda: make("alibi")(
            draw(B, 1, D),
            draw(B, 1, D),
            positions=np.array([7]),
            cache=make("alibi").empty_cache(B, 4),
            cache_index=0,
        ),
        "`positions` can't be combined with a `bias` and a cache",
    ),
    "another number of groups": (
        lambda: make()(
            draw(B, T, D), key_value=make("t5").project_key_value(draw(B, S, D))
        ),
        r"`key_value \(key\)` must have shape \(2, None, 4, 4\)",
    ),
    "projection before build": (
        lambda: MultiHeadAttention(2, 3).project_key_value(draw(B, S, D)),
        "The layer must be built with a `value`",
    ),
    "symbolic projection": (
        lambda: make().project_key_value(keras.Input((S, D))),
        "`project_key_value` can't be a step of a functional model",
    ),
    "rank at build": (
        lambda: MultiHeadAttention(2, 3)(draw(T, D), draw(T, D)),
        "`query` must have shape",
    ),
    "odd width": (
        lambda: MultiHeadAttention(2, 3, rotary=RotaryEmbedding()).build((B, T, D)),
        "A width of pairs must be even",
    ),
    "soft cap": (
        lambda: MultiHeadAttention(2, 3, soft_cap=0),
        "`soft_cap` must be positive",
    ),
    "length of the cache": (
        lambda: make().empty_cache(B, 0),
        "`length` must be a positive integer",
    ),
    "dropout": (lambda: MultiHeadAttention(4, 3, dropout=1.0), "`dropout` must be"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, match = ERRORS[name]
    with pytest.raises(ValueError, match=match):
        call()


def test_kinds_of_parts_are_checked():
    with pytest.raises(TypeError, match="`rotary` must be a RotaryEmbedding layer"):
        MultiHeadAttention(2, 3, rotary=10_000)
    one = draw(B, 1, D)
    with pytest.raises(TypeError, match="`cache` must be a KeyValueCache"):
        make()(one, one, cache=(1, 2, 3), cache_index=0)
    with pytest.raises(TypeError, match="`key_value` must be the pair"):
        make()(one, key_value=(1, 2, 3))
    with pytest.raises(TypeError, match="`value_mask` must be boolean"):
        make()(draw(B, T, D), draw(B, S, D), value_mask=np.ones((B, S)))
