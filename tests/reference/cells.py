"""Recurrent cells and the loop over time, in float64, one row and step at a time.

Written from Elman (1990), Cho et al. (2014) and Hochreiter & Schmidhuber (1997)
with Gers et al. (2000); vectors are rows, gate columns are in Keras's order.
"""

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def simple_rnn_step(weights, x, states):
    kernel, recurrent, bias = weights
    (h,) = states
    h = np.tanh(x @ kernel + h @ recurrent + bias)
    return h, [h]


def gru_step(weights, x, states, reset_after=True):
    """Cho et al. (2014), eq. 5-8; cuDNN resets after the product instead."""
    kernel, recurrent, bias = weights
    (h,) = states
    wz, wr, wn = np.split(kernel, 3, axis=1)
    uz, ur, un = np.split(recurrent, 3, axis=1)
    if reset_after:
        (bz, br, bn), (cz, cr, cn) = (np.split(row, 3) for row in bias)
    else:
        (bz, br, bn), (cz, cr) = np.split(bias, 3), (0, 0)
    z = sigmoid(x @ wz + bz + h @ uz + cz)
    r = sigmoid(x @ wr + br + h @ ur + cr)
    if reset_after:
        n = np.tanh(x @ wn + bn + r * (h @ un + cn))
    else:
        n = np.tanh(x @ wn + bn + (r * h) @ un)
    h = z * h + (1 - z) * n
    return h, [h]


def gru_before_step(weights, x, states):
    return gru_step(weights, x, states, reset_after=False)


def lstm_step(weights, x, states):
    kernel, recurrent, bias = weights
    h, c = states
    i, f, g, o = np.split(x @ kernel + h @ recurrent + bias, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    return h, [h, c]


def run(
    step,
    weights,
    x,
    states,
    mask=None,
    go_backwards=False,
    zero_output=False,
    reset_mask=None,
):
    """`step` over each row of `x` `(B, T, D)`.

    A masked step keeps states and output; the output before the first real step
    is zero. A reset sets states and output to zeros before the step. Returns
    outputs `(B, T, U)` at the step that made them, the last output `(B, U)` in
    running order, and the last states.
    """
    weights = [np.asarray(w, "float64") for w in weights]
    x = np.asarray(x, "float64")
    rows, length = x.shape[:2]
    units = states[0].shape[1]
    outputs = np.zeros((rows, length, units))
    last_output = np.zeros((rows, units))
    last_states = [np.array(state, "float64") for state in states]
    order = range(length)
    for b in range(rows):
        held = np.zeros(units)
        row_states = [state[b] for state in last_states]
        for t in reversed(order) if go_backwards else order:
            if reset_mask is not None and reset_mask[b, t]:
                held = np.zeros(units)
                row_states = [np.zeros_like(state) for state in row_states]
            if mask is None or mask[b, t]:
                held, row_states = step(weights, x[b, t], row_states)
                outputs[b, t] = held
            else:
                outputs[b, t] = 0 if zero_output else held
        last_output[b] = held
        for state, value in zip(last_states, row_states):
            state[b] = value
    return outputs, last_output, last_states
