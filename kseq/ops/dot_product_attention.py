"""Scaled dot-product attention that holds the weights, and can return them."""

import math
from typing import Any

import keras
from keras import ops

from kseq._typing import Tensor
from kseq.ops.attention_checks import check_attention, check_dropout, check_pairs
from kseq.ops.dropout import kept_places
from kseq.ops.masked_softmax import masked_softmax
from kseq.ops.masks import causal_mask, combine_masks, zero_padding


def dot_product_attention(
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
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention with all its weights (Vaswani et al.).

        e_hij = cap(scale q_hi . k_gj) + bias_hij,  cap(e) = c tanh(e / c)
        w_hij = m_hij exp(e_hij) / (exp(s_h) + sum_j m_hij exp(e_hij))
        y_hi = sum_j w_hij v_gj

    Head h of H reads the keys and values of head g = floor(h / (H / G)) of G, which
    is grouped-query attention for G < H and multi-query attention for G = 1. The
    term exp(s_h) is there with `sinks` only. The soft cap comes before the mask.
    Its memory grows with T S; that of `blockwise_attention` does not.

    Args:
        query: float `(B, T, H, K)`.
        key: float `(B, S, G, K)`; G divides H.
        value: float `(B, S, G, V)`.
        scale: float. What the query is multiplied by. None is `1 / sqrt(K)`.
        query_mask: bool `(B, T)`. True is a real query; the others get output 0.
        value_mask: bool `(B, S)`. True is a real key and value; what stands in the
            others may be anything, NaN included.
        attention_mask: bool `(B, T, S)` or `(B, H, T, S)`, True where a query may
            see a key; a head axis of size 1 is allowed.
        use_causal_mask: bool. True lets query i see key j iff j <= i + offset.
        offset: int, or int `(B,)`. How many keys stand before the first query's own,
            in tokens. Defaults to 0.
        window: int. The number W of keys that a query sees, its own included; needs
            `use_causal_mask`. None is no window.
        attention_bias: float `(B, H, T, S)`, a term of the scores; B and H may be 1.
        distance_bias: float `(H, T + S - 1)`, a term of the scores that depends on
            the distance only: column n is for key - query = n - (T - 1), both
            counted from 0.
        soft_cap: float. The bound c > 0 of the scaled scores (Gemma 2). None is none.
        sinks: float `(H,)`, s: a logit with no value, so that a head may look at
            nothing (weights then sum to less than 1).
        dropout: float. Probability that a weight is dropped, in [0, 1).
        seed: int `(2,)`, of the dropped weights; the same seed drops the same ones in
            `blockwise_attention`.

    Returns:
        The output `(B, T, H, V)` of the query's dtype, and the weights before
        dropout `(B, H, T, S)`, at least float32.

    Masking: all masks are combined by AND. A query that may see nothing gets weights
        0, output 0 and finite gradients.

    Numerics: the query is scaled before the product; scores, softmax and sums are
        at least float32, whatever the inputs.

    Raises:
        ValueError: `` `key` must have a number of heads that divides the query's... ``,
            `` `window` needs `use_causal_mask=True`... ``,
            `` `soft_cap` must be positive... ``, `` `dropout` needs a `seed`... ``,
            and for wrong ranks and sizes.
        TypeError: `` `value_mask` must be boolean... ``

    References:
        Vaswani et al., 2017, "Attention is all you need", arXiv:1706.03762, eq. 1.
        Ainslie et al., 2023, "GQA", arXiv:2305.13245.
        Gemma Team, 2024, "Gemma 2", arXiv:2408.00118, section 2 (the soft cap).
        Xiao et al., 2023, "Efficient streaming language models with attention
        sinks", arXiv:2309.17453, and Miller, 2023, "Attention is off by one".
    """
    check_attention(query, key, value, use_causal_mask, window, soft_cap)
    check_pairs(query, key, attention_mask, attention_bias, distance_bias, sinks)
    check_dropout(dropout, seed)
    compute = keras.backend.result_type(query.dtype, "float32")
    dtype, (_, length, heads, width) = query.dtype, query.shape
    groups = key.shape[2]
    query, key, value = (
        ops.cast(zero_padding(x, mask, name), compute)
        for x, mask, name in (
            (query, query_mask, "query_mask"),
            (key, value_mask, "value_mask"),
            (value, value_mask, "value_mask"),
        )
    )
    batch, length, source = ops.shape(query)[0], ops.shape(query)[1], ops.shape(key)[1]
    query = query * (1 / math.sqrt(width) if scale is None else scale)
    query = ops.reshape(query, (batch, length, groups, heads // groups, width))
    scores = ops.einsum("btgrk,bsgk->bgrts", query, key)
    scores = ops.reshape(scores, (batch, heads, length, source))
    if soft_cap is not None:
        scores = soft_cap * ops.tanh(scores / soft_cap)
    bias = pair_bias(attention_bias, distance_bias, length, source, compute)
    if bias is not None:
        scores += bias
    causal = None
    if use_causal_mask:
        positions = query_positions(offset, ops.arange(length))
        causal = causal_mask(positions, ops.arange(source), window)
    mask = combine_masks(
        query_mask=query_mask,
        value_mask=value_mask,
        attention_mask=attention_mask,
        causal_mask=causal,
    )
    if mask is not None and len(mask.shape) == 3:
        mask = ops.expand_dims(mask, 1)  # (B, 1, T, S)
    if sinks is not None:
        sinks = ops.reshape(ops.cast(sinks, compute), (1, heads, 1, 1))
    weights = masked_softmax(scores, mask, sinks)
    dropped = weights
    if dropout:
        numbers = ops.reshape(ops.arange(batch * heads), (batch, heads, 1, 1))
        rows = query_positions(offset, ops.arange(length))[:, None, :, None]
        kept = kept_places(seed, dropout, numbers, rows, ops.arange(source))
        dropped = ops.where(kept, weights / (1 - dropout), 0.0)
    dropped = ops.reshape(dropped, (batch, groups, heads // groups, length, source))
    output = ops.einsum("bgrts,bsgv->btgrv", dropped, value)
    output = ops.reshape(output, (batch, length, heads, value.shape[-1]))
    return ops.cast(output, dtype), weights


def pair_bias(
    attention_bias: Tensor | None,
    distance_bias: Tensor | None,
    length: Tensor,
    source: Tensor,
    dtype: str,
) -> Tensor | None:
    """The sum of both biases, for each pair: `(B, H, T, S)`, where B and H may be 1."""
    if attention_bias is not None:
        attention_bias = ops.cast(attention_bias, dtype)
    if distance_bias is None:
        return attention_bias
    distance = ops.arange(source)[None] - ops.arange(length)[:, None]
    places = distance + length - 1  # (T, S)
    bias = ops.take(ops.cast(distance_bias, dtype), places, axis=1)[None]
    return bias if attention_bias is None else bias + attention_bias


def query_positions(offset: Any, places: Tensor) -> Tensor:
    """Positions `(1, T)` or `(B, T)` of the queries at `places` `(T,)`."""
    offset = ops.cast(ops.convert_to_tensor(offset), places.dtype)
    return ops.reshape(offset, (-1, 1)) + places[None]
