"""Which path attention takes, and that each gives the same answer."""

import sys

import numpy as np
import pytest
from helpers import assert_close
from ops.attention_cases import normal

from kseq.ops import attention, dot_product_attention

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
    ours = "dot_product_attention"
    assert taken == [ours]
    assert (MODULE._fusible(x, y, y, options)) == fused
