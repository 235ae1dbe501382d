"""Transformer encoder, and models with a head on it."""

from typing import Any

import keras
from keras import ops

from kseq._checks import check_rate, check_size
from kseq._typing import Tensor
from kseq.layers import Dropout, SequencePooling
from kseq.layers.blocks.normalization import make_norm
from kseq.models.deep_norm import single_stack
from kseq.models.estimate import Stack
from kseq.models.transformer_builder import TransformerBuilder
from kseq.models.transformer_model import TransformerModel
from kseq.models.transformer_stack import StackOptions, TokenInput


@keras.saving.register_keras_serializable(package="kseq")
class TransformerEncoder(TransformerBuilder):
    """Transformer encoder: each token sees the whole row.

        x = E[ids];  x = block_i(x), i = 1..L;  y = LN(x)

    The outputs are hidden states. `classifier`, `tagger` and `masked_lm` make models
    with a head on them, which share its weights. `estimate(batch_size, length)` says
    what a training step takes, without a head.

    Id 0 is padding, on either side. `TransformerLM` says what the placements of the
    norms ask of the learning rate. To copy a model, use
    `from_config(model.get_config())`.

    Args:
        vocabulary_size: int. N, number of ids, padding included.
        num_layers: int. L.
        hidden_dim: int. D.
        num_heads: int. H, which divides D.
        intermediate_dim: int. Width of the feed-forward layers. Defaults to `4 D`.
        num_key_value_heads: int. Heads of keys and values, which divides H. Defaults
            to `num_heads`.
        positions: `"rotary"`, `"alibi"`, `"t5"`, `"sinusoidal"`, `"none"` or a position
            layer, such as `kseq.layers.PositionEmbedding(512)` for learned ones.
            Sinusoids come with embeddings that are multiplied by sqrt(D). Defaults to
            `"rotary"`.
        activation: that of `kseq.layers.FeedForward`. Defaults to `"gelu"`.
        norm: `"layer"` or `"rms"`. Defaults to `"layer"`.
        placement: `"pre"`, `"post"`, `"sandwich"` or `"deepnorm"`. Defaults to `"pre"`.
        dropout: probability in [0, 1), of embeddings, attention weights and each
            sublayer's outputs. Defaults to `0.0`.
        use_bias: bool. Whether projections have biases. Defaults to `True`.
        kernel_initializer: that of the kernels of all blocks, such as GPT-2's and
            BERT's `RandomNormal(stddev=0.02)`. Defaults to `"glorot_uniform"`.
        remat: bool. True computes the activations of a block again in the backward
            pass, rather than keep them. Defaults to `False`.
        trainable: bool. Whether its weights are trained. Defaults to `True`.

    Call arguments:
        inputs: int `(B, T)`.

    Returns:
        Hidden states `(B, T, D)`.

    Masking: made from id 0 and told to every block; the outputs carry the Keras mask.

    Raises:
        ValueError: `` `num_heads` must divide `hidden_dim`. ``, `` `positions` must be
            one of 'rotary', ... `` (`placement`, `norm` and `activation` alike), and
            for sizes that are not positive integers.

    Example:

    >>> encoder = kseq.models.TransformerEncoder(
    ...     vocabulary_size=30, num_layers=2, hidden_dim=16, num_heads=2)
    >>> ids = np.array([[5, 6, 7, 0]])
    >>> tuple(encoder(ids).shape)
    (1, 4, 16)
    >>> tuple(encoder.classifier(3)(ids).shape), tuple(encoder.masked_lm()(ids).shape)
    ((1, 3), (1, 4, 30))

    References:
        Vaswani et al., 2017, arXiv:1706.03762; Devlin et al., 2019, "BERT",
        arXiv:1810.04805 (the heads).
    """

    OWN_ARGUMENTS = ("vocabulary_size",)

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        hidden_dim: int,
        num_heads: int,
        *,
        intermediate_dim: int | None = None,
        num_key_value_heads: int | None = None,
        positions: Any = "rotary",
        activation: str = "gelu",
        norm: str = "layer",
        placement: str = "pre",
        dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        remat: bool = False,
        name: str | None = None,
        trainable: bool = True,
        dtype: Any = None,
    ) -> None:
        self.vocabulary_size = check_size("vocabulary_size", vocabulary_size)
        options = StackOptions(
            num_layers=num_layers,
            hidden_dim=hidden_dim,
            num_heads=num_heads,
            intermediate_dim=intermediate_dim,
            num_key_value_heads=num_key_value_heads,
            positions=positions,
            activation=activation,
            norm=norm,
            placement=placement,
            dropout=dropout,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            remat=remat,
            dtype=dtype,
        )
        self._take(options)
        scheme = options.scheme(causal=False)
        self.token_embedding = options.embedding(
            self.vocabulary_size, scheme, "token_embedding"
        )
        self.blocks = options.encoder_blocks("block", single_stack(num_layers))
        self.final_norm = options.final_norm("final_norm")
        token_ids = keras.Input((None,), dtype="int32", name="token_ids")
        mask = ops.not_equal(token_ids, 0)
        embed = TokenInput(
            "token_positions",
            self.token_embedding,
            scheme,
            options.embedding_dropout(),
        )
        x = embed(token_ids)
        for block in self.blocks:
            x = block(x, mask=mask)
        if self.final_norm is not None:
            x = self.final_norm(x)
        super().__init__(inputs=token_ids, outputs=x, name=name, trainable=trainable)
        options.scale_first_kernels(self.blocks, single_stack(num_layers))

    def classifier(
        self, num_classes: int, *, pooling: str = "mean", dropout: float = 0.0
    ) -> keras.Model:
        """A model of one label a row, with this encoder's weights.

        Args:
            num_classes: int. C.
            pooling: `"mean"`, `"max"`, `"first"` or `"last"` of the real tokens.
                Defaults to `"mean"`.
            dropout: probability in [0, 1) before the last product. Defaults to `0.0`.

        Returns:
            `keras.Model` from ids `(B, T)` to logits `(B, C)`.
        """
        pooled = SequencePooling(
            pooling, dtype=self._stack_options.dtype, name="pooling"
        )(self.output, mask=ops.not_equal(self.input, 0))
        return self._with_head(pooled, num_classes, dropout, "classifier")

    def tagger(self, num_classes: int, *, dropout: float = 0.0) -> keras.Model:
        """A model of one label a token, with this encoder's weights.

        Args:
            num_classes: int. C. Label 0 is that of padding for
                `kseq.training.MaskedCrossentropy`.
            dropout: probability in [0, 1) before the last product. Defaults to `0.0`.

        Returns:
            `keras.Model` from ids `(B, T)` to logits `(B, T, C)`.
        """
        return self._with_head(self.output, num_classes, dropout, "tagger")

    def masked_lm(self) -> keras.Model:
        """A model that names the tokens of a row, hidden ones too (Devlin et al.).

            logits = LN(gelu(y W + b)) E^T

        Returns:
            `keras.Model` from ids `(B, T)` to logits `(B, T, N)`.
        """
        transform = keras.layers.Dense(
            self.hidden_dim,
            activation="gelu",
            dtype=self._stack_options.dtype,
            name="transform",
        )
        norm = make_norm(
            self.norm, 1e-5, dtype=self._stack_options.dtype, name="transform_norm"
        )
        logits = self.token_embedding(norm(transform(self.output)), reverse=True)
        return TransformerModel(self.input, logits, name=f"{self.name}_masked_lm")

    def _with_head(
        self, x: Tensor, num_classes: int, dropout: float, name: str
    ) -> keras.Model:
        dropout_layer = Dropout(
            check_rate("dropout", dropout),
            dtype=self._stack_options.dtype,
            name="head_dropout",
        )
        dense = keras.layers.Dense(
            check_size("num_classes", num_classes),
            dtype=self._stack_options.dtype,
            name=name,
        )
        outputs = dense(dropout_layer(x))
        return TransformerModel(self.input, outputs, name=f"{self.name}_{name}")

    def _stacks(self, batch: int, length: int) -> list[Stack]:
        return [self._stack(batch, length, causal=False)]

    def _logits_size(self) -> int:
        return 0  # a head has its own
