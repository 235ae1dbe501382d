"""Multi-head attention: a float64 reference, Keras's layers, captures, errors."""

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
from layers.multi_head_kinds import (
    KINDS,
    B,
    D,
    E,
    G,
    H,
    K,
    S,
    T,
    V,
    draw,
    holes,
    make,
    reference,
)

from kseq.backend import compiled
from kseq.diagnostics import capture
from kseq.layers import AlibiBias, MultiHeadAttention, RotaryEmbedding


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
    "window, not causal": (
        lambda: make("window")(draw(B, T, D), draw(B, T, D)),
        "`window` needs `use_causal_mask=True`",
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
