"""BahdanauAttention: the paper's scores, worked values, Keras, errors."""

import keras
import numpy as np
import pytest
from helpers import DTYPES, assert_close, cotangent, gradients, set_weights_by_seed
from reference.attention import additive_score, attend
from reference.differences import numeric_gradients

import kseq

B, T, S, Q, D, U = 2, 3, 5, 4, 6, 7
forms = pytest.mark.parametrize("normalize", [False, True], ids=["plain", "normalized"])


def make(normalize, seed=0, dtype="float32"):
    """The layer and its weights in the order `W_q, W_k, v (, g, b)`."""
    layer = kseq.layers.BahdanauAttention(U, normalize=normalize, dtype=dtype)
    layer.build((B, T, Q), (B, S, D))
    set_weights_by_seed(layer, seed)
    parts = [layer.query_dense.kernel, layer.memory_dense.kernel, layer.scale]
    parts += [layer.gain, layer.bias] if normalize else []
    return layer, parts, [keras.ops.convert_to_numpy(part) for part in parts]


def data(seed, dtype="float32"):
    rng = np.random.default_rng(seed)
    query, memory = rng.normal(size=(B, T, Q)), rng.normal(size=(B, S, D))
    return query.astype(dtype), memory.astype(dtype)


@pytest.mark.parametrize(
    ("normalize", "want"),
    [
        (False, [-0.07206045, -0.46666145, -0.42323449]),
        (True, [-0.01641118, -0.18448905, -0.17240073]),
    ],
    ids=["plain", "normalized"],
)
def test_scores_worked_in_float64(normalize, want):
    """Bahdanau et al. (2015), appendix A.1.2; Raffel et al. (2017), eq. 13."""
    layer = kseq.layers.BahdanauAttention(2, normalize=normalize)
    query, memory = np.array([[[1.0, 2]]]), np.array([[[1.0, 0], [0, 1], [1, 1]]])
    layer.build(query.shape, memory.shape)
    layer.query_dense.kernel.assign([[0.5, -0.2], [0.1, 0.4]])
    layer.memory_dense.kernel.assign([[0.3, 0.6], [-0.5, 0.2]])
    layer.scale.assign([1, -1])
    if normalize:
        layer.gain.assign(0.7)
        layer.bias.assign([0.1, 0])
    query, memory = query.astype("float32"), memory.astype("float32")
    assert_close("e", layer.scores(query, layer.project_memory(memory)), [[want]])
    context, weights = layer(query, memory, return_attention_scores=True)
    softmax = np.exp(want) / np.exp(want).sum()
    assert_close("weights", weights, [[softmax]])
    assert_close("context", context, [softmax[None] @ memory[0]])
    if not normalize:  # the printed ones
        assert_close("weights", weights, [[[0.42055502, 0.28343259, 0.29601238]]])
        assert_close("context", context, [[[0.71656741, 0.57944498]]])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", [0, 1, 2])
@forms
def test_reference(normalize, seed, dtype):
    layer, _, weights = make(normalize, seed, dtype)
    query, memory = data(seed, dtype)
    mask = np.random.default_rng(seed).random((B, T, S)) < 0.6
    mask[0, 0] = False
    got = layer(query, memory, attention_mask=mask, return_attention_scores=True)
    want = attend(additive_score, weights, query, memory, mask)
    assert_close("context and weights", got, want, dtype)


@forms
def test_gradients_by_central_differences(normalize):
    layer, parts, weights = make(normalize)
    query, memory = data(3)
    mask = np.array([[True] * 4 + [False], [False] * 5])  # a row that sees nothing
    seen = np.broadcast_to(mask[:, None], (B, T, S))

    def loss(query, memory, *weights):
        found = attend(additive_score, weights, query, memory, seen)
        return sum((y * cotangent(y, i)).sum() for i, y in enumerate(found))

    want = numeric_gradients(loss, [query, memory, *weights])
    _, d_inputs, d_weights = gradients(
        lambda query, memory: layer(
            query, memory, value_mask=mask, return_attention_scores=True
        ),
        [query, memory], parts,
    )  # fmt: skip
    assert_close("gradients", d_inputs + d_weights, want, gradient=True)


def test_keras_without_projections():
    """With W_q = W_k = 1 and v = scale it is `AdditiveAttention`."""
    rng = np.random.default_rng(5)
    query, memory = (rng.normal(size=(B, n, Q)).astype("float32") for n in (T, S))
    theirs = keras.layers.AdditiveAttention()
    theirs.build([query.shape, memory.shape])
    scale = rng.normal(size=Q).astype("float32")
    theirs.set_weights([scale])
    layer = kseq.layers.BahdanauAttention(Q)
    layer.build(query.shape, memory.shape)
    layer.query_dense.kernel.assign(np.eye(Q))
    layer.memory_dense.kernel.assign(np.eye(Q))
    layer.scale.assign(scale)
    mask = np.array([[True] * 5, [True, True, False, True, False]])
    got = layer(query, memory, value_mask=mask, return_attention_scores=True)
    want = theirs(
        [query, memory], mask=[None, keras.ops.convert_to_tensor(mask)],
        return_attention_scores=True,
    )  # fmt: skip
    assert_close("context and weights", got, want)


def test_initial_gain_and_distinct_kernels():
    layer = kseq.layers.BahdanauAttention(4, normalize=True)
    layer.build((B, T, D), (B, S, D))
    assert_close("gain", layer.gain, 0.5)  # sqrt(1/4)
    kernels = layer.query_dense.get_weights(), layer.memory_dense.get_weights()
    assert (kernels[0][0] != kernels[1][0]).any()


def test_errors():
    with pytest.raises(ValueError, match="`units` must be a positive integer"):
        kseq.layers.BahdanauAttention(0)
    query, memory = data(0)
    layer, _, _ = make(False)
    with pytest.raises(ValueError, match=r"`query` must have shape \(B, T, Q\)"):
        layer(query[:, 0], memory)
    with pytest.raises(ValueError, match=r"`value` must have shape \(B, S, D\)"):
        layer(query, memory[0])
