"""combine_masks and zero_padding."""

import itertools

import numpy as np
import pytest
from helpers import assert_same, gradients, to_numpy
from keras import ops

from kseq.ops import combine_masks, zero_padding

B, T, S = 2, 3, 5
RNG = np.random.default_rng(0)
MASKS = {
    "query_mask": RNG.random((B, T)) < 0.6,
    "value_mask": RNG.random((B, S)) < 0.6,
    "attention_mask": RNG.random((B, T, S)) < 0.6,
}


@pytest.mark.parametrize(
    "names",
    [n for count in (1, 2, 3) for n in itertools.combinations(MASKS, count)],
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
        ("attention_mask", r"\(B, T, S\)"),
    ],
)
@pytest.mark.parametrize("rank", [1, 4])
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
