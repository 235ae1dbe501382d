"""LuongAttention: the paper's scores, the errors of its arguments."""

import keras
import numpy as np
import pytest
from helpers import DTYPES, assert_close, cotangent, gradients, set_weights_by_seed
from reference.attention import attend, dot_score, general_score
from reference.differences import numeric_gradients

import kseq

B, T, S, Q = 2, 3, 5, 4
SCORES = {"dot": (dot_score, Q), "general": (general_score, 6)}
scores = pytest.mark.parametrize("score", SCORES)
scales = pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])


def make(score, scaled, seed=0, dtype="float32"):
    """The layer and its weights in the order `(W,) (g)`."""
    layer = kseq.layers.LuongAttention(score, scaled=scaled, dtype=dtype)
    layer.build((B, T, Q), (B, S, SCORES[score][1]))
    set_weights_by_seed(layer, seed)
    parts = [layer.memory_dense.kernel] if score == "general" else []
    parts += [layer.gain] if scaled else []
    return layer, parts, [keras.ops.convert_to_numpy(part) for part in parts]


def data(score, seed, dtype="float32"):
    rng = np.random.default_rng(seed)
    shapes = [(B, T, Q), (B, S, SCORES[score][1])]
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def test_scores_by_hand():
    """Luong et al. (2015), eq. 8: q = (1, 2), h = (3, 1), W = ((1, 0), (2, -1))."""
    query, memory = np.array([[[1.0, 2]]]), np.array([[[3.0, 1]]])
    query, memory = query.astype("float32"), memory.astype("float32")
    dot = kseq.layers.LuongAttention("dot", scaled=True)
    dot.build(query.shape, memory.shape)
    assert_close("q.h", dot.scores(query, dot.project_memory(memory)), [[[5]]])
    dot.gain.assign(0.5)
    assert_close("g q.h", dot.scores(query, dot.project_memory(memory)), [[[2.5]]])
    general = kseq.layers.LuongAttention()
    general.build(query.shape, memory.shape)
    general.memory_dense.kernel.assign([[1, 0], [2, -1]])  # h W = (5, -1)
    got = general.scores(query, general.project_memory(memory))
    assert_close("q.hW", got, [[[3]]])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", [0, 1, 2])
@scales
@scores
def test_reference(score, scaled, seed, dtype):
    layer, _, weights = make(score, scaled, seed, dtype)
    query, memory = data(score, seed, dtype)
    mask = np.random.default_rng(seed).random((B, T, S)) < 0.6
    mask[0, 0] = False
    got = layer(query, memory, attention_mask=mask, return_attention_scores=True)
    want = attend(SCORES[score][0], weights, query, memory, mask)
    assert_close("context and weights", got, want, dtype)


@scores
def test_gradients_by_central_differences(score):
    layer, parts, weights = make(score, scaled=True)
    query, memory = data(score, 3)
    mask = np.array([[True] * 4 + [False], [False] * 5])
    seen = np.broadcast_to(mask[:, None], (B, T, S))

    def loss(query, memory, *weights):
        found = attend(SCORES[score][0], weights, query, memory, seen)
        return sum((y * cotangent(y, i)).sum() for i, y in enumerate(found))

    want = numeric_gradients(loss, [query, memory, *weights])
    _, d_inputs, d_weights = gradients(
        lambda query, memory: layer(
            query, memory, value_mask=mask, return_attention_scores=True
        ),
        [query, memory], parts,
    )  # fmt: skip
    assert_close("gradients", d_inputs + d_weights, want, gradient=True)


@scales
def test_dot_equals_keras(scaled):
    """`keras.layers.Attention` with the dot score, where every query sees a key."""
    query, memory = data("dot", 4)
    layer, _, _ = make("dot", scaled)
    theirs = keras.layers.Attention(use_scale=scaled)
    theirs.build([query.shape, memory.shape])
    if scaled:
        theirs.set_weights(layer.get_weights())
    mask = np.array([[True] * 5, [True, True, False, True, False]])
    got = layer(query, memory, value_mask=mask, return_attention_scores=True)
    want = theirs(
        [query, memory], mask=[None, keras.ops.convert_to_tensor(mask)],
        return_attention_scores=True,
    )  # fmt: skip
    assert_close("context and weights", got, want)


def test_float16_products_stay_finite():
    """Scores of 400 * 400 * 64 overflow float16."""
    layer = kseq.layers.LuongAttention("dot", dtype="float16")
    x = np.random.default_rng(0).normal(0, 400, (1, 5, 64)).astype("float16")
    context, weights = layer(x, x, return_attention_scores=True)
    assert_close("weights", weights, np.eye(5)[None])
    assert_close("context", context, x, "float16")


def test_errors():
    with pytest.raises(
        ValueError, match=r"`score` must be one of 'dot', 'general'\. R"
    ):
        kseq.layers.LuongAttention("concat")
    with pytest.raises(
        ValueError, match=r"query and value of one width.*score=\"gener"
    ):
        kseq.layers.LuongAttention("dot")(*data("general", 0))
