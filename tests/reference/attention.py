"""Attention over a memory in float64, with loops over rows, queries and keys.

Written from Bahdanau et al. (2015), appendix A.1.2, Raffel et al. (2017), eq. 13
(the normalized form) and Luong et al. (2015), eq. 8.
"""

import numpy as np


def masked_softmax(scores, mask=None):
    """Rows of the last axis; a row without a True is zeros."""
    scores = np.asarray(scores, "float64")
    mask = np.ones(scores.shape, bool) if mask is None else mask
    mask = np.broadcast_to(mask, scores.shape)
    weights = np.zeros(scores.shape)
    for index in np.ndindex(scores.shape[:-1]):
        seen = mask[index]
        if seen.any():
            kept = scores[index][seen]
            kept = np.exp(kept - kept.max())
            weights[index][seen] = kept / kept.sum()
    return weights


def additive_score(weights, query, key):
    """Of one query and one key; `weights` is `(W_q, W_k, v)` or with `g, b`."""
    w_query, w_key, v, *normalization = weights
    hidden = query @ w_query + key @ w_key
    if normalization:
        gain, bias = normalization
        hidden = hidden + bias
        v = gain * v / np.sqrt((v * v).sum())
    return v @ np.tanh(hidden)


def dot_score(weights, query, key):
    return weights[0] * (query @ key) if weights else query @ key


def general_score(weights, query, key):
    kernel, *gain = weights  # (D, Q)
    return dot_score(gain, query, key @ kernel)


def attend(score, weights, query, memory, mask=None):
    """Context `(B, T, D)` and weights `(B, T, S)`; `mask` is `(B, T, S)`."""
    weights = [np.asarray(w, "float64") for w in weights]
    query, memory = np.asarray(query, "float64"), np.asarray(memory, "float64")
    scores = np.zeros((*query.shape[:2], memory.shape[1]))
    for b, t, s in np.ndindex(scores.shape):
        if mask is None or mask[b, t, s]:
            scores[b, t, s] = score(weights, query[b, t], memory[b, s])
    maps = masked_softmax(scores, mask)
    context = np.zeros((*query.shape[:2], memory.shape[2]))
    for b, t, s in np.ndindex(scores.shape):
        if maps[b, t, s]:  # a memory that nobody sees may hold NaN
            context[b, t] += maps[b, t, s] * memory[b, s]
    return context, maps


def decoder_step(step, cell_weights, score, score_weights, x, states, memory, seen):
    """One row of Bahdanau et al. (2015), section 3.1: attend, then step.

    `x` `(D,)`, `states` of `(U,)`, `memory` `(S, M)`, `seen` bool `(S,)`.
    """
    context, maps = attend(
        score, score_weights, states[0][None, None], memory[None], seen[None, None]
    )
    context = context[0, 0]
    output, states = step(cell_weights, np.concatenate([x, context]), states)
    return np.concatenate([output, context]), maps[0, 0], states


def decoder(
    step, cell_weights, score, score_weights, x, states, memory, mask, memory_mask
):
    """The decoder over time: outputs `(B, T, U + M)`, maps `(B, T, S)`, states."""
    cell_weights = [np.asarray(w, "float64") for w in cell_weights]
    x, memory = np.asarray(x, "float64"), np.asarray(memory, "float64")
    rows, length = x.shape[:2]
    outputs = np.zeros((rows, length, states[0].shape[1] + memory.shape[2]))
    maps = np.zeros((rows, length, memory.shape[1]))
    last = [np.array(state, "float64") for state in states]
    for b in range(rows):
        row_states = [state[b] for state in last]
        for t in range(length):
            if mask[b, t]:
                outputs[b, t], maps[b, t], row_states = decoder_step(
                    step, cell_weights, score, score_weights,
                    x[b, t], row_states, memory[b], memory_mask[b],
                )  # fmt: skip
            elif t:
                outputs[b, t], maps[b, t] = outputs[b, t - 1], maps[b, t - 1]
        for state, value in zip(last, row_states):
            state[b] = value
    return outputs, maps, last
