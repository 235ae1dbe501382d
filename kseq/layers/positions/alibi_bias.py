"""Attention with linear biases."""

import keras
from keras import ops

from kseq._typing import Tensor
from kseq.layers.positions.relative_bias import RelativeBias
from kseq.ops.relative_bias import alibi_slopes
from kseq.ops.token_positions import check_integers


@keras.saving.register_keras_serializable(package="kseq")
class AlibiBias(RelativeBias):
    """A bias of attention that falls with the distance, at a slope for each head.

        b_h(q, k) = -m_h |k - q|

    with the slopes m_h of `kseq.ops.alibi_slopes`. Under a causal mask, which leaves
    keys k <= q, that is the paper's -m_h (q - k); without one it is symmetric. (The
    KerasHub layer adds m_h (k - S + 1), which differs by what softmax cancels, but
    under a causal mask only.) It has no weights.

    Args:
        num_heads: int. H.

    Call arguments:
        relative_positions: int, any shape `(...)`. Key position - query position.

    Returns:
        `(H, ...)`, float32 or better whatever the policy; added to scaled scores.

    Masking: none; distances are no tokens.

    Numerics: distances are exact up to 2**24 tokens.

    Raises:
        ValueError: `` `num_heads` must be a positive integer. ``
        TypeError: `` `relative_positions` must be integers. ``

    Example:

    >>> bias = kseq.layers.AlibiBias(2)
    >>> query, key = np.arange(3)[:, None], np.arange(5)
    >>> tuple(bias(key - query).shape)
    (2, 3, 5)

    References:
        Press et al., 2022, "Train short, test long: attention with linear biases
        enables input length extrapolation", arXiv:2108.12409, section 3.
    """

    def call(self, relative_positions: Tensor) -> Tensor:
        distance = ops.abs(check_integers("relative_positions", relative_positions))
        slopes = alibi_slopes(self.num_heads).astype(self.bias_dtype)
        slopes = slopes.reshape(-1, *[1] * len(distance.shape))  # (H, 1, ...)
        return -slopes * ops.cast(distance, self.bias_dtype)
