"""Scaled dot-product attention in float64, with loops over b, h, i and j.

Written from Vaswani et al. (2017), eq. 1; Ainslie et al. (2023) for the groups; Gemma
2 (2024) for the soft cap, before the mask; Miller (2023) for the sinks.
"""

import math

import numpy as np


def visible(b, h, i, j, masks, use_causal_mask, offset, window):
    """Whether query i of head h may see key j."""
    if masks["query"] is not None and not masks["query"][b, i]:
        return False
    if masks["value"] is not None and not masks["value"][b, j]:
        return False
    pairs = masks["pairs"]
    if pairs is not None:
        row = pairs[b] if pairs.ndim == 3 else pairs[b, h % pairs.shape[1]]
        if not row[i, j]:
            return False
    if not use_causal_mask:
        return True
    position = i + (offset[b] if np.ndim(offset) else offset)
    return j <= position and (window is None or position - j < window)


def dot_product_attention(
    query,
    key,
    value,
    *,
    scale=None,
    query_mask=None,
    value_mask=None,
    attention_mask=None,
    use_causal_mask=False,
    offset=0,
    window=None,
    attention_bias=None,
    distance_bias=None,
    soft_cap=None,
    sinks=None,
    kept=None,
    dropout=0.0,
):
    """Outputs `(B, T, H, V)` and weights before dropout `(B, H, T, S)`.

    `kept` is bool `(B, H, T, S)`: which weights dropout keeps.
    """
    query, key, value, attention_bias, distance_bias, sinks = (
        None if x is None else np.asarray(x, "float64")
        for x in (query, key, value, attention_bias, distance_bias, sinks)
    )
    (rows, length, heads, width), (source, groups) = query.shape, key.shape[1:3]
    scale = 1 / math.sqrt(width) if scale is None else scale
    masks = {"query": query_mask, "value": value_mask, "pairs": attention_mask}
    outputs = np.zeros((rows, length, heads, value.shape[3]))
    weights = np.zeros((rows, heads, length, source))
    for b, h, i in np.ndindex(rows, heads, length):
        g = h // (heads // groups)
        scores = {}
        for j in range(source):
            if not visible(b, h, i, j, masks, use_causal_mask, offset, window):
                continue
            score = scale * (query[b, i, h] @ key[b, j, g])
            if soft_cap is not None:
                score = soft_cap * math.tanh(score / soft_cap)
            if attention_bias is not None:
                shared_rows, shared_heads = attention_bias.shape[:2]
                score += attention_bias[b % shared_rows, h % shared_heads, i, j]
            if distance_bias is not None:
                score += distance_bias[h, j - i + length - 1]
            scores[j] = score
        if not scores:
            continue
        logits = [*scores.values()] + ([] if sinks is None else [sinks[h]])
        largest = max(logits)
        total = sum(math.exp(logit - largest) for logit in logits)
        for j, score in scores.items():
            weights[b, h, i, j] = math.exp(score - largest) / total
            if kept is None or kept[b, h, i, j]:
                outputs[b, i, h] += weights[b, h, i, j] / (1 - dropout) * value[b, j, g]
    return outputs, weights


def statistics(weights, value_mask=None, offset=0):
    """Of weights `(B, H, T, S)`: the four of `attention_statistics`, `(B, H, T)`."""
    names = "entropy", "max_weight", "first_key", "mean_distance"
    found = {name: np.zeros(weights.shape[:3]) for name in names}
    for b, h, i in np.ndindex(weights.shape[:3]):
        row = weights[b, h, i]
        real = range(row.size) if value_mask is None else np.flatnonzero(value_mask[b])
        position = i + (offset[b] if np.ndim(offset) else offset)
        found["entropy"][b, h, i] = -sum(w * math.log(w) for w in row if w)
        found["max_weight"][b, h, i] = row.max()
        found["first_key"][b, h, i] = row[real[0]] if len(real) else 0
        found["mean_distance"][b, h, i] = sum(
            w * abs(position - j) for j, w in enumerate(row)
        )
    return found
