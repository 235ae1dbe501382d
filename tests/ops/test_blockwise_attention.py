"""What blocks add: real sizes, memory; the rest is in test_attention_paths.py."""

import re

import numpy as np
import pytest
from helpers import assert_close, gradients, on_jax, on_tensorflow, to_numpy
from ops.attention_cases import MODE, normal, some
from reference.dot_product_attention import dot_product_attention as reference

from kseq.backend import compiled
from kseq.ops import (
    attention_cut,
    attention_statistics,
    blockwise_attention,
    dot_product_attention,
)
from kseq.ops.dropout import kept_places


@pytest.mark.parametrize("halves", [False, True], ids=["at once", "in two blocks"])
def test_two_softmaxes_are_merged(halves, monkeypatch):
    """F-A6: logits 1, 3 and 0, 2 with the values 1, -1 and 2, 0.5."""
    monkeypatch.setattr(attention_cut, "KEYS", 2 if halves else 4)
    query = np.ones((1, 1, 1, 1), "float32")
    key, value = (
        np.array(x, "float32").reshape(1, 4, 1, 1)
        for x in ([1, 3, 0, 2], [1, -1, 2, 0.5])
    )
    y = blockwise_attention(query, key, value, scale=1)
    assert_close("merged", y[0, 0, 0], [-0.37421133])
    for start, want in ((0, -0.76159416), (2, 0.67880438)):
        part = slice(start, start + 2)
        y = blockwise_attention(query, key[:, part], value[:, part], scale=1)
        assert_close("half", y[0, 0, 0], [want])


def test_the_sizes_of_real_blocks():
    """3 blocks of 100 queries, 2 of 400 keys; 300 and 601 of each are real."""
    shapes = (1, 300, 2, 3), (1, 601, 1, 3), (1, 601, 1, 2), (2, 900)
    inputs = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
    options = dict(
        use_causal_mask=True, offset=301, window=250, value_mask=some(1, 601)
    )

    blocks = lambda *x: blockwise_attention(*x[:3], distance_bias=x[3], **options)
    whole = lambda *x: dot_product_attention(*x[:3], distance_bias=x[3], **options)[0]
    y, found, _ = gradients(blocks, inputs, [], mode=MODE)
    want, _ = reference(*inputs[:3], distance_bias=inputs[3], **options)
    assert_close("outputs", y, want)
    # the gradients of the other path are held to the reference elsewhere
    _, want, _ = gradients(whole, inputs, [], mode="compiled")
    assert_close("gradients", found, want, gradient=True)


def test_dropout_does_not_depend_on_the_blocks(monkeypatch):
    """The values are unit vectors, so that the output is the dropped weights."""
    monkeypatch.setattr(attention_cut, "QUERIES", 3)
    monkeypatch.setattr(attention_cut, "KEYS", 4)
    query, key = normal(2, 5, 2, 3), normal(2, 7, 1, 3)
    value = np.broadcast_to(np.eye(7, dtype="float32")[:, None], (2, 7, 1, 7))
    dropout = dict(dropout=0.5, seed=np.array([3, 4]))
    run = compiled(lambda *x: blockwise_attention(*x, **dropout), [])
    y = to_numpy(run(query, key, value)).transpose(0, 2, 1, 3)
    heads, rows = np.arange(4).reshape(2, 2, 1, 1), np.arange(5)[:, None]
    kept = to_numpy(kept_places(dropout["seed"], 0.5, heads, rows, np.arange(7)))
    np.testing.assert_array_equal(y != 0, kept)


def attend(query, key, value, bias):
    """With all that could hold T x S: scores, a mask, a bias and dropout."""
    return blockwise_attention(
        query, key, value, use_causal_mask=True, distance_bias=bias, dropout=0.1,
        seed=np.array([1, 2]),
    )  # fmt: skip


def measure(query, key, value, bias):
    del value
    options = dict(use_causal_mask=True, distance_bias=bias)
    return attention_statistics(query, key, **options)["entropy"]


def arguments(length):
    shapes = (1, length, 4, 16), (1, length, 2, 16), (1, length, 2, 16)
    return [np.zeros(x, "float32") for x in (*shapes, (4, 2 * length - 1))]


@on_jax
@pytest.mark.parametrize("function", [attend, measure])
def test_memory_is_linear_in_length(function):
    """That of the output and its gradient, and of the statistics."""
    import jax

    def loss(*inputs):
        y = function(*inputs)
        return (y * y).sum()

    program = jax.grad(loss, argnums=(0, 1, 2, 3)) if function is attend else loss

    def memory(length):
        lowered = jax.jit(program).lower(*arguments(length))
        return lowered.compile().memory_analysis().temp_size_in_bytes

    one, two = memory(1024), memory(2048)
    assert two < 2.2 * one
    assert two < 2048 * 2048 * 4  # the scores of one head of four


@on_tensorflow
@pytest.mark.parametrize("function", [attend, measure])
def test_no_buffer_of_all_pairs(function):
    """In the program of the output and its gradient, and of the statistics."""
    import tensorflow as tf

    @tf.function(jit_compile=True, autograph=False)
    def program(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            y = function(*inputs)
            loss = tf.reduce_sum(y * y)
        return tape.gradient(loss, inputs) if function is attend else loss

    inputs = [tf.constant(x) for x in arguments(2048)]
    text = program.experimental_get_compiler_ir(*inputs)(stage="optimized_hlo")
    shapes = re.findall(r"\b(?:f32|s32|u32|pred)\[([\d,]+)\]", text)
    sizes = [np.prod([int(n) for n in shape.split(",")]) for shape in shapes]
    assert 2048 * 64 <= max(sizes) < 2048 * 2048 / 4
