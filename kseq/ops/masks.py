"""Boolean masks: True is a real token, or a pair that may attend."""

import numpy as np
from keras import ops

from kseq._checks import check_mask, check_rank, message
from kseq._typing import Tensor

PAIR_LAYOUT = "(B, T, S) or (B, H, T, S)"


def combine_masks(
    *,
    query_mask: Tensor | None = None,
    value_mask: Tensor | None = None,
    attention_mask: Tensor | None = None,
    causal_mask: Tensor | None = None,
) -> Tensor | None:
    """The AND of all masks that are given, as one mask over pairs.

    Args:
        query_mask: bool `(B, T)`. True for a real query token.
        value_mask: bool `(B, S)`. True for a real value token.
        attention_mask: bool `(B, T, S)` or, with heads, `(B, H, T, S)`. True where
            query t may see value s.
        causal_mask: bool `(1, T, S)` or `(B, T, S)`, what `causal_mask` returned.

    Returns:
        bool, broadcastable to `(B, T, S)`, or to `(B, H, T, S)` if the attention
        mask has heads; None when every mask is None.

    Raises:
        TypeError: `` `query_mask` must be boolean... `` (each mask alike).
        ValueError: `` `query_mask` must have shape (B, T)... `` (each alike).
    """
    combined = None
    heads = attention_mask is not None and len(np.shape(attention_mask)) == 4
    for name, mask, layout, ranks, axis in (
        ("query_mask", query_mask, "(B, T)", (2,), 2),
        ("value_mask", value_mask, "(B, S)", (2,), 1),
        ("causal_mask", causal_mask, "(B, T, S)", (3,), None),
        ("attention_mask", attention_mask, PAIR_LAYOUT, (3, 4), None),
    ):
        if mask is None:
            continue
        mask = check_mask(name, mask)
        check_rank(name, mask, ranks, layout)
        mask = ops.convert_to_tensor(mask)
        if axis is not None:
            mask = ops.expand_dims(mask, axis)  # (B, T, 1) or (B, 1, S)
        if heads and len(mask.shape) == 3:
            mask = ops.expand_dims(mask, 1)  # (B, 1, T, S)
        combined = mask if combined is None else ops.logical_and(combined, mask)
    return combined


def causal_mask(
    query_positions: Tensor, key_positions: Tensor, window: int | None = None
) -> Tensor:
    """True where a query may see a key: one that does not come after it.

        0 <= i - j, and i - j < W with a window, for query position i, key position j

    A window of W lets W keys through, the query's own included. Where queries follow
    what is already in a cache, their positions start at its index: the mask never
    guesses an offset from the two lengths.

    Args:
        query_positions: int `(T,)` or `(B, T)`, in tokens.
        key_positions: int `(S,)` or `(B, S)`, in tokens.
        window: int. W, in tokens; None is no window. Defaults to `None`.

    Returns:
        bool `(1, T, S)`, or `(B, T, S)` if either has a row for each sequence.

    Example:

    >>> mask = kseq.ops.causal_mask(keras.ops.arange(3), keras.ops.arange(3), window=2)
    >>> keras.ops.convert_to_numpy(mask[0]).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    """
    i, j = (
        x if len(x.shape) == 2 else ops.expand_dims(x, 0)
        for x in (ops.cast(p, "int32") for p in (query_positions, key_positions))
    )
    i, j = ops.expand_dims(i, 2), ops.expand_dims(j, 1)  # (B, T, 1), (B, 1, S)
    mask = j <= i
    return mask if window is None else ops.logical_and(mask, i - j < window)


def check_mask_shape(name: str, mask: Tensor | None, x: Tensor) -> None:
    """Raises unless `mask` `(B, T)` is None or fits `x` `(B, T, ...)`.

    Raises:
        ValueError: `` `mask` must have the first two sizes of what it masks... ``,
            with `name` in the place of `mask`.
    """
    if mask is None:
        return
    if any(m and n and m != n for m, n in zip(mask.shape, x.shape, strict=False)):
        raise ValueError(
            message(
                f"`{name}` must have the first two sizes of what it masks.",
                mask_shape=tuple(mask.shape),
                shape=tuple(x.shape),
            )
        )


def zero_padding(x: Tensor, mask: Tensor | None, name: str = "mask") -> Tensor:
    """`x` `(B, T, ...)` with zeros where `mask` `(B, T)` is False.

    A product with a 0/1 mask would keep a NaN, and so would the gradient of a
    matrix product over padded rows: this cuts both.

    Raises:
        ValueError: as `check_mask_shape`.
    """
    if mask is None:
        return x
    check_mask_shape(name, mask, x)
    for _ in range(len(x.shape) - len(mask.shape)):
        mask = ops.expand_dims(mask, -1)  # (B, T, 1, ...)
    return ops.where(mask, x, ops.zeros_like(x))
