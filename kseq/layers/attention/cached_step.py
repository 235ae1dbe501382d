"""A step of attention with a key-value cache: what is written, what is seen."""

from typing import Any, NamedTuple

from kseq._typing import Tensor
from kseq.ops.key_value_cache import (
    KeyValueCache,
    append_to_cache,
    append_to_ring,
)
from kseq.ops.masks import causal_mask, combine_masks


class CachedStep(NamedTuple):
    """What T new tokens see, and what they leave behind.

    Attributes:
        key: float `(B, S, G, K)`.
        value: float `(B, S, G, V)`.
        key_slots: int `(S,)`, `(1, S)` or `(B, S)`. Positions of the keys.
        masks: options of `kseq.ops.attention` that hide what must not be seen.
        cache: the tokens so far and the new ones.
    """

    key: Tensor
    value: Tensor
    key_slots: Tensor
    masks: dict[str, Any]
    cache: KeyValueCache


def slot_count(length: int, window: int | None) -> int:
    """How many slots hold `length` tokens: with a window of W at most W."""
    return length if window is None else min(length, window)


def is_ring(cache: KeyValueCache, window: int | None) -> bool:
    """Whether new tokens are written over those that have left the window."""
    return window is not None and cache.mask.shape[1] == window


def cached_step(
    cache: KeyValueCache,
    new: KeyValueCache,
    slots: Tensor,
    index: Tensor,
    *,
    attention_mask: Tensor | None,
    use_causal_mask: bool,
    window: int | None,
) -> CachedStep:
    """Writes T new tokens to the cache, and finds what they may see of it.

    Args:
        cache: L slots, a ring if L is `window`.
        new: the keys, values and mask of T tokens; its mask may be None.
        slots: int `(T,)` or `(B, T)`. The positions of the new tokens.
        index: int `()` or `(B,)`. How many tokens the cache holds.
        attention_mask: bool `(B, T, L)` or `(B, H, T, L)`; None for a ring.
        use_causal_mask: bool. True hides the keys after a query; a ring always does.
        window: int. How many keys a query sees. None is no window.

    Raises:
        ValueError: `` The cache must have room for the new tokens... ``
    """
    ring = is_ring(cache, window)
    append = append_to_ring if ring else append_to_cache
    seen, key_slots, cache = append(cache, new, slots, index)
    value_mask: Tensor | None = seen.mask
    if ring:
        # the tokens of a ring stand in no order
        attention_mask = causal_mask(slots, key_slots, window)
        use_causal_mask, window = False, None
    if slots.shape[-1] == 1:
        # what is masked in a cache is finite: as padding, all of it would be copied
        # and zeroed at each step, which takes as long as the attention itself
        attention_mask = combine_masks(
            value_mask=value_mask, attention_mask=attention_mask
        )
        value_mask = None
    masks = {
        "value_mask": value_mask,
        "attention_mask": attention_mask,
        "use_causal_mask": use_causal_mask,
        "window": window,
        "offset": index,
    }
    return CachedStep(seen.key, seen.value, key_slots, masks, cache)
