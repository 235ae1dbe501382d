"""The positions of a Transformer, by name or by layer."""

from typing import Any

import keras

from kseq._checks import message
from kseq.layers import (
    AlibiBias,
    PositionEmbedding,
    RotaryEmbedding,
    SinePositionEncoding,
    T5RelativeBias,
)
from kseq.layers.positions.relative_bias import RelativeBias
from kseq.layers.recurrent.any_cell import part_config

SCHEMES = ("rotary", "alibi", "t5", "sinusoidal", "none")
PositionLayer = (
    RotaryEmbedding | RelativeBias | SinePositionEncoding | PositionEmbedding
)


class PositionScheme:
    """Where the positions of a stack go: into attention, or onto the embeddings.

    Args:
        positions: one of `SCHEMES`, or a layer: a `RotaryEmbedding`, a relative bias
            with as many heads as the stack, a `SinePositionEncoding` or a
            `PositionEmbedding`. Each attention has one of its own, made alike.
        num_heads: int. H.
        causal: bool. Whether queries look back only, which the buckets of
            `T5RelativeBias` depend on.
    """

    def __init__(self, positions: Any, num_heads: int, *, causal: bool) -> None:
        self._layer: keras.layers.Layer | None = None
        if isinstance(positions, PositionLayer):
            self._layer = positions
        elif positions == "rotary":
            self._layer = RotaryEmbedding()
        elif positions == "alibi":
            self._layer = AlibiBias(num_heads)
        elif positions == "t5":
            self._layer = T5RelativeBias(num_heads, bidirectional=not causal)
        elif positions == "sinusoidal":
            self._layer = SinePositionEncoding()
        elif positions != "none":
            names = ", ".join(map(repr, SCHEMES))
            raise ValueError(
                message(
                    f"`positions` must be one of {names}, or a position layer of "
                    "`kseq.layers`.",
                    fix="Learned positions are `kseq.layers.PositionEmbedding(L)`.",
                    positions=positions,
                )
            )

    @property
    def is_in_attention(self) -> bool:
        """Whether it is attention that knows the positions."""
        return isinstance(self._layer, RotaryEmbedding | RelativeBias)

    @property
    def scales_embeddings(self) -> bool:
        """Whether embeddings are multiplied by sqrt(D), as Vaswani et al. do."""
        return isinstance(self._layer, SinePositionEncoding)

    def attention_options(self, dtype: Any) -> dict[str, Any]:
        """`rotary` or `bias` of one `MultiHeadAttention`."""
        if isinstance(self._layer, RotaryEmbedding):
            return {"rotary": _copy(self._layer, dtype, "rotary")}
        if isinstance(self._layer, RelativeBias):
            return {"bias": _copy(self._layer, dtype, "bias")}
        return {}

    def embedding_layer(self, dtype: Any, name: str) -> keras.layers.Layer | None:
        """The layer whose outputs are added to the embeddings, if there is one."""
        if self._layer is None or self.is_in_attention:
            return None
        return _copy(self._layer, dtype, name)


def _copy(layer: keras.layers.Layer, dtype: Any, name: str) -> keras.layers.Layer:
    return type(layer).from_config({**layer.get_config(), "dtype": dtype, "name": name})


def positions_config(positions: Any) -> Any:
    """The argument of a builder as its `get_config` holds it."""
    return positions if isinstance(positions, str) else part_config(positions)


def positions_from_config(config: dict[str, Any]) -> dict[str, Any]:
    """A builder's config with its position layer made."""
    positions = config["positions"]
    if isinstance(positions, dict):
        positions = keras.saving.deserialize_keras_object(positions)
    return {**config, "positions": positions}
