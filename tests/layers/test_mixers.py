"""What may stand in a block as a mixer, and how it is called."""

import keras
import numpy as np
import pytest
from helpers import assert_close, assert_same, to_numpy

from kseq.layers import (
    GRU,
    LSTM,
    BahdanauAttention,
    FeedForward,
    LinearAttention,
    MultiHeadAttention,
    Residual,
    TransformerDecoderBlock,
    TransformerEncoderBlock,
)

B, T, D = 2, 5, 6
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], bool)


class Plain(keras.layers.Layer):
    """Takes the sequence only, and builds nothing by itself."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(D)

    def call(self, x):
        return self.dense(x)


class Masked(Plain):
    """Keeps what it is told of the mask."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.seen = []

    def call(self, x, mask=None):
        self.seen.append({"mask": mask})
        return self.dense(x)


class Open(Masked):
    """Takes any argument."""

    def call(self, x, **kwargs):
        self.seen.append(kwargs)
        return self.dense(x)


class Pair(Plain):
    """An attention that has no masks and no causal mode."""

    def call(self, query, value):
        return self.dense(query) + keras.ops.mean(value, axis=1, keepdims=True)


MIXERS = {
    "Plain": Plain,
    "Masked": Masked,
    "Open": Open,
    "Residual": lambda: Residual(LSTM(D, return_sequences=True, return_state=True)),
    "Bidirectional": lambda: keras.layers.Bidirectional(
        LSTM(D // 2, return_sequences=True)
    ),
    "KerasGRU": lambda: keras.layers.GRU(D, return_sequences=True),
    "KerasConv1D": lambda: keras.layers.Conv1D(D, 3, padding="same"),
    "KerasGroupQueryAttention": lambda: keras.layers.GroupQueryAttention(3, 2, 1),
    "Sequential": lambda: keras.Sequential([keras.layers.Dense(D)]),
    "LinearAttention": lambda: LinearAttention(2, 3),
}


def draw(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype("float32")


@pytest.mark.parametrize("name", MIXERS)
def test_an_encoder_block_around_it(name):
    """A functional model has all weights at once; what is padded may be NaN."""
    block = TransformerEncoderBlock(MIXERS[name](), FeedForward(7))
    inputs = keras.Input((None, D))
    model = keras.Model(inputs, block(inputs))
    count, x = len(model.weights), draw(B, T, D)
    assert count == len(block.mixer.weights) + 8
    masks = {} if name == "Sequential" else {"mask": MASK}
    want = to_numpy(block(x, **masks))
    assert len(model.weights) == count
    x[~MASK] = np.nan
    if masks:
        assert_same("y", to_numpy(block(x, **masks)), want)


def test_what_a_layer_is_told():
    x, pairs = draw(B, T, D), np.ones((B, T, T), bool)
    masked, other = Masked(), Open()
    TransformerEncoderBlock(masked, FeedForward(7))(x, mask=MASK)
    assert_same("mask", masked.seen[-1]["mask"], MASK)
    TransformerEncoderBlock(other, FeedForward(7))(x, mask=MASK, attention_mask=pairs)
    assert set(other.seen[-1]) == {"mask", "attention_mask"}
    TransformerDecoderBlock(other, FeedForward(7))(x, positions=np.arange(T))
    assert set(other.seen[-1]) == {"mask", "positions"}
    # a feed-forward layer too: one that counts tokens must not count padding
    masked = Masked()
    TransformerEncoderBlock(Plain(), masked)(x, mask=MASK)
    assert_same("mask", masked.seen[-1]["mask"], MASK)


def test_a_recurrent_mixer_gives_its_outputs():
    layer, x = GRU(D, return_sequences=True, return_state=True), draw(B, T, D)
    block = TransformerEncoderBlock(layer, FeedForward(7), placement="none")
    block(x)
    for dense in (block.feed_forward.output_dense,):
        dense.set_weights([np.zeros(w.shape) for w in dense.weights])
    assert_close("y", block(x), x + to_numpy(layer(x)[0]))


def test_an_attention_without_masks():
    x = draw(B, T, D)
    block = TransformerEncoderBlock(Pair(), FeedForward(7))
    assert tuple(block(x, mask=MASK).shape) == (B, T, D)
    with pytest.raises(ValueError, match="`mixer` takes no `use_causal_mask`"):
        TransformerDecoderBlock(Pair(), FeedForward(7))(x)


def test_errors():
    x = draw(B, T, D)
    attention_mask = np.ones((B, T, T), bool)
    block = TransformerEncoderBlock(GRU(D, return_sequences=True), FeedForward(7))
    with pytest.raises(ValueError, match="`mixer` takes no `attention_mask`"):
        block(x, attention_mask=attention_mask)
    with pytest.raises(ValueError, match="`mixer` takes no `positions`"):
        TransformerDecoderBlock(LinearAttention(2, 3), FeedForward(7))(
            x, positions=np.arange(T)
        )
    for mixer in (
        GRU(D),
        GRU(3, return_sequences=True),
        MultiHeadAttention(2, 3, output_shape=3),
    ):
        with pytest.raises(ValueError, match="The outputs of `sublayer` must have"):
            TransformerEncoderBlock(mixer, FeedForward(7))(x)
    for mixer in (
        Plain(),
        GRU(D, return_sequences=True),
        keras.layers.MultiHeadAttention(2, 3),
        BahdanauAttention(3),
        keras.layers.Bidirectional(GRU(3, return_sequences=True, return_state=True)),
    ):
        block = TransformerDecoderBlock(mixer, FeedForward(7))
        with pytest.raises(ValueError, match="`mixer` can't go token by token"):
            block.empty_cache(B, T)
