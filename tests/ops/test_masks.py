"""combine_masks, causal_mask and zero_padding."""

import itertools

import numpy as np
import pytest
from helpers import assert_same, gradients, to_numpy
from keras import ops

from kseq.ops import causal_mask, combine_masks, zero_padding

B, T, S = 2, 3, 5
RNG = np.random.default_rng(0)
MASKS = {
    "query_mask": RNG.random((B, T)) < 0.6,
    "value_mask": RNG.random((B, S)) < 0.6,
    "attention_mask": RNG.random((B, T, S)) < 0.6,
    "causal_mask": RNG.random((B, T, S)) < 0.8,
}


@pytest.mark.parametrize(
    "names",
    [n for count in (1, 2, 3, 4) for n in itertools.combinations(MASKS, count)],
    ids="+".join,
)
def test_the_and_of_all(names):
    want = np.ones((B, T, S), bool)
    for b, t, s in np.ndindex(B, T, S):
        for name in names:
            index = {"query_mask": (b, t), "value_mask": (b, s)}.get(name, (b, t, s))
            want[b, t, s] &= MASKS[name][index]
    got = combine_masks(**{name: MASKS[name] for name in names})
    assert_same("mask", np.broadcast_to(to_numpy(got), (B, T, S)), want)


@pytest.mark.parametrize("heads", [1, 5])
def test_the_and_of_all_with_heads(heads):
    pairs = RNG.random((B, heads, T, S)) < 0.6
    want = np.zeros((B, heads, T, S), bool)
    for b, h, t, s in np.ndindex(want.shape):
        want[b, h, t, s] = (
            pairs[b, h, t, s] and MASKS["causal_mask"][b, t, s]
            and MASKS["query_mask"][b, t] and MASKS["value_mask"][b, s]
        )  # fmt: skip
    got = combine_masks(**MASKS | {"attention_mask": pairs})
    assert_same("mask", got, want)
    padding = combine_masks(value_mask=MASKS["value_mask"], attention_mask=pairs)
    assert_same("two", padding, pairs & MASKS["value_mask"][:, None, None])


@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize(
    "rows", [[[2, 3, 4]], [[0, 1, 2], [9, 2, 0]]], ids=["shared", "of each row"]
)
def test_causal_mask(rows, window):
    """With positions that a cache, left padding or a ring gives."""
    i = np.array(rows)
    j = np.array([0, 1, 2, 3, 7])
    for columns in (j, np.stack([j, j[::-1]])):
        want = np.zeros((max(len(i), columns.size // S), T, S), bool)
        for b, t, s in np.ndindex(want.shape):
            key = columns if columns.ndim == 1 else columns[b]
            after = i[b % len(i), t] - key[s]
            want[b, t, s] = after >= 0 and (window is None or after < window)
        queries = i[0] if len(i) == 1 else i
        assert_same("mask", causal_mask(queries, columns, window), want)


def test_no_mask():
    assert combine_masks() is None


def test_a_mask_of_two_axes_is_padding_also_when_the_batch_has_the_length():
    mask = np.array([[True, False], [True, True]])
    got = np.broadcast_to(to_numpy(combine_masks(value_mask=mask)), (2, 2, 2))
    assert_same("mask", got, np.array([[[1, 0], [1, 0]], [[1, 1], [1, 1]]]))


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_numbers_are_refused(name, dtype):
    mask = MASKS[name].astype(dtype)
    with pytest.raises(TypeError, match=rf"`{name}` must be boolean.*`attention_bias`"):
        combine_masks(**{name: mask})
    with pytest.raises(TypeError, match=rf"dtype='{dtype}'.*`mask != 0`"):
        combine_masks(**{name: ops.convert_to_tensor(mask)})


def test_a_nested_list_is_a_mask():
    got = combine_masks(query_mask=[[True, False]])
    assert_same("mask", got, np.array([[[True], [False]]]))
    with pytest.raises(TypeError, match=r"`query_mask` must be boolean.*int64"):
        combine_masks(query_mask=[[1, 0]])


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("query_mask", r"\(B, T\)"),
        ("value_mask", r"\(B, S\)"),
        ("attention_mask", r"\(B, T, S\) or \(B, H, T, S\)"),
        ("causal_mask", r"\(B, T, S\)"),
    ],
)
@pytest.mark.parametrize("rank", [1, 5])
def test_ranks_are_checked(name, layout, rank):
    mask = np.ones((2,) * rank, bool)
    with pytest.raises(ValueError, match=rf"`{name}` must have shape {layout}\. Rec"):
        combine_masks(**{name: mask})


@pytest.mark.parametrize("shape", [(B, T), (B, T, 4), (B, T, 4, 2)], ids=str)
def test_zero_padding(shape):
    x = RNG.normal(size=shape).astype("float32")
    mask = np.array([[True, True, False], [False, True, True]])
    dirty = x.copy()
    dirty[~mask] = np.nan
    want = np.where(mask.reshape(B, T, *[1] * (len(shape) - 2)), x, 0)
    assert_same("zeros", zero_padding(ops.convert_to_tensor(dirty), mask), want)
    _, (dx,), _ = gradients(
        lambda x: zero_padding(x, mask), [dirty], [], loss=lambda y: ops.sum(y * y)
    )
    assert_same("gradient", dx, 2 * want)


@pytest.mark.parametrize("shape", [(B, T + 1), (B, 1), (1, T)], ids=str)
def test_a_mask_of_another_size_is_refused(shape):
    with pytest.raises(ValueError, match=r"`mask` must have the first two.*mask_"):
        zero_padding(ops.ones((B, T, 4)), np.ones(shape, bool))


def test_no_mask_gives_the_tensor_itself():
    x = ops.ones((B, T))
    assert zero_padding(x, None) is x
