"""Statistics of attention against those of the reference's weights."""

import keras
import numpy as np
import pytest
from helpers import DTYPES, assert_close, gradients, on_tensorflow
from keras import ops
from ops.attention_cases import (
    CASES,
    TERMS,
    VALUES,
    B,
    T,
    arrays,
    expected,
    normal,
    options,
)
from reference.dot_product_attention import statistics

from kseq.backend import compiled
from kseq.ops import attention_cut, attention_statistics


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Blocks of 2 queries and 3 keys: the last ones are partly filled."""
    monkeypatch.setattr(attention_cut, "QUERIES", 2)
    monkeypatch.setattr(attention_cut, "KEYS", 3)


def want(name):
    case = CASES[name]
    _, weights = expected(name, *arrays(name))
    found = statistics(weights, case.get("value_mask"), case.get("offset", 0))
    return dict(sorted(found.items()))  # as JAX returns them, compiled


def measure(name, dtype="float32"):
    """As a function of arrays alone, and those arrays."""
    query, key, _, *terms = arrays(name, dtype)
    names = [term for term in TERMS if term in CASES[name]]

    def call(query, key, *terms):
        given = dict(zip(names, terms, strict=True))
        return attention_statistics(query, key, **given, **options(name))

    return call, [query, key, *terms]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "name",
    [
        "causal",
        "window",
        "pairs",
        "pairs of heads",
        "distance",
        "both biases",
        "dropout",
    ],
)
def test_reference(name, dtype):
    """With sinks the weights sum to less than 1; dropout has no say."""
    call, inputs = measure(name, dtype)
    if keras.backend.backend() == "jax":  # which compiles the loops anyway
        call = compiled(call, [])
    got = call(*map(ops.convert_to_tensor, inputs))
    assert {keras.backend.standardize_dtype(x.dtype) for x in got.values()} == {dtype}
    assert_close("statistics", dict(sorted(got.items())), want(name), dtype)


@on_tensorflow  # on JAX: above
@pytest.mark.parametrize("name", ["pairs", "distance"])
def test_compiled(name):
    call, inputs = measure(name)
    got = compiled(call, [])(*inputs)
    assert_close("statistics", dict(sorted(got.items())), want(name))


def test_the_entropy_of_the_formulas():
    """F21: weights .2, .3 and .5; two tokens between the query and the first key."""
    key = np.log([0.2, 0.3, 0.5]).astype("float32").reshape(1, 3, 1, 1)
    query = np.ones((1, 1, 1, 1), "float32")
    got = attention_statistics(
        query, key, scale=1, use_causal_mask=True, offset=2, dropout=0.5, seed=[1, 2]
    )
    want = dict(entropy=1.0296530141, max_weight=0.5, first_key=0.2, mean_distance=0.7)
    assert_close("statistics", got, {k: np.full((1, 1, 1), x) for k, x in want.items()})


def test_a_query_that_sees_nothing_has_zeros():
    call, inputs = measure("pairs")
    query_mask = CASES["pairs"]["query_mask"]
    for x in inputs:  # what is not real may be anything
        x[~(query_mask if x.shape[1] == T else VALUES)] = np.nan
    got = call(*inputs)
    assert_close("statistics", dict(sorted(got.items())), want("pairs"))
    hidden = ~np.broadcast_to(query_mask[:, None], (B, 3, T))
    assert not any(ops.convert_to_numpy(x)[hidden].any() for x in got.values())


def test_large_scores_and_sinks():
    """All the weight on a key, or on a sink: no NaN, entropy and distance exact."""
    query, key = normal(1, 2, 1, 1) * 0 + 1, np.zeros((1, 3, 1, 1), "float32")
    key[0, 2] = 1e4
    for sink, weight in ((-1e5, 1.0), (1e5, 0.0)):
        got = attention_statistics(query, key, scale=1, sinks=np.array([sink]))
        want = dict(entropy=0, max_weight=1, first_key=0, mean_distance=(2, 1))
        want = {n: weight * np.broadcast_to(x, (1, 1, 2)) for n, x in want.items()}
        assert_close(f"{sink}", got, want)


def test_there_is_no_gradient():
    call, inputs = measure("distance")
    _, found, _ = gradients(call, inputs, [], mode="compiled")
    assert not any(x.any() for x in found)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_measured_in_float32(dtype):
    inputs = [ops.cast(x, dtype) for x in arrays("plain")]
    got = attention_statistics(*inputs[:2])
    assert {keras.backend.standardize_dtype(x.dtype) for x in got.values()} == {
        "float32"
    }
    rounded = [ops.convert_to_numpy(ops.cast(x, "float32")) for x in inputs]
    assert_close("statistics", got, statistics(expected("plain", *rounded)[1]))
