"""CoverageAttention: the coverage in the score, the loss in training, errors."""

import keras
import numpy as np
import pytest
from helpers import assert_close, to_numpy
from layers.alignments import data, make

import kseq


def test_the_coverage_worked_by_hand():
    """e = v tanh(w_c c + b), c the sum of .7, .2, .1 and .1, .8, .1."""
    layer = kseq.layers.CoverageAttention(1)
    query, memory = np.zeros((1, 1, 2), "float32"), np.zeros((1, 3, 2), "float32")
    layer.build(query.shape, memory.shape)
    layer.coverage_scale.assign([-2.0])
    layer.bias.assign([0.5])
    layer.scale.assign([3.0])
    coverage = layer.first_alignment(memory)
    for weights in ([0.7, 0.2, 0.1], [0.1, 0.8, 0.1]):
        coverage = layer.next_alignment(coverage, np.float32([weights]))
    assert_close("coverage", coverage[0], [[0.8, 1.0, 0.2]])
    _, weights = layer(query, memory, alignment=coverage, return_attention_scores=True)
    scores = np.exp(3 * np.tanh(0.5 - 2 * np.array([0.8, 1.0, 0.2])))
    assert_close("weights", weights[0, 0], scores / scores.sum())


def test_the_first_query_is_that_of_bahdanau():
    """It has covered nothing; b is 0 at first."""
    layer, (query, memory) = make("coverage"), data()
    layer.bias.assign(0 * layer.bias)
    plain = kseq.layers.BahdanauAttention(layer.units)
    plain.build(query.shape, memory.shape)
    plain.query_dense.set_weights(layer.query_dense.get_weights())
    plain.memory_dense.set_weights(layer.memory_dense.get_weights())
    plain.scale.assign(layer.scale)
    got = layer(query[:, :1], memory, return_attention_scores=True)
    want = plain(query[:, :1], memory, return_attention_scores=True)
    assert_close("context and weights", got, want)


class CoveringDecoder(keras.layers.Layer):
    """A decoder that adds the loss of its coverage to that of its model."""

    def __init__(self, decoder, **kwargs):
        super().__init__(**kwargs)
        self.decoder = decoder
        self.supports_masking = True

    def build(self, sequences_shape, memory_shape):
        self.decoder.build(sequences_shape, memory_shape)

    def call(self, sequences, memory, sequences_mask=None):
        outputs, weights = self.decoder(
            sequences, memory, sequences_mask=sequences_mask,
            return_attention_scores=True,
        )  # fmt: skip
        losses = kseq.ops.coverage_loss(weights, sequences_mask)
        self.add_loss(keras.ops.mean(keras.ops.sum(losses, axis=1)))
        return outputs


@pytest.mark.slow
def test_its_loss_is_trained_in_a_compiled_fit():
    """With the loss of the coverage alone, the decoder learns to look elsewhere."""
    cell = kseq.layers.AttentionCell(
        kseq.layers.GRUCell(8), kseq.layers.CoverageAttention(8)
    )
    decoder = kseq.layers.AttentionRNN(cell)
    ids, memory = keras.Input((3,), dtype="int32"), keras.Input((5, 4))
    embedding = kseq.layers.Embedding(6, 4, mask_zero=True)
    outputs = CoveringDecoder(decoder)(embedding(ids), memory)
    model = keras.Model([ids, memory], outputs)
    model.compile(
        keras.optimizers.Adam(0.1), loss=lambda y, x: 0 * x[..., 0], jit_compile=True
    )
    x = np.array([[1, 2, 3], [4, 5, 0]] * 4)
    inputs = [x, np.random.default_rng(0).normal(size=(8, 5, 4)).astype("float32")]
    labels = np.zeros((8, 3))
    losses = model.fit(inputs, labels, epochs=60, verbose=0).history["loss"]
    assert losses[-1] < 0.3 * losses[0]
    # what was trained is what the function says
    _, weights = decoder(embedding(x), inputs[1], return_attention_scores=True)
    want = to_numpy(kseq.ops.coverage_loss(weights, x != 0)).sum() / 8
    assert_close("loss", model.evaluate(inputs, labels, verbose=0), want)


def test_config():
    layer = kseq.layers.CoverageAttention(3, kernel_initializer="he_normal")
    config = layer.get_config()
    assert "normalize" not in config
    again = kseq.layers.CoverageAttention.from_config(config)
    assert again.get_config() == config


def test_errors():
    with pytest.raises(ValueError, match="`units` must be a positive integer"):
        kseq.layers.CoverageAttention(0)
