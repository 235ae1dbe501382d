"""What dot-product attention promises by either path: with all weights, in blocks."""

from functools import cache, partial

import keras
import numpy as np
import pytest
from helpers import (
    DTYPES,
    assert_close,
    assert_same,
    gradients,
    on_tensorflow,
    to_numpy,
)
from keras import ops
from ops.attention_cases import (
    CASES,
    MODE,
    QUERIES,
    VALUES,
    B,
    K,
    S,
    T,
    V,
    arrays,
    differences,
    expected,
    normal,
    run,
    some,
)
from reference.dot_product_attention import dot_product_attention as reference

from kseq.ops import (
    attention_cut,
    attention_statistics,
    blockwise_attention,
    dot_product_attention,
)


def whole(*args, **options):
    return dot_product_attention(*args, **options)[0]


PATHS = {"whole": whole, "blockwise": blockwise_attention}
paths = pytest.mark.parametrize("path", PATHS.values(), ids=list(PATHS))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Blocks of 2 queries and 3 keys: the last ones are partly filled."""
    monkeypatch.setattr(attention_cut, "QUERIES", 2)
    monkeypatch.setattr(attention_cut, "KEYS", 3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
@paths
def test_reference(path, name, dtype):
    y, found = run(path, name, dtype=dtype)
    assert y.dtype == dtype
    assert_close("outputs", y, expected(name, *arrays(name))[0], dtype)
    # the differences are good to some 1e-9, whatever the dtype
    assert_close("gradients", found, differences(name), gradient=True)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param("dropout", "compiled", marks=on_tensorflow),  # on JAX: above
        ("pairs of heads", "forward"),
        ("distance", "forward"),
        pytest.param("distance", "unknown", marks=on_tensorflow),
        pytest.param("dropout", "unknown", marks=on_tensorflow),
    ],
)
@paths
def test_compiled(path, name, mode):
    y, found = run(path, name, mode)
    assert_close("outputs", y, expected(name, *arrays(name))[0])
    assert_close("gradients", found, differences(name), gradient=True)


@on_tensorflow
@paths
def test_one_program_for_every_length(path):
    """T and S unknown: fewer than a block, and several that are partly filled."""
    import tensorflow as tf

    shapes = (None, None, 4, K), (None, None, 2, K), (None, None, 2, V)
    program = tf.function(
        partial(path, use_causal_mask=True),
        jit_compile=True,
        input_signature=[tf.TensorSpec(shape) for shape in shapes],
        autograph=False,
    )
    for length, source in ((1, 1), (5, 4), (3, 11)):
        inputs = [
            normal(B, *shape)
            for shape in ((length, 4, K), (source, 2, K), (source, 2, V))
        ]
        y = program(*inputs)
        assert_close(f"{length}", y, reference(*inputs, use_causal_mask=True)[0])


@pytest.mark.parametrize(
    "options",
    [
        dict(value_mask=np.array([[False] * S, [True] * S])),
        dict(
            query_mask=QUERIES,
            attention_mask=some(B, 1, T, S) & (np.arange(T) > 1)[:, None],
        ),
        dict(use_causal_mask=True, window=2, offset=np.array([-3, 8])),
    ],
    ids=["no value", "no pair", "beyond the window"],
)  # fmt: skip
@paths
def test_a_query_that_sees_nothing(path, options):
    """0 exactly, and gradients of 0 for it."""
    inputs = arrays("plain")
    _, weights = reference(*inputs, **options)
    empty = (weights.sum(-1) == 0).transpose(0, 2, 1)  # (B, T, H)
    assert empty.any()
    assert not empty.all()
    call = partial(path, **options)
    y, (d_query, *others), _ = gradients(call, inputs, [], mode=MODE)
    assert not y[empty].any()
    assert not d_query[empty].any()
    assert all(np.isfinite(d).all() for d in others)


@cache
def with_padding(path, hidden):
    """Outputs and gradients with `hidden` in padded queries, keys, values, biases."""
    inputs = [*arrays("plain"), normal(B, 3, T, S)]
    pairs = QUERIES[:, :, None] & VALUES[:, None]
    real = QUERIES, VALUES, VALUES, np.broadcast_to(pairs[:, None], (B, 3, T, S))
    for x, mask in zip(inputs, real, strict=True):
        x[~mask] = hidden

    def call(query, key, value, bias, query_mask, value_mask):
        return path(
            query, key, value, attention_bias=bias, soft_cap=2.0,
            query_mask=query_mask, value_mask=value_mask,
        )  # fmt: skip

    return gradients(call, inputs, [], mode=MODE, extras=[QUERIES, VALUES])


@pytest.mark.parametrize("hidden", [np.nan, 1e4])
@paths
def test_padding_changes_no_bit(path, hidden):
    y, found, _ = with_padding(path, hidden)
    want, want_found, _ = with_padding(path, 0.5)
    assert_same("outputs", y, want)
    assert_same("gradients", found, want_found)


LEAKS = {
    "window": dict(window=3, groups=2, sinks=normal(4), distance_bias=normal(4, 15)),
    "bias and mask": dict(bias=normal(1, 4, 7, 9), attention_mask=some(2, 7, 9)),
    "dropout": dict(dropout=0.3, seed=np.array([1, 2]), soft_cap=2.0),
}


@pytest.mark.parametrize("name", LEAKS)
@paths
def test_no_leak_from_the_future(path, name):
    """With two cached keys: query t sees the keys up to t + 2, and its own."""
    options = dict(LEAKS[name])
    groups, bias = options.pop("groups", 4), options.pop("bias", None)
    first, changed = 4, normal(3, seed=9)  # the first query that may change
    shapes = (B, 7, 4, K), (B, 9, groups, K), (B, 9, groups, V)
    inputs = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]

    def call(query, key, value):
        y = path(
            query, key, value, use_causal_mask=True, offset=2, attention_bias=bias,
            **options,
        )  # fmt: skip
        return y[:, :first], y[:, first:]

    later = [x.copy() for x in inputs]
    for x, start in zip(later, (first, first + 2, first + 2)):
        x[:, start:] += changed[0] + 1
    early = lambda outputs: ops.sum(outputs[0] * outputs[0])
    (want, rest), found, _ = gradients(call, inputs, [], mode=MODE, loss=early)
    (got, other), _, _ = gradients(call, later, [], mode=MODE, loss=early)
    assert_same("outputs before", got, want)
    assert np.abs(other - rest).max() > 0.01
    for d, start in zip(found, (first, first + 2, first + 2)):
        assert not d[:, start:].any()
        assert d[:, :start].any()


@pytest.mark.parametrize("window", [1, 3])
@paths
def test_a_window_lets_that_many_keys_through(path, window):
    """The values are unit vectors, so that the output is the weights."""
    query = np.zeros((1, 7, 1, K), "float32")
    value = np.eye(7, dtype="float32")[None, :, None]
    y = path(query, query, value, use_causal_mask=True, window=window)
    weights = to_numpy(y)[0, :, 0]
    for i, row in enumerate(weights):
        seen = np.arange(max(0, i - window + 1), i + 1)
        assert_same("keys", np.flatnonzero(row), seen)
        assert_close("weights", row[seen], np.full(seen.size, 1 / seen.size))


@paths
def test_the_soft_cap_of_the_formulas(path):
    """F-A7: 60 under a cap of 50 is 41.68273035, its slope 0.30501999.

    A second key of that score by its bias alone gets the same weight.
    """
    query, key = (np.reshape(x, (1, -1, 1, 1)) for x in ([60.0], [1.0, 0.0]))
    bias = np.array([0, 41.68273035]).reshape(1, 1, 1, 2)
    value = np.array([1.0, 0.0]).reshape(1, 2, 1, 1)
    inputs = [x.astype("float32") for x in (query, key, value, bias)]
    call = lambda q, k, v, b: path(q, k, v, attention_bias=b, scale=1, soft_cap=50.0)
    y, (d_query, *_, d_bias), _ = gradients(call, inputs, [], mode=MODE, loss=ops.sum)
    assert_close("output", y, np.full((1, 1, 1, 1), 0.5))
    assert_close("slope", d_query[0, 0, 0, 0] / 0.25, 0.30501999)
    assert_close("of the bias", d_bias[0, 0, 0], [0.25, -0.25], gradient=True)


@pytest.mark.parametrize(
    ("sink", "want"),
    [
        (0.5, [0.21309730, 0.57925853, 0.07839412]),
        (0.0, [0.22451524, 0.61029569, 0.08259454]),
    ],
)
@paths
def test_the_sinks_of_the_formulas(path, sink, want):
    """F-A8; a sink of 0 is the softmax plus one."""
    key = np.array([1, 2, 0], "float32").reshape(1, 3, 1, 1)
    value = np.eye(3, dtype="float32")[None, :, None]
    y = path(
        np.ones((1, 1, 1, 1), "float32"), key, value, scale=1, sinks=np.array([sink])
    )
    assert_close("weights", y[0, 0, 0], want)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@paths
def test_half_precision(path, dtype):
    """Scores of width 64 and of inputs 400 times as large do not fit in float16."""
    inputs = [normal(2, n, 2, 64, seed=n) for n in (T, S)]
    inputs = [np.concatenate([x, 400 * x]) for x in (*inputs, inputs[1] + 1)]
    inputs = [ops.cast(x, dtype) for x in inputs]
    y, found, _ = gradients(
        partial(path, use_causal_mask=True, offset=1), inputs, [], mode=MODE
    )
    want, _ = reference(*map(to_numpy, inputs), use_causal_mask=True, offset=1)
    assert_close("outputs", y[:2], want[:2], dtype)
    assert np.isfinite(y).all()
    assert all(np.isfinite(d).all() for d in found)
    out = path(*inputs)
    assert keras.backend.standardize_dtype(out.dtype) == dtype


@paths
def test_the_order_of_the_keys_does_not_matter(path):
    query, key, value = arrays("plain")
    order = np.random.default_rng(2).permutation(S)
    got = path(query, key[:, order], value[:, order])
    assert_close("outputs", got, to_numpy(path(query, key, value)))


@paths
def test_no_dropout_needs_no_seed(path):
    inputs = arrays("plain")
    assert_same("outputs", path(*inputs, dropout=0.0), path(*inputs))


BAD = {
    "query rank": (dict(query=(B, T, K)), r"`query` must have shape \(B, T, H, K\)"),
    "key rank": (dict(key=(B, S, K)), r"`key` must have shape \(B, S, G, K\)"),
    "value rank": (dict(value=(B, S, V)), r"`value` must have shape \(B, S, G, V\)"),
    "heads": (dict(query=(B, T, 3, K)), "heads that divides the query's.*heads=3"),
    "value heads": (dict(value=(B, S, 1, V)), "and `value` the same number"),
    "value length": (dict(value=(B, T, 2, V)), "`key` and `value` must have one"),
    "width": (dict(key=(B, S, 2, 5)), "must have one width per head.*key_width=5"),
    "window": (dict(window=3), "`window` needs `use_causal_mask=True`"),
    "no window": (
        dict(window=0, use_causal_mask=True), "`window` must be a positive integer"
    ),
    "soft cap": (dict(soft_cap=0.0), "`soft_cap` must be positive.*soft_cap=0.0"),
    "seed": (dict(dropout=0.1), "`dropout` needs a `seed` of two integers"),
    "one seed": (dict(dropout=0.1, seed=3), "`dropout` needs a `seed` of two integers"),
    "rate": (dict(dropout=1.0), r"`dropout` must be a probability in \[0, 1\)"),
    "mask rank": (
        dict(attention_mask=np.ones((T, S), bool)),
        r"`attention_mask` must have shape \(B, T, S\) or \(B, H, T, S\)",
    ),
    "mask length": (
        dict(attention_mask=np.ones((B, 1, S), bool)),
        r"`attention_mask` must .*shape=\(2, 1, 7\), expected=\(2, 5, 7\)",
    ),
    "mask heads": (
        dict(attention_mask=np.ones((B, 2, T, S), bool)), "`attention_mask` must have"
    ),
    "bias rank": (
        dict(attention_bias=normal(B, T, S)),
        r"`attention_bias` must have shape \(B, H, T, S\)",
    ),
    "bias length": (
        dict(attention_bias=normal(B, 4, T, 1)),
        r"`attention_bias` must .*shape=\(2, 4, 5, 1\), expected=\(2, 4, 5, 7\)",
    ),
    "distances": (
        dict(distance_bias=normal(4, T + S)),
        r"`distance_bias` must have shape \(H, T \+ S - 1\).*expected=\(4, 11\)",
    ),
    "sinks": (dict(sinks=normal(2)), r"`sinks` must .* \(H,\).*expected=\(4,\)"),
    "query mask": (
        dict(query_mask=np.ones((B, S), bool)), "`query_mask` must have the first two"
    ),
    "value mask": (
        dict(value_mask=np.ones((B, T), bool)), "`value_mask` must have the first two"
    ),
}  # fmt: skip
every = pytest.mark.parametrize(
    "function", [*PATHS.values(), attention_statistics], ids=[*PATHS, "statistics"]
)


@pytest.mark.parametrize("name", BAD)
@every
def test_errors(function, name):
    options, match = dict(BAD[name][0]), BAD[name][1]
    shapes = {"query": (B, T, 4, K), "key": (B, S, 2, K), "value": (B, S, 2, V)}
    shapes |= {x: options.pop(x) for x in shapes if x in options}
    inputs = {x: np.ones(shape, "float32") for x, shape in shapes.items()}
    if function is attention_statistics:
        if name.startswith("value ") and name != "value mask":
            pytest.skip("takes no value")
        del inputs["value"]
    with pytest.raises(ValueError, match=match):
        function(**inputs, **options)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("query_mask", (B, T)), ("value_mask", (B, S)), ("attention_mask", (B, T, S))],
)
@every
def test_masks_of_numbers_are_refused(function, name, shape):
    inputs = arrays("plain")[: 2 if function is attention_statistics else 3]
    with pytest.raises(TypeError, match=f"`{name}` must be boolean"):
        function(*inputs, **{name: np.ones(shape, "float32")})


@paths
def test_a_boolean_bias_is_refused(path):
    x = normal(B, T, 4, K)
    bias = np.ones((B, 4, T, T), bool)
    with pytest.raises(TypeError, match="`attention_bias` must be a number"):
        path(x, x, x, attention_bias=bias)
