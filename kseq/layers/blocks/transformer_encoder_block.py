"""Block of a Transformer encoder."""

from functools import partial

import keras

from kseq._checks import check_mask, check_rank
from kseq._typing import Shape, Tensor
from kseq.layers.blocks.mixing import each_token, mix
from kseq.layers.blocks.transformer_block import TransformerBlock
from kseq.ops import zero_padding


@keras.saving.register_keras_serializable(package="kseq")
class TransformerEncoderBlock(TransformerBlock):
    """Two sublayers on the residual stream: one mixes tokens, one works on each.

        x = connection(x, mixer);  x = connection(x, feed_forward)

    `kseq.layers.SublayerConnection` says what the connection is: Pre-LN by default. The
    mixer sees the whole sequence. Any layer fits that maps `(B, T, D)` to itself: an
    attention, of kseq or Keras, is asked with the sequence as query, key and value; a
    recurrent layer needs `return_sequences=True` and width D.

    Args:
        mixer: layer that mixes the tokens, such as `kseq.layers.MultiHeadAttention`.
        feed_forward: layer that works on each token, such as
            `kseq.layers.FeedForward`.
        placement: where the norms stand: `"pre"`, `"post"`, `"sandwich"` or `"none"`.
            Defaults to `"pre"`.
        norm: `"layer"` or `"rms"`. Defaults to `"layer"`.
        norm_epsilon: float, inside the root of the norms. Defaults to `1e-5`.
        residual_scale: float, what x is multiplied by on its way past a sublayer.
            Defaults to `1.0`.
        layer_scale: float or None, where a learned scale of each sublayer's channels
            starts. Defaults to `None`, no scale.
        rezero: bool. True learns one scale a sublayer, from 0. Defaults to `False`.
        dropout: probability in [0, 1), of each sublayer's outputs; that of attention
            weights and inside the feed-forward layer is theirs. Defaults to `0.0`.
        stochastic_depth: probability in [0, 1) that a row skips a sublayer. Defaults
            to `0.0`.
        remat: bool. True keeps only the block's inputs for the gradient, and computes
            the rest again in the backward pass, with the same dropout: less memory
            for a third more work. Defaults to `False`.
        seed: int. Defaults to `None`.

    Call arguments:
        sequences: float `(B, T, D)`.
        mask: bool `(B, T)`. True is a real token. Filled from the Keras mask.
        attention_mask: bool `(B, T, T)` or `(B, H, T, T)`. True where a query may see a
            key. For a mixer that takes one.
        positions: int `(T,)` or `(B, T)`, for a mixer that takes them. None counts
            from 0.
        training: bool. True applies dropout.
        sequences_mask: what Keras fills in the place of `mask` where there are more
            tensors; leave it to Keras.

    Returns:
        `(B, T, D)`.

    Masking: padding counts as zeros, so it may hold anything. It is told to the mixer
        and changes no real output. The mask is passed on.

    Raises:
        TypeError: `` `mixer` must be a Keras layer. `` (`feed_forward` alike) and
            `` `mask` must be boolean... ``
        ValueError: `` `mixer` takes no `attention_mask`. `` (`positions` alike), and
            those of `kseq.layers.SublayerConnection`.

    Example:

    >>> block = kseq.layers.TransformerEncoderBlock(
    ...     kseq.layers.MultiHeadAttention(num_heads=2, key_dim=4),
    ...     kseq.layers.FeedForward(32, activation="gelu"))
    >>> tuple(block(keras.ops.ones((2, 5, 8))).shape)
    (2, 5, 8)

    References:
        Vaswani et al., 2017, "Attention is all you need", arXiv:1706.03762,
        section 3.1.
    """

    def build(self, sequences_shape: Shape) -> None:
        check_rank("sequences", sequences_shape, (3,), "(B, T, D)")
        self.feed_forward_connection = self.connection("feed_forward_connection", 1)
        self.build_parts(sequences_shape)
        self.feed_forward_connection.build(sequences_shape)

    def call(
        self,
        sequences: Tensor,
        mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        training: bool = False,
        sequences_mask: Tensor | None = None,
    ) -> Tensor:
        mask = check_mask("mask", sequences_mask if mask is None else mask)

        def body(x: Tensor, mask: Tensor | None = None, **options: Tensor) -> Tensor:
            mixer = partial(
                mix, self.mixer, mask=mask, causal=False, training=training, **options
            )
            feed_forward = partial(
                each_token, self.feed_forward, mask=mask, training=training
            )
            x = self.mixer_connection(x, sublayer=mixer, training=training)
            return self.feed_forward_connection(
                x, sublayer=feed_forward, training=training
            )

        return self.run(
            body,
            zero_padding(sequences, mask),
            mask=mask,
            attention_mask=attention_mask,
            positions=positions,
        )

    def compute_output_shape(self, sequences_shape: Shape) -> Shape:
        return sequences_shape
