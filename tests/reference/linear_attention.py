"""Linear attention in float64, with loops over rows, queries, heads and entries.

Written from Katharopoulos et al. (2020): eq. 4, the weighted mean that any positive
similarity makes, with that of eq. 7, and the sums of eq. 10 and 11.
"""

import numpy as np


def features(x):
    """elu(x) + 1."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def linear_attention(query, key, value, mask=None, causal=False, state=None):
    """Outputs `(B, T, H, V)`, and the sums S and z over the real entries."""
    query, key, value = (np.asarray(x, "float64") for x in (query, key, value))
    (rows, queries, heads, _), (_, entries, groups, _) = query.shape, key.shape
    mask = np.ones((rows, entries), bool) if mask is None else mask
    if state is None:
        sums = np.zeros((rows, groups, key.shape[3], value.shape[3]))
        totals = np.zeros((rows, groups, key.shape[3]))
    else:
        sums, totals = (np.array(x, "float64") for x in state)

    outputs = np.zeros((rows, queries, heads, value.shape[3]))
    for b, t, h in np.ndindex(rows, queries, heads):
        group = h // (heads // groups)
        q = features(query[b, t, h])
        total = q @ totals[b, group]
        weighted = q @ sums[b, group]
        for s in range(t + 1 if causal else entries):
            if mask[b, s]:
                weight = q @ features(key[b, s, group])
                total = total + weight
                weighted = weighted + weight * value[b, s, group]
        if total > 0:
            outputs[b, t, h] = weighted / total

    for b, s, group in np.ndindex(rows, entries, groups):
        if mask[b, s]:
            k = features(key[b, s, group])
            sums[b, group] += np.outer(k, value[b, s, group])
            totals[b, group] += k
    return outputs, (sums, totals)


def layer(weights, query, value, key=None, mask=None, causal=False):
    """The layer; `weights` in the order of `keras.layers.MultiHeadAttention`."""
    weights = [np.asarray(w, "float64") for w in weights]
    biased = len(weights) == 8
    kernels = weights[::2] if biased else weights
    biases = weights[1::2] if biased else [0.0] * 4
    inputs = (query, value if key is None else key, value)
    projected = []
    for x, kernel, bias in zip(inputs, kernels, biases):
        x = np.asarray(x, "float64")
        heads = np.zeros((*x.shape[:2], *kernel.shape[1:]))
        for b, t, h in np.ndindex(heads.shape[:3]):
            heads[b, t, h] = x[b, t] @ kernel[:, h]
        projected.append(heads + bias)
    contexts, _ = linear_attention(*projected, mask, causal)
    outputs = np.zeros((*contexts.shape[:2], kernels[3].shape[-1]))
    for b, t, h in np.ndindex(contexts.shape[:3]):
        outputs[b, t] += contexts[b, t, h] @ kernels[3][h]
    return outputs + biases[3]
