"""Which path attention takes, and that each gives the same answer."""

import sys

import numpy as np
import pytest
from helpers import assert_close
from ops.attention_cases import normal

from kseq.ops import attention, dot_product_attention
from kseq.ops.causal_attention import causal_attention

MODULE = sys.modules[attention.__module__]


@pytest.fixture
def taken(monkeypatch):
    """The names of the paths that run."""
    names = []

    def spy(owner, name):
        function = getattr(owner, name)

        def call(*args, **options):
            names.append(name)
            return function(*args, **options)

        monkeypatch.setattr(owner, name, call)

    spy(MODULE, "blockwise_attention")
    spy(MODULE, "dot_product_attention")
    spy(MODULE, "causal_attention")
    spy(MODULE.ops, "dot_product_attention")
    monkeypatch.setattr(MODULE, "BLOCKWISE_PAIRS", 5 * 7)
    return names


def check(query, key, value, **options):
    want = dot_product_attention(query, key, value, **options)[0]
    assert_close("y", attention(query, key, value, **options), want)


def test_blocks_from_a_size_on(taken):
    for source, path in (6, "dot_product_attention"), (7, "blockwise_attention"):
        check(normal(2, 5, 2, 4), normal(2, source, 2, 4), normal(2, source, 2, 4))
        assert taken.pop() == path


def test_a_path_can_be_forced(taken):
    x = normal(2, 5, 2, 4)
    for blockwise in (True, False):
        attention(x, x, x, blockwise=blockwise)
    assert taken == ["blockwise_attention", "dot_product_attention"]


MASK = np.ones((2, 5), bool)
PADDED = np.array([[1, 1, 1, 1, 0], [0, 1, 0, 1, 1]], bool)
# options of a causal square, of 5 tokens and 4 heads
SQUARES = {
    "none": {},
    "padding": {"query_mask": PADDED, "value_mask": PADDED},
    "pairs": {"attention_mask": normal(2, 5, 5) > -1},
    "pairs by head": {"attention_mask": normal(2, 4, 5, 5) > -1},
    "bias": {"attention_bias": normal(1, 4, 5, 5)},
    "distance": {"distance_bias": normal(4, 9)},
    "window": {"window": 2, "sinks": normal(4)},
    "dropout": {"dropout": 0.4, "seed": np.array([3, 4])},
    "soft cap": {"soft_cap": 2.0, "scale": 1.5},
}


@pytest.mark.parametrize(
    ("options", "fused"),
    [
        ({}, True),
        ({"use_causal_mask": True, "scale": 0.3, "value_mask": None}, True),
        ({"value_mask": MASK}, False),
        ({"soft_cap": 2.0}, False),
        ({"use_causal_mask": True, "offset": 1}, False),
        ({"use_causal_mask": True, "offset": np.array([0, 1])}, False),
        ({"use_causal_mask": True, "window": 2}, False),
        ({"use_causal_mask": True}, True),
    ],
    ids=lambda x: "-".join(x) if isinstance(x, dict) else str(x),
)
def test_the_fused_kernel_where_it_gives_the_same(taken, monkeypatch, options, fused):
    """On an accelerator; here Keras computes the same without one."""
    monkeypatch.setattr(MODULE, "has_fused_attention", lambda: True)
    x, y = normal(2, 5, 2, 4), normal(2, 5, 2, 4, seed=1)
    want = dot_product_attention(x, y, y, **options)[0]
    taken.clear()
    assert_close("y", attention(x, y, y, **options), want)
    square = options.get("use_causal_mask") and "offset" not in options
    cut = "causal_attention" if square and not fused else "dot_product_attention"
    assert taken == [cut]
    assert (MODULE._fusible(x, y, y, options)) == fused


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("name", SQUARES)
def test_a_causal_square_is_cut(monkeypatch, size, name):
    """Into queries that see the keys up to the last of them."""
    cut = sys.modules[causal_attention.__module__]
    monkeypatch.setattr(cut, "QUERIES", size)
    calls = []
    real = cut.dot_product_attention
    monkeypatch.setattr(
        cut, "dot_product_attention", lambda *a, **o: calls.append(o) or real(*a, **o)
    )
    query, key, value = (normal(2, 5, h, 4, seed=h) for h in (4, 2, 2))
    check(query, key, value, use_causal_mask=True, **SQUARES[name])
    assert len(calls) == -(-5 // size)


def test_what_is_cut_must_fit_before():
    x = normal(2, 5, 2, 4)
    for name in ("value_mask", "query_mask"):
        with pytest.raises(ValueError, match=f"`{name}` must have the first two sizes"):
            attention(x, x, x, use_causal_mask=True, **{name: np.ones((2, 6), bool)})
    with pytest.raises(ValueError, match="attention_mask"):
        attention(
            x, x, x, use_causal_mask=True, attention_mask=np.ones((2, 6, 6), bool)
        )
