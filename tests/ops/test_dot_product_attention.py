"""The weights of dot-product attention; its outputs are in test_attention_paths.py."""

import numpy as np
import pytest
from helpers import DTYPES, assert_close
from keras import ops
from ops.attention_cases import CASES, B, S, T, arrays, expected, normal, run
from reference.dot_product_attention import dot_product_attention as reference

from kseq.backend import compiled
from kseq.ops import dot_product_attention


def weights_of(*args, **options):
    return dot_product_attention(*args, **options)[1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["pairs", "pairs of heads", "distance", "dropout"])
def test_weights(name, dtype):
    """Before dropout; rows of zeros where nothing is seen."""
    weights, _ = run(weights_of, name, dtype=dtype)
    assert weights.dtype == dtype
    assert_close("weights", weights, expected(name, *arrays(name))[1], dtype)


def test_the_sum_of_the_weights():
    """1 for a query that sees a key, 0 for the others; less than 1 with a sink."""
    weights, _ = run(weights_of, "pairs")
    total = weights.sum(-1)
    sees = CASES["pairs"]["attention_mask"] & CASES["pairs"]["value_mask"][:, None]
    sees &= CASES["pairs"]["query_mask"][..., None]
    assert_close("sums", total, np.broadcast_to(sees.any(-1)[:, None], total.shape))
    with_sinks, _ = run(weights_of, "pairs of heads")
    assert (with_sinks.sum(-1) < 1).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_of_halves_are_float32(dtype):
    inputs = [ops.cast(x, dtype) for x in arrays("plain")]
    y, weights = dot_product_attention(*inputs)
    assert (y.dtype, weights.dtype) == (inputs[0].dtype, ops.ones(1, "float32").dtype)
    assert_close("sums", ops.sum(weights, axis=-1), np.ones((B, 3, T)))


@pytest.mark.parametrize("groups", [1, 2])
def test_groups_are_repeated_and_not_tiled(groups):
    """F-A5: query head j reads group floor(j / (H / G))."""
    shapes = (B, T, 4, 3), (B, S, groups, 3), (B, S, groups, 2)
    query, key, value = (normal(*x, seed=i) for i, x in enumerate(shapes))
    got = compiled(dot_product_attention, [])(query, key, value)
    full = (np.repeat(x, 4 // groups, axis=2) for x in (key, value))
    assert_close("grouped", list(got), list(reference(query, *full)))


def test_equal_to_the_equation_of_the_paper():
    """Vaswani et al., eq. 1, on matrices of one head."""
    q, k, v = (x[:, :, 0] for x in arrays("plain"))
    scores = q.astype("float64") @ k.transpose(0, 2, 1) / np.sqrt(3)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    attend = compiled(dot_product_attention, [])
    y, got = attend(*(x[:, :, None] for x in (q, k, v)))
    assert_close("outputs", y[:, :, 0], weights @ v)
    assert_close("weights", got[:, 0], weights)
