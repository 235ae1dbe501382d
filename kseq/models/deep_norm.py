"""DeepNorm: Post-LN with a scaled residual stream and smaller first weights."""

from typing import NamedTuple

import keras

from kseq.layers import FeedForward, MultiHeadAttention


class DeepNorm(NamedTuple):
    """Two constants of a stack.

    Attributes:
        alpha: what x is multiplied by on its way past a sublayer.
        beta: the gain of the first kernels of feed-forward layers, values and outputs.
    """

    alpha: float
    beta: float


def single_stack(num_layers: int) -> DeepNorm:
    """Of N layers alone: alpha = (2 N)^(1/4), beta = (8 N)^(-1/4).

    References:
        Wang et al., 2022, "DeepNet: scaling transformers to 1,000 layers",
        arXiv:2203.00555, figure 2.
    """
    return DeepNorm((2 * num_layers) ** 0.25, (8 * num_layers) ** -0.25)


def encoder_and_decoder(encoder: int, decoder: int) -> tuple[DeepNorm, DeepNorm]:
    """Of N encoder and M decoder layers.

        encoder: alpha = .81 (N^4 M)^(1/16), beta = .87 (N^4 M)^(-1/16)
        decoder: alpha = (3 M)^(1/4),        beta = (12 M)^(-1/4)

    References:
        As `single_stack`.
    """
    depth = (encoder**4 * decoder) ** (1 / 16)
    return (
        DeepNorm(0.81 * depth, 0.87 / depth),
        DeepNorm((3 * decoder) ** 0.25, (12 * decoder) ** -0.25),
    )


def scale_first_kernels(block: keras.layers.Layer, beta: float) -> None:
    """Multiplies the kernels that DeepNorm draws with gain beta, in a built block.

    A Glorot-uniform kernel with gain beta is beta times one without.
    """
    for part in (block.mixer, getattr(block, "cross_attention", None)):
        if isinstance(part, MultiHeadAttention):
            _scale(part.value_dense, beta)
            _scale(part.output_dense, beta)
    if isinstance(block.feed_forward, FeedForward):
        _scale(block.feed_forward.input_dense, beta)
        _scale(block.feed_forward.output_dense, beta)


def _scale(dense: keras.layers.Layer, beta: float) -> None:
    dense.kernel.assign(dense.kernel.value * beta)
