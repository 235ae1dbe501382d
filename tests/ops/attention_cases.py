"""The options of dot-product attention, a few in each case, and what is expected.

Each case has T = 5 and S = 7 where it says nothing else. The outputs, and their
gradients by central differences, come from the float64 loops of the reference.
"""

from functools import cache

import keras
import numpy as np
from helpers import cotangent, gradients, to_numpy
from reference.differences import numeric_gradients
from reference.dot_product_attention import dot_product_attention as reference

from kseq.ops.dropout import kept_places

B, T, S, K, V = 2, 5, 7, 3, 2
# what has a gradient, beside query, key and value
TERMS = "attention_bias", "distance_bias", "sinks"


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def some(*shape, seed=0):
    return np.random.default_rng(seed).random(shape) < 0.6


# left, right and interior padding
QUERIES = np.array([[1, 1, 1, 0, 0], [0, 1, 0, 1, 1]], bool)
VALUES = np.array([[1, 1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 0, 1, 1]], bool)

CASES = {
    "plain": {},
    "causal": dict(
        use_causal_mask=True, value_mask=VALUES, attention_mask=some(B, 1, T, S),
        heads=(4, 2),
    ),
    "window": dict(use_causal_mask=True, window=3, offset=np.array([1, 4])),
    "pairs": dict(
        query_mask=QUERIES, value_mask=VALUES, attention_mask=some(B, T, S, seed=1)
    ),
    "pairs of heads": dict(
        attention_mask=some(B, 4, T, S), sinks=normal(4, seed=3), heads=(4, 2)
    ),
    "bias": dict(attention_bias=normal(B, 2, T, S), soft_cap=1.5, heads=(2, 1)),
    "bias of rows": dict(
        attention_bias=normal(1, 4, T, S), soft_cap=2.0, heads=(4, 2),
        use_causal_mask=True, offset=2,
    ),
    "bias of heads": dict(
        attention_bias=normal(B, 1, T, S), query_mask=QUERIES, heads=(3, 1), scale=0.9
    ),
    "distance": dict(
        distance_bias=normal(4, T + S - 1), heads=(4, 2), use_causal_mask=True,
        window=4, offset=1, sinks=normal(4, seed=5), value_mask=VALUES,
    ),
    "distance of many queries": dict(
        distance_bias=normal(2, 12), lengths=(8, 5), heads=(2, 1)
    ),
    "both biases": dict(
        attention_bias=normal(1, 1, T, S), distance_bias=normal(2, T + S - 1),
        heads=(2, 2),
    ),
    "dropout": dict(
        dropout=0.4, seed=np.array([7, 11]), value_mask=VALUES, soft_cap=2.0,
        use_causal_mask=True, offset=np.array([2, 0]), heads=(4, 2),
    ),
    "one of each": dict(lengths=(1, 1)),
    "a cached step": dict(use_causal_mask=True, offset=6, lengths=(1, 7)),
}  # fmt: skip
# JAX compiles every loop anyway
MODE = "eager" if keras.backend.backend() == "tensorflow" else "compiled"


def shapes(name):
    length, source = CASES[name].get("lengths", (T, S))
    heads, groups = CASES[name].get("heads", (3, 3))
    return (B, length, heads, K), (B, source, groups, K), (B, source, groups, V)


def arrays(name, dtype="float32", seed=0):
    """Query, key, value and the terms that the case has."""
    inputs = [1.5 * normal(*x, seed=seed + i) for i, x in enumerate(shapes(name))]
    inputs += [CASES[name][term] for term in TERMS if term in CASES[name]]
    return [x.astype(dtype) for x in inputs]


def options(name):
    """Those that are no term, and no size of the case."""
    none = (*TERMS, "lengths", "heads")
    return {key: x for key, x in CASES[name].items() if key not in none}


@cache
def kept(name):
    """Which weights dropout keeps: `(B, H, T, S)`."""
    case, ((batch, length, heads, _), (_, source, *_), _) = CASES[name], shapes(name)
    if "dropout" not in case:
        return None
    numbers = np.arange(batch * heads).reshape(batch, heads, 1, 1)
    offset = np.reshape(case.get("offset", 0), (-1, 1, 1, 1))
    rows, columns = offset + np.arange(length)[:, None], np.arange(source)
    return to_numpy(kept_places(case["seed"], case["dropout"], numbers, rows, columns))


def expected(name, *inputs):
    """Outputs and weights of the reference."""
    terms = dict(zip([t for t in TERMS if t in CASES[name]], inputs[3:], strict=True))
    rest = {key: x for key, x in options(name).items() if key != "seed"}
    return reference(*inputs[:3], **terms, **rest, kept=kept(name))


@cache
def differences(name):
    """Central differences of what `gradients` differentiates."""

    def loss(*inputs):
        y, _ = expected(name, *inputs)
        return (y * cotangent(y, 0)).sum()

    return numeric_gradients(loss, arrays(name))


def run(function, name, mode=MODE, dtype="float32"):
    """Outputs and gradients of the inputs; arrays among the options are arguments."""
    inputs, rest = arrays(name, dtype), options(name)
    extras = {key: x for key, x in rest.items() if isinstance(x, np.ndarray)}
    terms = [term for term in TERMS if term in CASES[name]]
    fixed = {key: x for key, x in rest.items() if key not in extras}

    def call(query, key, value, *others):
        given = dict(zip([*terms, *extras], others, strict=True))
        return function(query, key, value, **given, **fixed)

    y, found, _ = gradients(call, inputs, [], mode=mode, extras=[*extras.values()])
    return y, found
