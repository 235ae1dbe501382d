"""What Transformer decoders share: they read tokens into caches, and forget them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

from kseq._checks import message
from kseq._typing import Tensor
from kseq.layers import TransformerDecoderBlock
from kseq.models.transformer_stack import TokenInput


class DecoderParts(NamedTuple):
    """The layers from token ids to hidden states; `final_norm` may be None."""

    embed: TokenInput
    blocks: list[TransformerDecoderBlock]
    final_norm: Any


class CachedDecoder:
    """Base: a subclass names its parts, and makes the state before the first token.

    The state is a dictionary: `"blocks"`, a cache of each; `"index"`, how many slots of
    the caches are taken; `"position"` `(B,)`, how many real tokens a row has; with a
    memory `"memory_mask"`. `logits(hidden)` is a method of the subclass.
    """

    logits: Callable[[Tensor], Tensor]

    def _decoder(self) -> DecoderParts:
        raise NotImplementedError(f"{type(self).__name__} must name its parts.")

    def step(
        self, token_ids: Tensor, state: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Any]]:
        logits, state = self.read(token_ids[:, None], state)
        return logits[:, 0], state

    def read(
        self, token_ids: Tensor, state: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Any]]:
        """Reads several tokens in one pass.

        Args:
            token_ids: int `(B, T)`, those after the ones that were read; 0 is padding.
            state: what was read so far.

        Returns:
            Logits `(B, T, N)` of the next tokens, and the state after the last.
        """
        embed, blocks, final_norm = self._decoder()
        mask = ops.not_equal(token_ids, 0)
        count = ops.cumsum(ops.cast(mask, "int32"), axis=1)
        positions = state["position"][:, None] + ops.maximum(count - 1, 0)
        x = embed(token_ids, positions)
        options = {key: state[key] for key in ("memory_mask",) if key in state}
        caches = []
        for block, cache in zip(blocks, state["blocks"], strict=True):
            x, cache = block(
                x, mask=mask, cache=cache, cache_index=state["index"], **options
            )
            caches.append(cache)
        if final_norm is not None:
            x = final_norm(x)
        state = {
            **state,
            "blocks": caches,
            "index": state["index"] + token_ids.shape[1],
            "position": state["position"] + count[:, -1],
        }
        return self.logits(x), state

    def rewind(self, state: dict[str, Any], counts: Tensor) -> dict[str, Any]:
        """The state without the last tokens that were read.

        Args:
            state: what was read so far.
            counts: int `(B,)`, how many of each row, none of them padding.

        Raises:
            ValueError: `` A model with a `window` can't forget... ``
        """
        windows = {getattr(b.mixer, "window", None) for b in self._decoder().blocks}
        if windows != {None}:
            raise ValueError(
                message(
                    "A model with a `window` can't forget what it has read: new tokens "
                    "stand in the places of old ones.",
                    windows=windows,
                )
            )
        # what stands in the slots behind the index is neither seen nor kept
        index, position = (state[key] - counts for key in ("index", "position"))
        return {**state, "index": index, "position": position}
