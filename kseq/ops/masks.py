"""Boolean masks: True is a real token, or a pair that may attend."""

from keras import ops

from kseq._checks import check_mask, message
from kseq._typing import Tensor


def combine_masks(
    *,
    query_mask: Tensor | None = None,
    value_mask: Tensor | None = None,
    attention_mask: Tensor | None = None,
) -> Tensor | None:
    """The AND of all masks that are given, as one mask over pairs.

    Args:
        query_mask: bool `(B, T)`. True for a real query token.
        value_mask: bool `(B, S)`. True for a real value token.
        attention_mask: bool `(B, T, S)`. True where query t may see value s.

    Returns:
        bool, broadcastable to `(B, T, S)`, or None when every mask is None.

    Raises:
        TypeError: `` `query_mask` must be boolean... `` (each mask alike).
        ValueError: `` `query_mask` must have shape (B, T)... `` (each alike).
    """
    combined = None
    for name, mask, layout, axis in (
        ("query_mask", query_mask, "(B, T)", 2),
        ("value_mask", value_mask, "(B, S)", 1),
        ("attention_mask", attention_mask, "(B, T, S)", None),
    ):
        if mask is None:
            continue
        mask = check_mask(name, mask)
        if len(mask.shape) != layout.count(",") + 1:
            raise ValueError(
                message(f"`{name}` must have shape {layout}.", shape=tuple(mask.shape))
            )
        mask = ops.convert_to_tensor(mask)
        if axis is not None:
            mask = ops.expand_dims(mask, axis)  # (B, T, 1) or (B, 1, S)
        combined = mask if combined is None else ops.logical_and(combined, mask)
    return combined


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
