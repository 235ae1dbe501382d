"""Transformer blocks in float64, from Vaswani et al. (2017) and papers named below."""

import math

import numpy as np

from reference.dot_product_attention import dot_product_attention

erf = np.vectorize(math.erf)
PLAIN = {
    "relu": lambda x: np.where(x > 0, x, 0),
    # Hendrycks & Gimpel (2016), section 2
    "gelu": lambda x: x * (1 + erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: (
        x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
    ),
    "silu": lambda x: x / (1 + np.exp(-x)),
}
# Shazeer (2020), eq. 5
GATED = {"reglu": "relu", "geglu": "gelu", "geglu_tanh": "gelu_tanh", "swiglu": "silu"}


def feed_forward(x, activation, kernel, bias, output_kernel, output_bias):
    """`(B, T, D)`; `kernel` is `(D, F)`, or `(D, 2 F)` with the gate before."""
    hidden = x @ kernel + bias
    if activation in GATED:
        width = hidden.shape[-1] // 2
        gate = PLAIN[GATED[activation]](hidden[..., :width])
        hidden = gate * hidden[..., width:]
    else:
        hidden = PLAIN[activation](hidden)
    return hidden @ output_kernel + output_bias


def layer_norm(x, scale, offset, epsilon=1e-5):
    """Ba et al. (2016), eq. 3, over the last axis."""
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * scale + offset


def rms_norm(x, scale, epsilon=1e-5):
    """Zhang & Sennrich (2019), eq. 4, over the last axis."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * scale


def norm(x, parameters):
    """The RMS norm has a scale only."""
    return (layer_norm if len(parameters) == 2 else rms_norm)(x, *parameters)


def connection(x, sublayer, placement, norms, residual_scale=1, gain=1):
    """`norms` are parameters, that of the input before that of the output."""
    if placement == "pre":
        return residual_scale * x + gain * sublayer(norm(x, norms[0]))
    if placement == "post":
        return norm(residual_scale * x + gain * sublayer(x), norms[0])
    if placement == "sandwich":
        return residual_scale * x + gain * norm(sublayer(norm(x, norms[0])), norms[1])
    return residual_scale * x + gain * sublayer(x)


def multi_head(query, value, weights, **masks):
    """`weights` are kernel and bias of query, key, value and output."""
    q, k, v = (
        np.einsum("btd,dhk->bthk", x, weights[i]) + weights[i + 1]
        for i, x in ((0, query), (2, value), (4, value))
    )
    contexts, _ = dot_product_attention(q, k, v, **masks)
    return np.einsum("bthv,hvd->btd", contexts, weights[6]) + weights[7]
