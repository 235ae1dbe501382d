"""Scaled dot-product attention by the path that suits it."""

from typing import Any

from keras import ops

from kseq._typing import Tensor
from kseq.backend import has_fused_attention
from kseq.ops.blockwise_attention import blockwise_attention
from kseq.ops.causal_attention import causal_attention
from kseq.ops.dot_product_attention import dot_product_attention

# pairs of a query and a key from which blocks are faster on both backends
BLOCKWISE_PAIRS = 512 * 512
_OF_CAUSAL = {"use_causal_mask", "offset"}
# what `keras.ops.dot_product_attention` does as kseq does
_FUSED_OPTIONS = {"scale", "use_causal_mask"}


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    blockwise: bool | None = None,
    **options: Any,
) -> Tensor:
    """`dot_product_attention` without the weights, in the way that suits its size.

    Args:
        query: float `(B, T, H, K)`.
        key: float `(B, S, G, K)`; G divides H.
        value: float `(B, S, G, V)`.
        blockwise: bool. True takes `blockwise_attention`, False holds the T x S
            weights, of a causal square those that are seen. None takes blocks where T
            and S are known and T S is at least 512 x 512; on JAX with a GPU or TPU it
            takes the fused kernel of `keras.ops.dot_product_attention` where nothing
            but a causal mask is asked for, since the kernel gives a query that may see
            nothing a mean of values.
        **options: the keyword arguments of `kseq.ops.dot_product_attention`.

    Returns:
        The output `(B, T, H, V)`.
    """
    if blockwise is None:
        if has_fused_attention() and _fusible(query, key, value, options):
            return ops.dot_product_attention(
                query,
                key,
                value,
                scale=options.get("scale"),
                is_causal=options.get("use_causal_mask", False),
            )
        length, source = query.shape[1], key.shape[1]
        # an exported program of JAX has lengths that are neither None nor numbers
        known = isinstance(length, int) and isinstance(source, int)
        blockwise = known and length * source >= BLOCKWISE_PAIRS
    if blockwise:
        return blockwise_attention(query, key, value, **options)
    if _is_causal_square(query, key, options):
        options = {k: v for k, v in options.items() if k not in _OF_CAUSAL}
        return causal_attention(query, key, value, **options)
    return dot_product_attention(query, key, value, **options)[0]


def _is_causal_square(query: Tensor, key: Tensor, options: dict[str, Any]) -> bool:
    """Whether a sequence of known length looks at its own past."""
    length, offset = query.shape[1], options.get("offset", 0)
    return (
        bool(options.get("use_causal_mask"))
        and isinstance(length, int)
        and length == key.shape[1]
        and isinstance(offset, int)
        and offset == 0
    )


def _fusible(
    query: Tensor, key: Tensor, value: Tensor, options: dict[str, Any]
) -> bool:
    """Whether the fused kernel gives the same answer."""
    asked = {name for name, option in options.items() if _is_asked(option)}
    square = query.shape[1] is not None and query.shape[1] == key.shape[1]
    return (
        asked <= _FUSED_OPTIONS
        and (square or "use_causal_mask" not in asked)
        and key.shape[3] == value.shape[3]
    )


def _is_asked(option: Any) -> bool:
    """Whether an option is no default: None, False and a plain 0 are."""
    return option is not None and not (isinstance(option, int | float) and not option)
