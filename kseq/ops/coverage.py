"""How much of a memory is attended to more than once."""

import keras
from keras import ops

from kseq._checks import check_mask
from kseq._typing import Tensor
from kseq.ops.masks import zero_padding


def coverage_loss(weights: Tensor, mask: Tensor | None = None) -> Tensor:
    """The part of each query's attention that falls where earlier queries looked.

        c_ts = sum_{u < t} w_us;  loss_t = sum_s min(w_ts, c_ts)

    Added to a loss, it keeps a decoder from attending to one place again and again
    (See et al., 2017, arXiv:1704.04368, eq. 12). It takes the weights of any attention.

    Args:
        weights: float `(B, T, S)`, attention weights of at least 0.
        mask: bool `(B, T)`. True is a real query. A padded one covers nothing and has
            the loss 0. None is all.

    Returns:
        float `(B, T)`, the loss of each query, between 0 and 1. The mean over real
        queries is its sum divided by their number.

    Numerics: computed and returned in at least float32.

    Raises:
        TypeError: `` `mask` must be boolean... ``
        ValueError: `` `mask` must have the first two sizes of what it masks... ``

    Example: a layer that adds it to the loss of its model.

    >>> class CoveringDecoder(keras.layers.Layer):
    ...     def __init__(self, decoder, **kwargs):
    ...         super().__init__(**kwargs)
    ...         self.decoder = decoder  # a kseq.layers.AttentionRNN
    ...
    ...     def call(self, sequences, memory):
    ...         outputs, weights = self.decoder(
    ...             sequences, memory, return_attention_scores=True)
    ...         self.add_loss(keras.ops.mean(kseq.ops.coverage_loss(weights)))
    ...         return outputs
    >>> cell = kseq.layers.AttentionCell(
    ...     kseq.layers.GRUCell(4), kseq.layers.CoverageAttention(8))
    >>> layer = CoveringDecoder(kseq.layers.AttentionRNN(cell))
    >>> outputs = layer(keras.ops.ones((2, 3, 5)), keras.ops.ones((2, 7, 6)))
    >>> tuple(outputs.shape), len(layer.losses)
    ((2, 3, 10), 1)
    """
    weights = ops.convert_to_tensor(weights)
    dtype = keras.backend.result_type(weights.dtype, "float32")
    weights = zero_padding(ops.cast(weights, dtype), check_mask("mask", mask))
    before = ops.cumsum(weights, axis=1)[:, :-1]
    coverage = ops.pad(before, [[0, 0], [1, 0], [0, 0]])
    return ops.sum(ops.minimum(weights, coverage), axis=-1)
