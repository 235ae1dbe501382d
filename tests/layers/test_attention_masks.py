"""Masks of multi-head attention: padding, order, and those of the caller."""

import keras
import numpy as np
import pytest
from helpers import assert_close, assert_same, gradients, to_numpy
from layers.multi_head_kinds import B, D, K, S, T, draw, holes, make, reference

from kseq.layers import MultiHeadAttention


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
