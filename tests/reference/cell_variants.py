"""Variants of the recurrent cells in float64, one row and step at a time.

Written from Ba et al. (2016), supplementary material, Gers et al. (2002), Sak et
al. (2014), Krueger et al. (2017) and Wu et al. (2016), section 3.1. Vectors are
rows, gate columns are in Keras's order; `weights` stand in the order of the layer.
"""

import numpy as np

from reference.cells import sigmoid


def layer_norm(v, gain, epsilon=1e-3):
    mean = sum(v) / len(v)
    variance = sum((entry - mean) ** 2 for entry in v) / len(v)
    return gain * (v - mean) / np.sqrt(variance + epsilon)


def layer_norm_lstm_step(weights, x, states, epsilon=1e-3):
    kernel, recurrent, bias, w_x, w_h, w_c, b_c = weights
    h, c = states
    normalized_x = layer_norm(x @ kernel, w_x, epsilon)
    normalized_h = layer_norm(h @ recurrent, w_h, epsilon)
    i, f, g, o = np.split(normalized_x + normalized_h + bias, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(layer_norm(c, w_c, epsilon) + b_c)
    return h, [h, c]


def layer_norm_gru_step(weights, x, states, epsilon=1e-3):
    """The paper's four norms; its z is 1 - z here."""
    kernel, recurrent, bias, w_x, w_h, c_n = weights
    (h,) = states
    units = len(h)
    zr, n = slice(2 * units), slice(2 * units, None)
    gates = layer_norm(x @ kernel[:, zr], w_x[zr], epsilon) + bias[zr]
    gates = gates + layer_norm(h @ recurrent[:, zr], w_h[zr], epsilon)
    z, r = np.split(sigmoid(gates), 2)
    shown = layer_norm(h @ recurrent[:, n], w_h[n], epsilon) + c_n
    new = np.tanh(layer_norm(x @ kernel[:, n], w_x[n], epsilon) + bias[n] + r * shown)
    h = z * h + (1 - z) * new
    return h, [h]


def peephole_lstm_step(weights, x, states):
    kernel, recurrent, bias, p_i, p_f, p_o = weights
    h, c = states
    i, f, g, o = np.split(x @ kernel + h @ recurrent + bias, 4)
    i, f = sigmoid(i + p_i * c), sigmoid(f + p_f * c)
    c = f * c + i * np.tanh(g)
    h = sigmoid(o + p_o * c) * np.tanh(c)
    return h, [h, c]


def projected_lstm_step(weights, x, states):
    kernel, recurrent, bias, projection = weights
    h, c = states
    i, f, g, o = np.split(x @ kernel + h @ recurrent + bias, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = (sigmoid(o) * np.tanh(c)) @ projection
    return h, [h, c]


def zoneout(step, rates):
    """`step` with zoneout at inference: the mean of what training draws."""

    def zoned(weights, x, states):
        _, new = step(weights, x, states)
        new = [p * old + (1 - p) * s for p, old, s in zip(rates, states, new)]
        return new[0], new

    return zoned


def residual(step):
    """`step` with its inputs added to its output."""

    def added(weights, x, states):
        y, states = step(weights, x, states)
        return x + y, states

    return added
