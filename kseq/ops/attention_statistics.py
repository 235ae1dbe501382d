"""What the weights of attention look like, without the matrix of them."""

from typing import Any

import keras
import numpy as np
from keras import ops

from kseq._typing import Tensor
from kseq.backend import Buffer, empty, filled, loop, stacked
from kseq.ops.attention_blocks import BlockInputs
from kseq.ops.attention_cut import cut, joined
from kseq.ops.dot_product_attention import query_positions

NAMES = "entropy", "max_weight", "first_key", "mean_distance"


def attention_statistics(
    query: Tensor, key: Tensor, **options: Any
) -> dict[str, Tensor]:
    """Four statistics of each row of attention weights, in memory linear in T + S.

        entropy: -sum_j w_j ln w_j, in nats
        max_weight: max_j w_j
        first_key: w_f, f being the first real key of the sequence
        mean_distance: sum_j w_j |i + offset - j|, in tokens

    The weights w are those of `dot_product_attention`, before dropout. With `sinks`
    the sums run over the keys alone, whose weights then sum to less than 1. f is the
    first True of `value_mask`, else key 0: the weight it draws shows an attention
    sink, and is 0 where a mask or the window hides it. Places i and j count padding.

    Args:
        query: float `(B, T, H, K)`.
        key: float `(B, S, G, K)`; G divides H.
        **options: the keyword arguments of `kseq.ops.dot_product_attention`;
            `dropout` and `seed` change nothing.

    Returns:
        `(B, H, T)` for each of the names above, at least float32. A query that may
        see nothing has 0 in all of them.

    Numerics: in one pass over blocks, as `kseq.ops.blockwise_attention`; at least
        float32 inside. There is no gradient.

    Raises: as `kseq.ops.dot_product_attention`.

    Example:

    >>> x = keras.random.normal((1, 300, 2, 8), seed=0)
    >>> statistics = kseq.ops.attention_statistics(x, x, use_causal_mask=True)
    >>> tuple(statistics["entropy"].shape)
    (1, 2, 300)

    References:
        Xiao et al., 2023, "Efficient streaming language models with attention
        sinks", arXiv:2309.17453, section 3.1 (the first key).
    """
    blocks, inputs = cut(query, key, key, **options)
    inputs = BlockInputs(*(None if x is None else ops.stop_gradient(x) for x in inputs))
    queries, keys = filled(inputs.query), filled(ops.swapaxes(inputs.key, 2, 3))
    biases = None if inputs.bias is None else filled(inputs.bias)
    count = ops.shape(inputs.query)[0]
    zeros = ops.zeros_like(blocks.by_pair(inputs.query[0][..., :1]))  # (B, G, R, t, 1)
    least = float(np.finfo(keras.backend.standardize_dtype(zeros.dtype)).min)
    first_column = 0
    if inputs.value_mask is not None:
        first_column = ops.argmax(ops.cast(inputs.value_mask, "int32"), axis=1)
        first_column = ops.reshape(first_column, (-1, 1, 1, 1, 1))

    def measure(i: Tensor, rows: Buffer) -> list[Buffer]:
        block = queries.read(i)
        start, end = blocks.key_range(inputs, i)

        def step(
            k: Tensor,
            m: Tensor,
            total: Tensor,
            scored: Tensor,
            first: Tensor,
            distance: Tensor,
        ) -> list[Tensor]:
            j = start + k
            product = ops.matmul(block, keys.read(j))  # (N, R t, s)
            scores, _ = blocks.scores(inputs, biases, product, i, j)
            visible = blocks.visible(inputs, i, j)
            if visible is not None:
                scores = ops.where(visible, scores, least)
            new_m = ops.maximum(m, ops.max(scores, axis=-1, keepdims=True))
            scores, moved = scores - new_m, m - new_m
            weights = ops.exp(scores)
            if visible is not None:
                weights = ops.where(visible, weights, 0.0)
            places, columns = blocks.places(i, j)
            positions = query_positions(inputs.offset, places)[..., None]  # (B, t, 1)
            far = ops.cast(ops.abs(positions - columns), zeros.dtype)
            far = far[:, None, None]  # (B, 1, 1, t, s)

            def added(old: Tensor, terms: Tensor) -> Tensor:
                return old * ops.exp(moved) + ops.sum(terms, axis=-1, keepdims=True)

            return [
                new_m,
                added(total, weights),
                added(scored + moved * total, weights * scores),
                added(first, ops.where(columns == first_column, weights, 0.0)),
                added(distance, weights * far),
            ]

        m, total, scored, first, distance = loop(
            end - start, step, [ops.full_like(zeros, least), *[zeros] * 4]
        )
        # the sums are of p = exp(e - m), and w = p / exp(log_total)
        seen = total > 0
        log_total = ops.log(ops.where(seen, total, 1.0))
        if inputs.sinks is not None:
            log_total = ops.logaddexp(log_total, inputs.sinks - m)
        largest = ops.where(seen, ops.exp(-log_total), 0.0)
        sums = [total * log_total - scored, ops.ones_like(m), first, distance]
        found = [blocks.by_row(largest * x) for x in sums]
        return [rows.write(i, ops.concatenate(found, axis=-1))]

    like = blocks.by_row(ops.concatenate([zeros] * len(NAMES), axis=-1))
    (rows,) = loop(count, measure, [empty(count, like)])
    rows = joined(blocks, stacked(rows, count), ops.shape(query)[1])  # (B, T, H, 4)
    rows = ops.transpose(rows, (3, 0, 2, 1))  # (4, B, H, T)
    return {name: rows[i] for i, name in enumerate(NAMES)}
