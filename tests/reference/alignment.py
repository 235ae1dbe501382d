"""Attention whose weights depend on earlier ones, in float64, with loops over entries.

Written from Raffel et al. (2017), eq. 9, Luong et al. (2015), eq. 9 and 10, Chorowski
et al. (2015), eq. 8 and 9, and See et al. (2017), eq. 10 to 12. Each function here
takes one query of one row: `weights`, `query` `(Q,)`, `memory` `(S, D)`, `alignment`
`(S,)` and `seen`, bool `(S,)`, and returns the weights of the entries and the next
alignment.
"""

import numpy as np

from reference.attention import additive_score, general_score, masked_softmax


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def stopping_weights(p, previous):
    """Eq. 9 of Raffel et al.: over all ways to get to j without stopping before."""
    weights = np.zeros(len(p))
    for j in range(len(p)):
        for k in range(j + 1):
            weights[j] += previous[k] * np.prod([1 - p[i] for i in range(k, j)])
        weights[j] *= p[j]
    return weights


def monotonic(weights, query, memory, alignment, seen):
    """`weights` is `(W_q, W_k, v, g, b, r)`."""
    *score_weights, offset = weights
    p = np.zeros(len(memory))
    for j in np.flatnonzero(seen):
        p[j] = sigmoid(additive_score(score_weights, query, memory[j]) + offset)
    found = stopping_weights(p, alignment)
    return found, found


def additive(weights, query, memory, seen, features):
    """Softmax of v . tanh(W_q q + W_k h + features); `weights` is `(W_q, W_k, v)`."""
    w_query, w_key, v = weights
    scores = np.zeros(len(memory))
    for j in np.flatnonzero(seen):
        scores[j] = v @ np.tanh(query @ w_query + memory[j] @ w_key + features[j])
    return masked_softmax(scores, seen)


def location(weights, query, memory, alignment, seen, *, cumulative=False):
    """`weights` is `(W_q, W_k, v, F, W_f, b)`, F `(length, 1, filters)`."""
    *score_weights, filters, kernel, bias = weights
    reach = (len(filters) - 1) // 2
    features = np.zeros((len(memory), filters.shape[2]))
    for j in range(len(memory)):
        for k in range(len(filters)):
            if 0 <= j + k - reach < len(memory):
                features[j] += filters[k, 0] * alignment[j + k - reach]
    found = additive(score_weights, query, memory, seen, features @ kernel + bias)
    return found, alignment + found if cumulative else found


def cumulative_location(*arguments):
    return location(*arguments, cumulative=True)


def coverage(weights, query, memory, alignment, seen):
    """`weights` is `(W_q, W_k, v, w_c, b)`."""
    *score_weights, w_coverage, bias = weights
    features = [c * w_coverage + bias for c in alignment]
    found = additive(score_weights, query, memory, seen, features)
    return found, alignment + found


def local(weights, query, memory, alignment, seen, *, radius=2):
    """`weights` is `(W, W_p, v_p)`."""
    kernel, w_place, v_place = weights
    center = seen.sum() * sigmoid(v_place @ np.tanh(query @ w_place))
    scores, factors = np.zeros((2, len(memory)))
    window = np.zeros(len(memory), bool)
    for place, j in enumerate(np.flatnonzero(seen)):
        window[j] = center - radius <= place <= center + radius
        factors[j] = np.exp(-((place - center) ** 2) / (2 * (radius / 2) ** 2))
        scores[j] = general_score([kernel], query, memory[j])
    return masked_softmax(scores, window) * factors, alignment


def first_alignment(kind, length):
    """Before the first query: at the first entry, or nowhere."""
    first = np.zeros(length)
    first[0] = kind is monotonic
    return first


def attend(kind, weights, query, memory, mask, query_mask):
    """Context and maps of queries `(B, T, Q)` in order; `mask` is bool `(B, T, S)`.

    A masked query is passed over: it repeats the weights of the one before.
    """
    weights = [np.asarray(w, "float64") for w in weights]
    query, memory = np.asarray(query, "float64"), np.asarray(memory, "float64")
    maps = np.zeros(mask.shape)
    context = np.zeros((*query.shape[:2], memory.shape[2]))
    for b in range(len(query)):
        alignment = first_alignment(kind, memory.shape[1])
        for t in range(query.shape[1]):
            if query_mask[b, t]:
                maps[b, t], alignment = kind(
                    weights, query[b, t], memory[b], alignment, mask[b, t]
                )
            elif t:
                maps[b, t] = maps[b, t - 1]
            for s in np.flatnonzero(maps[b, t]):  # the others may hold NaN
                context[b, t] += maps[b, t, s] * memory[b, s]
    return context, maps


def decoder(kind, weights, step, cell_weights, x, states, memory, mask, memory_mask):
    """Bahdanau et al. (2015), section 3.1, over time: attend, then step.

    Returns outputs `(B, T, U + M)`, maps, and the last states, the alignment last.
    """
    weights = [np.asarray(w, "float64") for w in weights]
    cell_weights = [np.asarray(w, "float64") for w in cell_weights]
    x, memory = np.asarray(x, "float64"), np.asarray(memory, "float64")
    rows, length = x.shape[:2]
    outputs = np.zeros((rows, length, states[0].shape[1] + memory.shape[2]))
    maps = np.zeros((rows, length, memory.shape[1]))
    last = [np.array(state, "float64") for state in states]
    alignments = np.zeros((rows, memory.shape[1]))
    for b in range(rows):
        row, alignments[b] = (
            [s[b] for s in last],
            first_alignment(kind, memory.shape[1]),
        )
        for t in range(length):
            if mask[b, t]:
                maps[b, t], alignments[b] = kind(
                    weights, row[0], memory[b], alignments[b], memory_mask[b]
                )
                seen = memory_mask[b]
                context = maps[b, t, seen] @ memory[b, seen]
                output, row = step(
                    cell_weights, np.concatenate([x[b, t], context]), row
                )
                outputs[b, t] = np.concatenate([output, context])
            elif t:
                outputs[b, t], maps[b, t] = outputs[b, t - 1], maps[b, t - 1]
        for state, value in zip(last, row):
            state[b] = value
    return outputs, maps, [*last, alignments]


def coverage_loss(maps, mask):
    """Eq. 12 of See et al., of each query `(B, T)`; `mask` is bool `(B, T)`."""
    losses = np.zeros(mask.shape)
    for b in range(len(maps)):
        covered = np.zeros(maps.shape[2])
        for t in np.flatnonzero(mask[b]):
            losses[b, t] = sum(min(w, c) for w, c in zip(maps[b, t], covered))
            covered = covered + maps[b, t]
    return losses
