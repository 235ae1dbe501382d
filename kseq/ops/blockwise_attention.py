"""Scaled dot-product attention that never holds the T x S matrix of weights."""

from functools import partial
from typing import Any

import keras
import numpy as np
from keras import ops

from kseq._typing import Tensor
from kseq.backend import Buffer, custom_gradient, empty, filled, loop, stacked
from kseq.ops.attention_blocks import AttentionBlocks, BlockInputs
from kseq.ops.attention_cut import cut, joined


def blockwise_attention(
    query: Tensor, key: Tensor, value: Tensor, **options: Any
) -> Tensor:
    """`dot_product_attention` in memory that grows with T + S (Rabe & Staats).

    The square of queries and keys is cut into blocks. For a block of queries a loop
    over the blocks of keys carries the largest score m, the sum l and the output y:

        m' = max(m, max_j e_j);  p_j = exp(e_j - m')
        l' = exp(m - m') l + sum_j p_j;  y' = exp(m - m') y + sum_j p_j v_j

    and y / l is the result. The gradient computes the scores again, from m + log l,
    for a block of keys at a time (Dao et al.). Blocks in which the causal mask or the
    window hides all pairs are left out. Key heads are never repeated: the query
    heads of a group are rows of one product.

    Args:
        query: float `(B, T, H, K)`.
        key: float `(B, S, G, K)`; G divides H.
        value: float `(B, S, G, V)`.
        **options: the keyword arguments of `kseq.ops.dot_product_attention`. Of
            these `attention_mask` and `attention_bias` are as large as T x S
            themselves; `distance_bias` is not.

    Returns:
        The output `(B, T, H, V)` of the query's dtype, equal to the one there.

    Masking, Numerics, Raises: as `kseq.ops.dot_product_attention`. There is a
        gradient, but none of the gradient.

    Example:

    >>> x = keras.random.normal((1, 300, 2, 8), seed=0)
    >>> y = kseq.ops.blockwise_attention(x, x, x, use_causal_mask=True)
    >>> tuple(y.shape)
    (1, 300, 2, 8)

    References:
        Rabe & Staats, 2021, "Self-attention does not need O(n^2) memory",
        arXiv:2112.05682.
        Dao et al., 2022, "FlashAttention", arXiv:2205.14135, algorithms 1 and 4.
    """
    blocks, inputs = cut(query, key, value, **options)
    run = custom_gradient(partial(_forward, blocks), partial(_backward, blocks))
    output = joined(blocks, run(inputs), ops.shape(query)[1])
    return ops.cast(output, query.dtype)


def _forward(blocks: AttentionBlocks, inputs: BlockInputs) -> tuple[Tensor, Any]:
    queries = filled(inputs.query)
    keys, values = filled(ops.swapaxes(inputs.key, 2, 3)), filled(inputs.value)
    biases = None if inputs.bias is None else filled(inputs.bias)
    count = ops.shape(inputs.query)[0]
    rows = inputs.query[0]  # (N, R t, K)
    output = ops.zeros((*ops.shape(rows)[:2], inputs.value.shape[3]), rows.dtype)
    column = blocks.by_pair(rows[..., :1])  # (B, G, R, t, 1)
    if inputs.sinks is None:
        largest = ops.full_like(column, _least(column))
        total = ops.zeros_like(column)
    else:
        largest = ops.zeros_like(column) + inputs.sinks
        total = ops.ones_like(column)

    def attend(i: Tensor, outputs: Buffer, normalizers: Buffer) -> list[Any]:
        block = queries.read(i)
        start, end = blocks.key_range(inputs, i)

        def step(k: Tensor, m: Tensor, total: Tensor, output: Tensor) -> list[Tensor]:
            j = start + k
            product = ops.matmul(block, keys.read(j))  # (N, R t, s)
            scores, _ = blocks.scores(inputs, biases, product, i, j)
            visible = blocks.visible(inputs, i, j)
            if visible is not None:
                scores = ops.where(visible, scores, _least(m))
            new_m = ops.maximum(m, ops.max(scores, axis=-1, keepdims=True))
            weights = _where(visible, ops.exp(scores - new_m))
            shrink = ops.exp(m - new_m)
            total = total * shrink + ops.sum(weights, axis=-1, keepdims=True)
            weights = blocks.dropped(inputs, weights, i, j)
            weights = ops.reshape(weights, ops.shape(product))
            output = output * blocks.by_row(shrink)
            return [new_m, total, output + ops.matmul(weights, values.read(j))]

        m, sums, y = loop(end - start, step, [largest, total, output])
        # where nothing is visible the sum is 0, and so is the output
        sums = ops.where(sums > 0, sums, 1.0)
        return [
            outputs.write(i, y / blocks.by_row(sums)),
            normalizers.write(i, m + ops.log(sums)),
        ]

    buffers = loop(count, attend, [empty(count, output), empty(count, column)])
    outputs, normalizers = (stacked(buffer, count) for buffer in buffers)
    return outputs, (inputs, outputs, normalizers)


def _backward(blocks: AttentionBlocks, residuals: Any, d_output: Tensor) -> BlockInputs:
    inputs, outputs, normalizers = residuals
    # d_e = w (d_w - sum_j w d_w), and that sum is y . d_y
    means = ops.sum(outputs * d_output, axis=-1, keepdims=True)
    # no product here has a transposed left side, which is slow on a processor
    queries, queries_t = filled(inputs.query), filled(ops.swapaxes(inputs.query, 2, 3))
    upstream, upstream_t = filled(d_output), filled(ops.swapaxes(d_output, 2, 3))
    keys, keys_t = filled(inputs.key), filled(ops.swapaxes(inputs.key, 2, 3))
    values_t = filled(ops.swapaxes(inputs.value, 2, 3))
    biases = None if inputs.bias is None else filled(inputs.bias)
    rows_of_means, rows_of_normalizers = filled(means), filled(normalizers)
    count = ops.shape(inputs.key)[0]
    d_key, d_value = (
        ops.zeros_like(ops.swapaxes(x[0], 1, 2)) for x in (inputs.key, inputs.value)
    )  # (N, K, s) and (N, V, s)

    def attend(
        j: Tensor,
        d_queries: Buffer,
        d_biases: list[Buffer],
        d_keys: Buffer,
        d_values: Buffer,
    ) -> list[Any]:
        key, key_t, value_t = keys.read(j), keys_t.read(j), values_t.read(j)
        start, end = blocks.query_range(inputs, j)

        def step(
            k: Tensor,
            d_queries: Buffer,
            d_biases: list[Buffer],
            d_key: Tensor,
            d_value: Tensor,
        ) -> list[Any]:
            i = start + k
            product = ops.matmul(queries.read(i), key_t)  # (N, R t, s)
            scores, slope = blocks.scores(inputs, biases, product, i, j)
            visible = blocks.visible(inputs, i, j)
            weights = _where(visible, ops.exp(scores - rows_of_normalizers.read(i)))
            kept = blocks.dropped(inputs, weights, i, j)
            kept = ops.reshape(kept, ops.shape(product))
            d_value = d_value + ops.matmul(upstream_t.read(i), kept)
            d_weights = blocks.by_pair(ops.matmul(upstream.read(i), value_t))
            d_weights = blocks.dropped(inputs, d_weights, i, j)
            mean = blocks.by_pair(rows_of_means.read(i))
            d_scores = weights * (d_weights - mean)
            if inputs.bias is not None:
                (buffer,), place = d_biases, blocks.bias_index(inputs, i, j)
                d_bias = blocks.gathered(d_scores, inputs.bias.shape[1:])
                d_biases = [buffer.write(place, buffer.read(place) + d_bias)]
            if slope is not None:
                d_scores = d_scores * slope
            d_scores = ops.reshape(d_scores, ops.shape(product))
            d_key = d_key + ops.matmul(queries_t.read(i), d_scores)
            d_query = d_queries.read(i) + ops.matmul(d_scores, key)
            return [d_queries.write(i, d_query), d_biases, d_key, d_value]

        d_queries, d_biases, d_k, d_v = loop(
            end - start, step, [d_queries, d_biases, d_key, d_value]
        )
        return [d_queries, d_biases, d_keys.write(j, d_k), d_values.write(j, d_v)]

    some = [] if inputs.bias is None else [inputs.bias]
    d_queries, d_biases, d_keys, d_values = loop(
        count,
        attend,
        [
            filled(ops.zeros_like(inputs.query)),
            [filled(ops.zeros_like(bias)) for bias in some],
            empty(count, d_key),
            empty(count, d_value),
        ],
    )
    d_sinks = None
    if inputs.sinks is not None:
        # its weight is exp(s) / l, and its value 0
        weights = ops.exp(inputs.sinks - normalizers)
        means = ops.reshape(means, ops.shape(normalizers))
        d_sinks = -ops.sum(weights * means, axis=(0, 1, 4))[..., None]
    return BlockInputs(
        query=stacked(d_queries, ops.shape(inputs.query)[0]),
        key=ops.swapaxes(stacked(d_keys, count), 2, 3),
        value=ops.swapaxes(stacked(d_values, count), 2, 3),
        sinks=d_sinks,
        bias=stacked(d_biases[0], ops.shape(inputs.bias)[0]) if some else None,
    )


def _least(x: Tensor) -> float:
    return float(np.finfo(keras.backend.standardize_dtype(x.dtype)).min)


def _where(visible: Tensor | None, weights: Tensor) -> Tensor:
    return weights if visible is None else ops.where(visible, weights, 0.0)
