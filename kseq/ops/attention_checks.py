"""What attention over pairs refuses."""

import keras
import numpy as np

from kseq._checks import check_rank, check_rate, check_size, message
from kseq._typing import Shape, Tensor
from kseq.ops.masks import PAIR_LAYOUT


def check_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    use_causal_mask: bool,
    window: int | None,
    soft_cap: float | None,
) -> None:
    """Refuses what no attention over pairs can compute."""
    for name, x, layout in (
        ("query", query, "(B, T, H, K)"),
        ("key", key, "(B, S, G, K)"),
        ("value", value, "(B, S, G, V)"),
    ):
        check_rank(name, x, (4,), layout)
    if query.shape[2] % key.shape[2] or key.shape[2] != value.shape[2]:
        raise ValueError(
            message(
                "`key` must have a number of heads that divides the query's, and "
                "`value` the same number.",
                query_heads=query.shape[2],
                key_heads=key.shape[2],
                value_heads=value.shape[2],
            )
        )
    if key.shape[1] and value.shape[1] and key.shape[1] != value.shape[1]:
        raise ValueError(
            message(
                "`key` and `value` must have one length.",
                key_length=key.shape[1],
                value_length=value.shape[1],
            )
        )
    if query.shape[3] != key.shape[3]:
        raise ValueError(
            message(
                "`query` and `key` must have one width per head.",
                query_width=query.shape[3],
                key_width=key.shape[3],
            )
        )
    if window is not None:
        check_size("window", window)
        if not use_causal_mask:
            raise ValueError(
                message("`window` needs `use_causal_mask=True`.", window=window)
            )
    if soft_cap is not None and not soft_cap > 0:
        raise ValueError(message("`soft_cap` must be positive.", soft_cap=soft_cap))


def check_pairs(
    query: Tensor,
    key: Tensor,
    attention_mask: Tensor | None,
    attention_bias: Tensor | None,
    distance_bias: Tensor | None,
    sinks: Tensor | None,
) -> None:
    """Refuses terms of the scores whose sizes are not those of the pairs."""
    if attention_bias is not None:
        dtype = keras.backend.standardize_dtype(
            getattr(attention_bias, "dtype", "float32")
        )
        if dtype == "bool":
            raise TypeError(
                message(
                    "`attention_bias` must be a number for each pair.",
                    fix="A boolean mask is called `attention_mask`.",
                    dtype=dtype,
                )
            )
    (batch, length, heads, _), source = query.shape, key.shape[1]
    distances = length and source and length + source - 1
    pairs: Shape = (batch, heads, length, source)
    masked = pairs
    if attention_mask is not None and len(np.shape(attention_mask)) == 3:
        masked = (batch, length, source)
    for name, x, layout, sizes in (
        ("attention_mask", attention_mask, PAIR_LAYOUT, masked),
        ("attention_bias", attention_bias, "(B, H, T, S)", pairs),
        ("distance_bias", distance_bias, "(H, T + S - 1)", (heads, distances)),
        ("sinks", sinks, "(H,)", (heads,)),
    ):
        if x is not None and not _fits(shape := tuple(np.shape(x)), sizes):
            raise ValueError(
                message(
                    f"`{name}` must have shape {layout}.", shape=shape, expected=sizes
                )
            )


def _fits(shape: Shape, sizes: Shape) -> bool:
    """Whether each size is the expected one, or one of the two is unknown.

    Before the last two axes it may also be 1.
    """
    shared = len(sizes) - 2
    return len(shape) == len(sizes) and all(
        n is None or size is None or n == size or (axis < shared and n == 1)
        for axis, (n, size) in enumerate(zip(shape, sizes, strict=True))
    )


def check_dropout(dropout: float, seed: Tensor | None) -> None:
    """Refuses a rate outside [0, 1), and one without a seed."""
    if not check_rate("dropout", dropout):
        return
    shape = () if seed is None else tuple(np.shape(seed))
    if len(shape) != 1 or shape[0] not in (2, None):
        raise ValueError(
            message(
                "`dropout` needs a `seed` of two integers.", dropout=dropout, seed=seed
            )
        )
