"""Keys and values of the tokens so far, for decoding a few tokens at a time."""

from typing import NamedTuple

from keras import ops

from kseq._checks import message
from kseq._typing import Tensor
from kseq.backend import is_concrete


class KeyValueCache(NamedTuple):
    """The keys and values of L slots.

    The token at position p stands in slot p, or in slot p mod L of a ring, which
    holds the last L tokens.

    Attributes:
        key: float `(B, L, G, K)`.
        value: float `(B, L, G, V)`.
        mask: bool `(B, L)`. True for a slot that holds a real token.
    """

    key: Tensor
    value: Tensor
    mask: Tensor


def write_cache(
    cache: KeyValueCache, new: KeyValueCache, slots: Tensor
) -> KeyValueCache:
    """The cache with T new tokens in it, in the dtype that it has.

    Args:
        cache: L slots.
        new: the keys, values and mask of T tokens.
        slots: int `(T,)` or `(B, T)`. Where each goes. A slot past the end is not
            written under a compiler, which can't raise.
    """
    shape = ops.shape(new.mask)
    rows = ops.broadcast_to(ops.arange(shape[0], dtype="int32")[:, None], shape)
    slots = ops.broadcast_to(ops.cast(slots, "int32"), shape)
    places = ops.reshape(ops.stack([rows, slots], axis=-1), (-1, 2))  # (B T, 2)

    def written(old: Tensor, x: Tensor) -> Tensor:
        x = ops.reshape(ops.cast(x, old.dtype), (-1, *old.shape[2:]))
        return ops.scatter_update(old, places, x)

    return KeyValueCache(*map(written, cache, new))


def ring_positions(length: int, index: Tensor) -> Tensor:
    """What each slot of a ring of `length` holds when `index` tokens were written.

    That is the last position p < index with p mod L = slot; negative for an empty one.

    Args:
        length: int. L.
        index: int `()` or `(B,)`.

    Returns:
        int `(1, L)` or `(B, L)`.
    """
    last = ops.reshape(ops.cast(index, "int32"), (-1, 1)) - 1
    return last - (last - ops.arange(length, dtype="int32")) % length


def check_room(length: int | None, index: Tensor, count: int | None) -> None:
    """Refuses to write `count` tokens from `index` on past the end of a cache.

    Checked when the index is known: a program that is compiled writes nothing there.

    Raises:
        ValueError: `` The cache must have room for the new tokens... ``
    """
    if length is None or count is None or not is_concrete(index):
        return
    last = int(ops.max(index))
    if last + count > length:
        raise ValueError(
            message(
                "The cache must have room for the new tokens.",
                fix="Make a longer one: `layer.empty_cache(batch_size, length)`.",
                cache_length=length,
                cache_index=last,
                tokens=count,
            )
        )


def append_to_cache(
    cache: KeyValueCache, new: KeyValueCache, slots: Tensor, index: Tensor
) -> tuple[KeyValueCache, Tensor, KeyValueCache]:
    """Writes T new tokens after the `index` that the cache holds.

    Args:
        cache: L slots.
        new: the keys, values and mask of T tokens; its mask may be None.
        slots: int `(T,)` or `(B, T)`, the positions of the new tokens.
        index: int `()` or `(B,)`.

    Returns:
        What the new tokens may see, the positions `(L,)` of that, and the new cache.

    Raises:
        ValueError: `` The cache must have room for the new tokens... ``
    """
    length = cache.mask.shape[1]
    check_room(length, index, new.key.shape[1])
    cache = write_cache(cache, _masked(new), slots)
    return cache, ops.arange(length), cache


def append_to_ring(
    cache: KeyValueCache, new: KeyValueCache, slots: Tensor, index: Tensor
) -> tuple[KeyValueCache, Tensor, KeyValueCache]:
    """As `append_to_cache`, for a ring, which never ends.

    What is seen is the ring as it was and the new tokens after it, `L + T`: the first
    of the new ones see old ones that the last of them write over. A single one sees the
    ring as it is then.
    """
    new, length = _masked(new), cache.mask.shape[1]
    slots = ops.reshape(slots, (-1, ops.shape(slots)[-1]))  # (1, T) or (B, T)
    if new.key.shape[1] == 1:
        # the one that it takes the place of has left the window
        cache = write_cache(cache, new, slots % length)
        return cache, ring_positions(length, index + 1), cache
    seen = KeyValueCache(
        *(ops.concatenate(pair, axis=1) for pair in zip(cache, new, strict=True))
    )
    positions = ops.concatenate([ring_positions(length, index), slots], axis=1)
    last = KeyValueCache(*(x[:, -length:] for x in new))
    return seen, positions, write_cache(cache, last, slots[:, -length:] % length)


def _masked(new: KeyValueCache) -> KeyValueCache:
    if new.mask is not None:
        return new
    return new._replace(mask=ops.ones(ops.shape(new.key)[:2], "bool"))
