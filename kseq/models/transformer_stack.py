"""What the Transformer builders make their layers from."""

from dataclasses import dataclass, fields
from typing import Any

import keras

from kseq._checks import check_choice, check_rate, check_size, message
from kseq._typing import Tensor
from kseq.layers import (
    Dropout,
    Embedding,
    FeedForward,
    MultiHeadAttention,
    PositionEmbedding,
    RotaryEmbedding,
    TransformerDecoderBlock,
    TransformerEncoderBlock,
)
from kseq.layers.blocks.normalization import make_norm
from kseq.models.deep_norm import DeepNorm, scale_first_kernels
from kseq.models.position_schemes import PositionScheme
from kseq.models.real_positions import RealPositions

PLACEMENTS = ("pre", "post", "sandwich", "deepnorm")


@dataclass
class StackOptions:
    """The arguments of a builder that say what its blocks are like, checked.

    `dtype` is the policy that they are made with.
    """

    num_layers: int
    hidden_dim: int
    num_heads: int
    intermediate_dim: int | None
    num_key_value_heads: int | None
    positions: Any
    activation: str
    norm: str
    placement: str
    dropout: float
    use_bias: bool
    kernel_initializer: Any
    remat: bool
    dtype: Any

    def __post_init__(self) -> None:
        check_size("num_layers", self.num_layers)
        check_size("hidden_dim", self.hidden_dim)
        check_size("num_heads", self.num_heads)
        if self.hidden_dim % self.num_heads:
            raise ValueError(
                message(
                    "`num_heads` must divide `hidden_dim`.",
                    num_heads=self.num_heads,
                    hidden_dim=self.hidden_dim,
                )
            )
        if self.head_dim % 2 and self._turns_whole_heads:
            raise ValueError(
                message(
                    "Rotary positions turn pairs: `hidden_dim / num_heads` must be "
                    "even.",
                    hidden_dim=self.hidden_dim,
                    num_heads=self.num_heads,
                )
            )
        check_choice("placement", self.placement, PLACEMENTS)
        check_rate("dropout", self.dropout)
        initializer = keras.initializers.get(self.kernel_initializer)
        if initializer is None:
            raise ValueError(
                message("`kernel_initializer` must be given.", kernel_initializer=None)
            )
        self.kernel_initializer = initializer
        self.dtype = keras.dtype_policies.get(self.dtype)

    @property
    def _turns_whole_heads(self) -> bool:
        if isinstance(self.positions, RotaryEmbedding):
            return self.positions.rotary_dim is None
        return bool(self.positions == "rotary")

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.hidden_dim // self.num_heads

    @property
    def feed_forward_dim(self) -> int:
        """F, given or 4 D."""
        given = self.intermediate_dim
        return 4 * self.hidden_dim if given is None else given

    def scheme(self, *, causal: bool) -> PositionScheme:
        """Where the positions go."""
        return PositionScheme(self.positions, self.num_heads, causal=causal)

    def encoder_blocks(
        self, name: str, deep_norm: DeepNorm
    ) -> list[TransformerEncoderBlock]:
        """Blocks that see the whole sequence."""
        return [
            TransformerEncoderBlock(
                self._attention("attention", self.scheme(causal=False)),
                self._feed_forward(),
                **self._block_options(f"{name}_{i}", deep_norm),
            )
            for i in range(self.num_layers)
        ]

    def decoder_blocks(
        self,
        name: str,
        deep_norm: DeepNorm,
        *,
        cross_attention: bool = False,
        window: int | None = None,
    ) -> list[TransformerDecoderBlock]:
        """Blocks that look back only, with attention over a memory or without."""
        return [
            TransformerDecoderBlock(
                self._attention("attention", self.scheme(causal=True), window),
                self._feed_forward(),
                cross_attention=(
                    self._attention("cross_attention") if cross_attention else None
                ),
                **self._block_options(f"{name}_{i}", deep_norm),
            )
            for i in range(self.num_layers)
        ]

    def scale_first_kernels(self, blocks: list[Any], deep_norm: DeepNorm) -> None:
        """Gives built blocks the first weights of DeepNorm, where it is asked for."""
        if self.placement == "deepnorm":
            for block in blocks:
                scale_first_kernels(block, deep_norm.beta)

    def final_norm(self, name: str) -> keras.layers.Layer | None:
        """The norm after the last block, where no block ends with one."""
        if self.placement in ("post", "deepnorm"):
            return None
        return make_norm(self.norm, 1e-5, dtype=self.dtype, name=name)

    def embedding(
        self, vocabulary_size: int, scheme: PositionScheme, name: str
    ) -> Embedding:
        """A table whose rows have the length of the stream that they make."""
        stddev = self.hidden_dim**-0.5 if scheme.scales_embeddings else 0.02
        return Embedding(
            vocabulary_size,
            self.hidden_dim,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=stddev),
            mask_zero=True,
            dtype=self.dtype,
            name=name,
        )

    def embedding_dropout(self) -> Dropout:
        """What follows embeddings and positions."""
        return Dropout(self.dropout, dtype=self.dtype, name="embedding_dropout")

    def _attention(
        self,
        name: str,
        scheme: PositionScheme | None = None,
        window: int | None = None,
    ) -> MultiHeadAttention:
        positions = {} if scheme is None else scheme.attention_options(self.dtype)
        return MultiHeadAttention(
            self.num_heads,
            self.head_dim,
            num_key_value_heads=self.num_key_value_heads,
            dropout=self.dropout,
            use_bias=self.use_bias,
            window=window,
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype,
            name=name,
            **positions,
        )

    def _feed_forward(self) -> FeedForward:
        return FeedForward(
            self.feed_forward_dim,
            activation=self.activation,
            use_bias=self.use_bias,
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype,
            name="feed_forward",
        )

    def _block_options(self, name: str, deep_norm: DeepNorm) -> dict[str, Any]:
        deep = self.placement == "deepnorm"
        return {
            "placement": "post" if deep else self.placement,
            "norm": self.norm,
            "residual_scale": deep_norm.alpha if deep else 1.0,
            "dropout": self.dropout,
            "remat": self.remat,
            "dtype": self.dtype,
            "name": name,
        }


# those of them that a model keeps as attributes: Keras would take positions for a layer
# of it, and its `dtype` is something else
STACK_ARGUMENTS = tuple(
    field.name
    for field in fields(StackOptions)
    if field.name not in ("positions", "dtype")
)


class TokenInput:
    """Token ids to the residual stream: embedding, scale, positions, dropout.

        x_t = E[id_t] s + p_t,  s = sqrt(D) with sinusoidal positions, else 1

    p_t is that of the t-th token of its row; padding does not count.

    Not a layer: its parts are layers of the model, which may use the table again for
    the logits. `name` is that of the layer of positions.
    """

    def __init__(
        self, name: str, embedding: Embedding, scheme: PositionScheme, dropout: Dropout
    ) -> None:
        self.embedding = embedding
        self.positions = scheme.embedding_layer(embedding.dtype_policy, name)
        self.real_positions = RealPositions(self._limit, name=f"real_{name}")
        self.dropout = dropout
        self.scale = embedding.output_dim**0.5 if scheme.scales_embeddings else 1.0

    @property
    def _limit(self) -> int | None:
        if isinstance(self.positions, PositionEmbedding):
            return self.positions.num_positions
        return None

    def __call__(self, token_ids: Tensor, positions: Tensor | None = None) -> Tensor:
        x = self.embedding(token_ids)
        if self.scale != 1:
            x = x * self.scale
        if self.positions is not None:
            if positions is None:
                positions = self.real_positions(token_ids)
            x = x + self.positions(x, positions=positions)
        return self.dropout(x)

    def check_length(self, max_length: int) -> None:
        """Refuses more tokens than there are learned positions.

        A compiled step, which does not know its position, could not.
        """
        if self._limit is not None:
            if check_size("max_length", max_length) > self._limit:
                raise ValueError(
                    message(
                        "There are fewer learned positions than `max_length`.",
                        max_length=max_length,
                        num_positions=self._limit,
                    )
                )
