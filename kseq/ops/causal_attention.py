"""Causal attention of a sequence on itself, without the keys that none may see."""

from typing import Any

from keras import ops

from kseq._typing import Tensor
from kseq.ops.attention_checks import check_pairs
from kseq.ops.dot_product_attention import dot_product_attention
from kseq.ops.masks import check_mask_shape

QUERIES = 128
_CUT = {"query_mask", "value_mask", "attention_mask", "attention_bias", "distance_bias"}


def causal_attention(
    query: Tensor, key: Tensor, value: Tensor, **options: Any
) -> Tensor:
    """`dot_product_attention` of T queries on as many keys, with the causal mask.

    128 queries at a time are compared with the keys up to the last of them, which
    leaves nearly half of the pairs out. The blocks are written out one after another:
    T must be known, and is better below a thousand.

    Args:
        query: float `(B, T, H, K)`.
        key: float `(B, T, G, K)`.
        value: float `(B, T, G, V)`.
        **options: the keyword arguments of `kseq.ops.dot_product_attention` without
            `offset` and `use_causal_mask`.

    Returns:
        The output `(B, T, H, V)`.
    """
    _check(query, key, options)
    length = query.shape[1]
    outputs = []
    for start in range(0, max(length, 1), QUERIES):
        end = min(start + QUERIES, length)
        output, _ = dot_product_attention(
            query[:, start:end],
            key[:, :end],
            value[:, :end],
            use_causal_mask=True,
            offset=start,
            **{
                name: _part(name, option, start, end, length)
                for name, option in options.items()
            },
        )
        outputs.append(output)
    return outputs[0] if len(outputs) == 1 else ops.concatenate(outputs, axis=1)


def _check(query: Tensor, key: Tensor, options: dict[str, Any]) -> None:
    """Refuses what would fit after it was cut."""
    pairs = "attention_mask", "attention_bias", "distance_bias", "sinks"
    check_pairs(query, key, *(options.get(name) for name in pairs))
    for name, x in (("query_mask", query), ("value_mask", key)):
        check_mask_shape(name, options.get(name), x)


def _part(name: str, option: Any, start: int, end: int, length: int) -> Any:
    """What queries start .. end and keys 0 .. end are told of an option."""
    if option is None or name not in _CUT:
        return option
    option = ops.convert_to_tensor(option)
    if name == "query_mask":
        return option[:, start:end]
    if name == "value_mask":
        return option[:, :end]
    if name in ("attention_mask", "attention_bias"):
        return option[..., start:end, :end]
    # of the distance bias, column n is for key - query = n - (T - 1)
    return option[:, length - end : length - start + end - 1]
