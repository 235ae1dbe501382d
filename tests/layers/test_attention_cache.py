"""Multi-head attention with a cache: steps, prompts, rings, errors."""

import numpy as np
import pytest
from helpers import assert_close, to_numpy
from layers.multi_head_kinds import KINDS, B, D, draw, make

from kseq.backend import compiled


def compiled_with(layer):
    return lambda function: compiled(function, layer.variables)


INDEX = {"scalar": lambda t: t, "rows": lambda t: np.full(B, t, "int32")}


@pytest.mark.parametrize("index", INDEX)
@pytest.mark.parametrize("kind", KINDS)
def test_cached_steps_equal_the_full_run(kind, index):
    """One token at a time, two at a time, and all at once; the window is a ring."""
    layer, x = make(kind), draw(B, 6, D)
    want = layer(x, x, use_causal_mask=True)

    @compiled_with(layer)
    def step(x, cache, t):
        return layer(x, x, use_causal_mask=True, cache=cache, cache_index=t)

    for size in (1, 2, 6):
        cache, found = layer.empty_cache(B, 6), []
        for t in range(0, 6, size):
            y, cache = step(x[:, t : t + size], cache, np.asarray(INDEX[index](t)))
            found.append(to_numpy(y))
        assert_close(f"{size} at a time", np.concatenate(found, 1), want)
        assert cache.key.shape[1] == min(6, layer.window or 6)


def test_prompts_of_different_lengths():
    """Right-padded, with an index for each row: as each row alone."""
    layer, x, lengths = make("rotary"), draw(B, 6, D), np.array([3, 5], "int32")
    mask = np.arange(5) < lengths[:, None]
    prompt = np.where(mask[..., None], x[:, :5], np.nan)
    masks = {"query_mask": mask, "value_mask": mask}
    options = {"use_causal_mask": True}
    cache = layer.empty_cache(B, 6)
    _, cache = layer(
        prompt,
        prompt,
        **masks,
        **options,
        cache=cache,
        cache_index=np.zeros(B, "int32"),
    )
    new = x[np.arange(B), lengths][:, None]
    y, _ = layer(new, new, **options, cache=cache, cache_index=lengths)
    for b, length in enumerate(lengths):
        row = x[b : b + 1, : length + 1]
        assert_close(f"row {b}", y[b, 0], layer(row, row, **options)[0, -1])


def test_left_padding_with_positions():
    """The cache remembers what was padding."""
    layer, x = make("rotary"), draw(1, 4, D)
    options = {"use_causal_mask": True}
    want = layer(x, x, **options)[:, -1:]
    prompt = np.concatenate([np.full((1, 2, D), np.nan, "float32"), x[:, :3]], axis=1)
    mask = np.array([[False, False, True, True, True]])
    positions = np.array([[0, 0, 0, 1, 2]])
    _, cache = layer(
        prompt,
        prompt,
        query_mask=mask,
        value_mask=mask,
        positions=positions,
        **options,
        cache=layer.empty_cache(1, 6),
        cache_index=0,
    )
    last = x[:, 3:]
    y, _ = layer(
        last, last, **options, positions=np.array([[3]]), cache=cache, cache_index=5
    )
    assert_close("y", y, want)


@pytest.mark.parametrize("kind", ["plain", "alibi"])
def test_a_ring_goes_on_for_ever(kind):
    """9 tokens through 3 slots, in chunks larger and smaller than the ring; eager."""
    layer, x = make(kind, window=3), draw(B, 9, D)
    want = to_numpy(layer(x, x, use_causal_mask=True))
    cache, t = layer.empty_cache(B, 100), 0
    assert cache.key.shape[1] == 3
    for size in (4, 1, 3, 1):
        chunk = x[:, t : t + size]
        y, cache = layer(chunk, chunk, use_causal_mask=True, cache=cache, cache_index=t)
        assert_close(f"from {t}", y, want[:, t : t + size])
        t += size


def test_a_full_cache_is_not_written_over():
    """Eager: an error; compiled, where none can be raised: nothing is written."""
    layer, x = make(), draw(B, 2, D)
    cache = layer.empty_cache(B, 3)
    with pytest.raises(ValueError, match="The cache must have room for the new tokens"):
        layer(x, x, cache=cache, cache_index=2)
    with pytest.raises(ValueError, match="cache_index=2, tokens=2"):
        layer(x, x, cache=cache, cache_index=np.array([0, 2]))

    @compiled_with(layer)
    def step(x, cache, t):
        return layer(x, x, cache=cache, cache_index=t)[1]

    for new in step(x, cache, np.int32(2)), step(x, cache, np.int32(7)):
        assert not to_numpy(new.mask)[:, :2].any()
        assert not to_numpy(new.key)[:, :2].any()
    assert to_numpy(step(x, cache, np.int32(2)).mask)[:, 2].all()


ERRORS = {
    "cache without index": (
        lambda: make()(draw(B, 1, D), draw(B, 1, D), cache=make().empty_cache(B, 3)),
        "`cache` needs a `cache_index`",
    ),
    "cache and scores": (
        lambda: make()(
            draw(B, 1, D),
            draw(B, 1, D),
            cache=make().empty_cache(B, 3),
            cache_index=0,
            return_attention_scores=True,
        ),
        "`cache` can't be combined with `key_value`",
    ),
    "mask and ring": (
        lambda: make("window")(
            draw(B, 1, D),
            draw(B, 1, D),
            cache=make("window").empty_cache(B, 3),
            cache_index=0,
            attention_mask=np.ones((B, 1, 3), bool),
        ),
        "`attention_mask` can't be combined with the cache of a window",
    ),
    "cache of another batch": (
        lambda: make()(
            draw(B, 1, D),
            draw(B, 1, D),
            cache=make().empty_cache(3, 4),
            cache_index=0,
        ),
        r"`cache.key` must have shape \(2, 4, 4, 4\)",
    ),
    "negative index": (
        lambda: make()(
            draw(B, 1, D),
            draw(B, 1, D),
            cache=make().empty_cache(B, 4),
            cache_index=-1,
        ),
        "`cache_index` must not be negative",
    ),
    "index of another batch": (
        lambda: make()(
            draw(B, 1, D),
            draw(B, 1, D),
            cache=make().empty_cache(B, 4),
            cache_index=np.zeros(3, "int32"),
        ),
        r"`cache_index` must have shape \(2,\)",
    ),
    "positions, bias and cache": (
        lambda: make("alibi")(
            draw(B, 1, D),
            draw(B, 1, D),
            positions=np.array([7]),
            cache=make("alibi").empty_cache(B, 4),
            cache_index=0,
        ),
        "`positions` can't be combined with a `bias` and a cache",
    ),
    "length of the cache": (
        lambda: make().empty_cache(B, 0),
        "`length` must be a positive integer",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, match = ERRORS[name]
    with pytest.raises(ValueError, match=match):
        call()
