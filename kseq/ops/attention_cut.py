"""Cuts the inputs of attention into blocks, and joins the blocks of its output."""

import math
from typing import Any

import keras
from keras import ops

from kseq._checks import check_mask
from kseq._typing import Tensor
from kseq.ops.attention_blocks import AttentionBlocks, BlockInputs
from kseq.ops.attention_checks import check_attention, check_dropout, check_pairs
from kseq.ops.dot_product_attention import pair_bias
from kseq.ops.masks import zero_padding

# the most of each in a block. Measured on two cores: with 512 keys TensorFlow is slower
# by 16 to 25 %, with 256 JAX by 5 to 50 %; other numbers of queries are slower on both
QUERIES = 256
KEYS = 256 if keras.backend.backend() == "tensorflow" else 512


def cut(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float | None = None,
    query_mask: Tensor | None = None,
    value_mask: Tensor | None = None,
    attention_mask: Tensor | None = None,
    use_causal_mask: bool = False,
    offset: Any = 0,
    window: int | None = None,
    attention_bias: Tensor | None = None,
    distance_bias: Tensor | None = None,
    soft_cap: float | None = None,
    sinks: Tensor | None = None,
    dropout: float = 0.0,
    seed: Tensor | None = None,
) -> tuple[AttentionBlocks, BlockInputs]:
    """What `dot_product_attention` takes, in blocks.

    All of this has a gradient of the backend's own: what the blocks are made of is
    moved, and no more.
    """
    check_attention(query, key, value, use_causal_mask, window, soft_cap)
    check_pairs(query, key, attention_mask, attention_bias, distance_bias, sinks)
    check_dropout(dropout, seed)
    compute = keras.backend.result_type(query.dtype, "float32")
    (heads, width), groups = query.shape[2:], key.shape[2]
    t = _block_size(query.shape[1], QUERIES)
    s = _block_size(key.shape[1], KEYS)
    by_distance = distance_bias is not None and attention_bias is None
    if by_distance:
        s = t * -(-s // t)
    blocks = AttentionBlocks(
        queries=t,
        keys=s,
        groups=groups,
        repeats=heads // groups,
        use_causal_mask=use_causal_mask,
        window=window,
        soft_cap=soft_cap,
        dropout=dropout,
        by_distance=by_distance,
    )
    query, key, value = (
        ops.cast(zero_padding(x, mask, name), compute)
        for x, mask, name in (
            (query, query_mask, "query_mask"),
            (key, value_mask, "value_mask"),
            (value, value_mask, "value_mask"),
        )
    )
    query = query * (1 / math.sqrt(width) if scale is None else scale)
    if by_distance:
        bias = _distance_blocks(ops.cast(distance_bias, compute), blocks, query, key)
    else:
        lengths = ops.shape(query)[1], ops.shape(key)[1]
        bias = pair_bias(attention_bias, distance_bias, *lengths, compute)
        bias = None if bias is None else _pair_blocks(bias, blocks)
    if query_mask is not None:
        query_mask = _filled_up(check_mask("query_mask", query_mask), 1, t)
    if value_mask is None and (key.shape[1] is None or key.shape[1] % s):
        value_mask = ops.ones(ops.shape(key)[:2], "bool")
    if value_mask is not None:
        value_mask = _filled_up(check_mask("value_mask", value_mask), 1, s)
    if attention_mask is not None:
        attention_mask = check_mask("attention_mask", attention_mask)
        if len(attention_mask.shape) == 3:
            attention_mask = ops.expand_dims(attention_mask, 1)  # (B, 1, T, S)
        attention_mask = _filled_up(_filled_up(attention_mask, 2, t), 3, s)
        attention_mask = _by_group(attention_mask, blocks)
    if sinks is not None:
        sinks = ops.reshape(ops.cast(sinks, compute), (groups, -1, 1, 1))
    return blocks, BlockInputs(
        query=_query_blocks(query, blocks),
        key=_key_blocks(key, s),
        value=_key_blocks(value, s),
        offset=ops.reshape(ops.cast(ops.convert_to_tensor(offset), "int32"), (-1,)),
        sinks=sinks,
        bias=bias,
        query_mask=query_mask,
        value_mask=value_mask,
        attention_mask=attention_mask,
        seed=None if seed is None else ops.convert_to_tensor(seed),
    )


def joined(blocks: AttentionBlocks, output: Tensor, length: Tensor) -> Tensor:
    """`(T/t, N, R t, V)` as `(B, T, H, V)`, without what filled up the last block."""
    count, width = ops.shape(output)[0], output.shape[-1]
    cut_shape = (count, -1, blocks.groups, blocks.repeats, blocks.queries, width)
    output = ops.transpose(ops.reshape(output, cut_shape), (1, 0, 4, 2, 3, 5))
    heads = blocks.groups * blocks.repeats
    shape = (ops.shape(output)[0], count * blocks.queries, heads, width)
    return ops.reshape(output, shape)[:, :length]


def _block_size(length: int | None, most: int) -> int:
    """As many as there are, or the even share of so few blocks as possible."""
    if length is None or length == 0:
        return most
    blocks = -(-length // most)
    return -(-length // blocks)


def _filled_up(x: Tensor, axis: int, size: int) -> Tensor:
    """`x` with zeros after it, up to a multiple of `size`."""
    shape = list(ops.shape(x))
    missing = -shape[axis] % size
    if isinstance(missing, int) and not missing:
        return x
    shape[axis] = missing
    return ops.concatenate([x, ops.zeros(shape, x.dtype)], axis=axis)


def _query_blocks(query: Tensor, blocks: AttentionBlocks) -> Tensor:
    query = _filled_up(query, 1, blocks.queries)
    width, rows = query.shape[-1], blocks.repeats * blocks.queries
    batch, length = ops.shape(query)[:2]
    count = length // blocks.queries
    shape = (batch, count, blocks.queries, blocks.groups, blocks.repeats, width)
    query = ops.transpose(ops.reshape(query, shape), (1, 0, 3, 4, 2, 5))
    return ops.reshape(query, (count, batch * blocks.groups, rows, width))


def _key_blocks(x: Tensor, size: int) -> Tensor:
    x = _filled_up(x, 1, size)
    (batch, length), (groups, width) = ops.shape(x)[:2], x.shape[2:]
    x = ops.reshape(x, (batch, length // size, size, groups, width))
    x = ops.transpose(x, (1, 0, 3, 2, 4))  # (S/s, B, G, s, K)
    return ops.reshape(x, (length // size, batch * groups, size, width))


def _by_group(x: Tensor, blocks: AttentionBlocks) -> Tensor:
    """`(B*, H*, T, S)` as `(B*, G*, R*, T, S)`."""
    heads = (1, 1) if x.shape[1] == 1 else (blocks.groups, blocks.repeats)
    batch, _, length, source = ops.shape(x)
    return ops.reshape(x, (batch, *heads, length, source))


def _pair_blocks(bias: Tensor, blocks: AttentionBlocks) -> Tensor:
    t, s = blocks.queries, blocks.keys
    bias = _by_group(_filled_up(_filled_up(bias, 2, t), 3, s), blocks)
    batch, groups, repeats, length, source = ops.shape(bias)
    bias = ops.reshape(bias, (batch, groups, repeats, length // t, t, source // s, s))
    bias = ops.transpose(bias, (3, 5, 0, 1, 2, 4, 6))
    return ops.reshape(bias, (-1, batch, groups, repeats, t, s))


def _distance_blocks(
    bias: Tensor, blocks: AttentionBlocks, query: Tensor, key: Tensor
) -> Tensor:
    """Of `(H, T + S - 1)`: the line of biases that each diagonal of blocks reads."""
    t, s = blocks.queries, blocks.keys
    length, source = ops.shape(query)[1], ops.shape(key)[1]
    before = -(-length // t) - 1  # blocks of queries after the first
    count = before + 1 + (-(-source // s) - 1) * (s // t)
    diagonals = t * (ops.arange(count) - before)[:, None]
    distances = diagonals + ops.arange(t + s - 1) - (t - 1)  # key - query
    # the biases of what fills up the last blocks are those of the nearest pairs
    places = ops.clip(distances + length - 1, 0, length + source - 2)
    lines = ops.take(bias, places, axis=1)  # (H, n, t + s - 1)
    shape = (blocks.groups, blocks.repeats, count, t + s - 1)
    lines = ops.transpose(ops.reshape(lines, shape), (2, 0, 1, 3))
    return lines[:, None, :, :, None]  # (n, 1, G, R, 1, t + s - 1)
