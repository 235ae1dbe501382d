"""Transformer encoder-decoder."""

from typing import Any

import keras
from keras import ops

from kseq._checks import check_size, message
from kseq._typing import Tensor
from kseq.generation import take_rows
from kseq.models.cached_decoder import CachedDecoder, DecoderParts
from kseq.models.deep_norm import encoder_and_decoder
from kseq.models.estimate import Stack
from kseq.models.seq2seq import Seq2Seq, check_marks
from kseq.models.transformer_builder import TransformerBuilder
from kseq.models.transformer_stack import StackOptions, TokenInput
from kseq.models.trunk_and_head import TrunkAndHead, make_head


@keras.saving.register_keras_serializable(package="kseq")
class TransformerSeq2Seq(CachedDecoder, TransformerBuilder, Seq2Seq, TrunkAndHead):
    """Transformer encoder-decoder over token ids (Vaswani et al.).

        H = LN(encoder blocks(E_s[source]))              (B, S, D)
        y = LN(decoder blocks(E_t[target], memory H))    (B, T, D)
        logits = y W

    W is the transposed target table with `tie_embeddings`; with `share_embeddings` one
    table serves source, target and logits, for one vocabulary. `TransformerLM` says
    what the placements of the norms ask of the learning rate; the default is Pre-LN,
    Vaswani's is `"post"`.

    `TransformerSeq2Seq.from_preset(name)` has the sizes of "vaswani-base" and
    "vaswani-big", with one table of 37,000 tokens and random weights. Their paper says
    65 and 213 million parameters; by its table 3 the shapes have 63,082,496 and
    214,245,376. `estimate(batch_size, length)` says what a training step takes.

    Id 0 is padding in source and target, on either side. To copy a model, use
    `from_config(model.get_config())`.

    Args:
        source_vocabulary_size: int. Number of source ids, padding included.
        target_vocabulary_size: int. N, number of target ids, padding included.
        num_layers: int. Blocks of the encoder, and of the decoder.
        hidden_dim: int. D.
        num_heads: int. H, which divides D.
        intermediate_dim: int. Width of the feed-forward layers. Defaults to `4 D`.
        num_key_value_heads: int. Heads of keys and values, which divides H. Defaults
            to `num_heads`.
        positions: `"sinusoidal"`, `"rotary"`, `"alibi"`, `"t5"`, `"none"` or a position
            layer of `kseq.layers`. Sinusoids come with embeddings that are multiplied
            by sqrt(D). Defaults to `"sinusoidal"`.
        activation: that of `kseq.layers.FeedForward`. Defaults to `"relu"`.
        norm: `"layer"` or `"rms"`. Defaults to `"layer"`.
        placement: `"pre"`, `"post"`, `"sandwich"` or `"deepnorm"`. Defaults to `"pre"`.
        dropout: probability in [0, 1), of embeddings, attention weights and each
            sublayer's outputs. Defaults to `0.0`.
        use_bias: bool. Whether projections have biases. Defaults to `True`.
        kernel_initializer: that of the kernels of all blocks, such as GPT-2's and
            BERT's `RandomNormal(stddev=0.02)`. Defaults to `"glorot_uniform"`.
        tie_embeddings: bool. Whether the logits use the target's table. Defaults to
            `True`.
        share_embeddings: bool. Whether source and target have one table. Defaults to
            `False`.
        start_id: int. The target id that decoding starts from. Defaults to `1`.
        end_id: int. The target id that ends a row. Defaults to `2`.
        remat: bool. True computes the activations of a block again in the backward
            pass, rather than keep them. Defaults to `False`.
        trainable: bool. Whether its weights are trained. Defaults to `True`.

    Call arguments:
        inputs: dict of two int arrays: `"source_ids"` `(B, S)` and `"target_ids"`
            `(B, T)`, the target shifted right: it begins with `start_id`, and the
            labels are the ids that follow.

    Returns:
        Logits `(B, T, N)`.

    Masking: made from id 0 and told to every block; the logits carry the target's
        Keras mask.

    Raises:
        ValueError: `` `num_heads` must divide `hidden_dim`. ``,
            `` `share_embeddings` needs one vocabulary... ``,
            `` `start_id` and `end_id` must be two different target ids... ``,
            `` `positions` must be one of 'rotary', ... `` (`placement`, `norm` and
            `activation` alike), and for sizes that are not positive integers.

    Example:

    >>> model = kseq.models.TransformerSeq2Seq(
    ...     source_vocabulary_size=30, target_vocabulary_size=42,
    ...     num_layers=2, hidden_dim=16, num_heads=2)
    >>> source, target = np.array([[4, 5, 2]]), np.array([[1, 7]])
    >>> tuple(model({"source_ids": source, "target_ids": target}).shape)
    (1, 2, 42)
    >>> model.generate(source, max_length=6).token_ids.shape[0]
    1

    References:
        Vaswani et al., 2017, "Attention is all you need", arXiv:1706.03762; Wang et
        al., 2022, "DeepNet", arXiv:2203.00555.
    """

    OWN_ARGUMENTS = (
        "source_vocabulary_size",
        "target_vocabulary_size",
        "tie_embeddings",
        "share_embeddings",
        "start_id",
        "end_id",
    )

    def __init__(
        self,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        num_layers: int,
        hidden_dim: int,
        num_heads: int,
        *,
        intermediate_dim: int | None = None,
        num_key_value_heads: int | None = None,
        positions: Any = "sinusoidal",
        activation: str = "relu",
        norm: str = "layer",
        placement: str = "pre",
        dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        tie_embeddings: bool = True,
        share_embeddings: bool = False,
        start_id: int = 1,
        end_id: int = 2,
        remat: bool = False,
        name: str | None = None,
        trainable: bool = True,
        dtype: Any = None,
    ) -> None:
        self.source_vocabulary_size = check_size(
            "source_vocabulary_size", source_vocabulary_size
        )
        self.target_vocabulary_size = check_size(
            "target_vocabulary_size", target_vocabulary_size
        )
        self.tie_embeddings = tie_embeddings
        self.share_embeddings = share_embeddings
        self.start_id, self.end_id = check_marks(
            start_id, end_id, target_vocabulary_size
        )
        if share_embeddings and source_vocabulary_size != target_vocabulary_size:
            raise ValueError(
                message(
                    "`share_embeddings` needs one vocabulary for source and target.",
                    source_vocabulary_size=source_vocabulary_size,
                    target_vocabulary_size=target_vocabulary_size,
                )
            )
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
        self._make_layers(options)
        source_ids = keras.Input((None,), dtype="int32", name="source_ids")
        target_ids = keras.Input((None,), dtype="int32", name="target_ids")
        memory, source_mask = self.encode(source_ids)
        hidden = self._hidden(target_ids, memory, source_mask)
        super().__init__(
            inputs={"source_ids": source_ids, "target_ids": target_ids},
            outputs=self.logits(hidden),
            name=name,
            trainable=trainable,
        )
        self._hidden_tensor = hidden
        for blocks, deep_norm in zip(
            (self.encoder_blocks, self.decoder_blocks),
            encoder_and_decoder(num_layers, num_layers),
            strict=True,
        ):
            options.scale_first_kernels(blocks, deep_norm)

    def _make_layers(self, options: StackOptions) -> None:
        encoder_scheme = options.scheme(causal=False)
        decoder_scheme = options.scheme(causal=True)
        self.source_embedding = options.embedding(
            self.source_vocabulary_size,
            encoder_scheme,
            "embedding" if self.share_embeddings else "source_embedding",
        )
        self.target_embedding = self.source_embedding
        if not self.share_embeddings:
            self.target_embedding = options.embedding(
                self.target_vocabulary_size, decoder_scheme, "target_embedding"
            )
        dropout = options.embedding_dropout()
        self._embed_source = TokenInput(
            "source_positions", self.source_embedding, encoder_scheme, dropout
        )
        self._embed_target = TokenInput(
            "target_positions", self.target_embedding, decoder_scheme, dropout
        )
        encoder, decoder = encoder_and_decoder(self.num_layers, self.num_layers)
        self.encoder_blocks = options.encoder_blocks("encoder", encoder)
        self.decoder_blocks = options.decoder_blocks(
            "decoder", decoder, cross_attention=True
        )
        self.encoder_norm = options.final_norm("encoder_norm")
        self.decoder_norm = options.final_norm("decoder_norm")
        self.head = make_head(
            self.target_embedding,
            self.tie_embeddings,
            use_bias=False,
            dtype=options.dtype,
        )

    def encode(self, source_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Reads the source.

        Args:
            source_ids: int `(B, S)`, 0 for padding.

        Returns:
            The memory `(B, S, D)` and its mask `(B, S)`.
        """
        mask = ops.not_equal(source_ids, 0)
        x = self._embed_source(source_ids)
        for block in self.encoder_blocks:
            x = block(x, mask=mask)
        return (x if self.encoder_norm is None else self.encoder_norm(x)), mask

    def _hidden(
        self, target_ids: Tensor, memory: Tensor, memory_mask: Tensor
    ) -> Tensor:
        mask = ops.not_equal(target_ids, 0)
        x = self._embed_target(target_ids)
        for block in self.decoder_blocks:
            x = block(x, memory, mask=mask, memory_mask=memory_mask)
        return x if self.decoder_norm is None else self.decoder_norm(x)

    def empty_state(self, source_ids: Tensor, max_length: int) -> dict[str, Any]:
        self._embed_target.check_length(max_length)
        memory, memory_mask = self.encode(source_ids)
        batch_size = ops.shape(source_ids)[0]
        return {
            "blocks": [
                block.empty_cache(batch_size, max_length, memory, memory_mask)
                for block in self.decoder_blocks
            ],
            "memory_mask": memory_mask,
            "index": ops.convert_to_tensor(0, "int32"),
            "position": ops.zeros((batch_size,), "int32"),
        }

    def _decoder(self) -> DecoderParts:
        return DecoderParts(self._embed_target, self.decoder_blocks, self.decoder_norm)

    def reorder(self, state: dict[str, Any], rows: Tensor) -> dict[str, Any]:
        """The state whose row i is row `rows[i]` of the same source."""
        blocks = [
            {**cache, "mixer": take_rows(cache["mixer"], rows)}
            for cache in state["blocks"]
        ]
        position = take_rows(state["position"], rows)
        return {**state, "blocks": blocks, "position": position}

    def _stacks(self, batch: int, length: int) -> list[Stack]:
        return [
            self._stack(batch, length, causal=False),
            self._stack(batch, length, causal=True, source=length),
        ]

    def _logits_size(self) -> int:
        return self.target_vocabulary_size
