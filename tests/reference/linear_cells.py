"""Linear recurrences and their cells in float64, one row and step at a time.

Written from Feng et al. (2024), arXiv:2410.01201, and De et al. (2024),
arXiv:2402.19427, with the segment starts of RecurrentGemma.
"""

import numpy as np

from reference.cells import sigmoid


def linear_recurrence(a, b, state, reverse=False):
    """h_t = a_t h_{t-1} + b_t of `(B, T, U)`."""
    a, b, h = (np.asarray(x, "float64") for x in (a, b, state))
    steps = np.zeros(b.shape)
    order = range(b.shape[1])
    for t in reversed(order) if reverse else order:
        h = a[:, t] * h + b[:, t]
        steps[:, t] = h
    return steps


def min_gru_step(weights, x, h, starts=False):
    """Section 3.1.3; the candidate is that of appendix B, for log space."""
    kernel, bias = weights
    k, v = np.split(x @ kernel + bias, 2)
    z = sigmoid(k)
    candidate = np.array([u + 0.5 if u >= 0 else sigmoid(u) for u in v])
    return (1 - z) * (0 if starts else h) + z * candidate


def min_gru_in_log_space(k, v):
    """Appendix B: log h_t = A_t + logcumsumexp(log z + log g - A), from h_0 = 0."""
    log_z, log_keep = -np.logaddexp(0, -k), -np.logaddexp(0, k)
    log_g = np.where(v >= 0, np.log(np.maximum(v, 0) + 0.5), -np.logaddexp(0, -v))
    total = np.cumsum(log_keep)
    return np.exp(total + np.logaddexp.accumulate(log_z + log_g - total))


def rglru_step(weights, x, h, starts=False):
    """Equations 1 to 4; the blocks are as many as the kernel's rows fit into x."""
    kernel, bias, decay = weights
    rows, units = len(kernel), len(x)
    gates = np.zeros(2 * units)  # r, then i
    for first in range(0, 2 * units, rows):
        block, head = slice(first, first + rows), first % units
        gates[block] = x[head : head + rows] @ kernel[:, block]
    r, i = np.split(sigmoid(gates + bias), 2)
    a = sigmoid(decay) ** (8 * r)
    if starts:
        return i * x
    return a * h + np.sqrt(1 - a**2) * (i * x)


def run(step, weights, x, state, mask=None, reset_mask=None, go_backwards=False):
    """`step` over each row of `x` `(B, T, D)`: the outputs and the last state.

    A reset clears the state; a masked step keeps it and repeats the last output,
    zeros before the first.
    """
    weights = [np.asarray(w, "float64") for w in weights]
    x, last = np.asarray(x, "float64"), np.array(state, "float64")
    rows, length = x.shape[:2]
    outputs = np.zeros((rows, length, last.shape[1]))
    order = range(length)
    for b in range(rows):
        output = np.zeros(last.shape[1])
        for t in reversed(order) if go_backwards else order:
            starts = reset_mask is not None and reset_mask[b, t]
            if starts:
                last[b] = output = np.zeros(last.shape[1])
            if mask is None or mask[b, t]:
                last[b] = output = step(weights, x[b, t], last[b], starts)
            outputs[b, t] = output
    return outputs, last
