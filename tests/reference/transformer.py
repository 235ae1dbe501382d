"""Whole Transformers in float64: Vaswani et al. (2017), section 3.

A block is a dictionary: `mixer` and, in a decoder with a memory, `cross` are kernel and
bias of query, key, value and output; `feed_forward` is kernel and bias of both layers;
`norms` are, for each connection, the parameters of its norms.
"""

import math

import numpy as np

from reference.blocks import connection, feed_forward, norm
from reference.dot_product_attention import dot_product_attention
from reference.positions import rotated, sinusoid


def multi_head(query, value, weights, theta=None, **options):
    """`theta` turns queries and keys by their places."""
    q, k, v = (
        np.einsum("btd,dhk->bthk", x, weights[i]) + weights[i + 1]
        for i, x in ((0, query), (2, value), (4, value))
    )
    if theta is not None:
        places = np.tile(np.arange(query.shape[1]), (len(query), 1))
        q, k = rotated(q, places, theta), rotated(k, places, theta)
    contexts, _ = dot_product_attention(q, k, v, **options)
    return np.einsum("bthv,hvd->btd", contexts, weights[6]) + weights[7]


def embedded(ids, table, scaled):
    """Section 3.4, and 3.5 with `scaled`: the sinusoids are added.

    Padding, id 0, has no position; it may have any.
    """
    x = table[ids]
    if not scaled:
        return x
    x = x * math.sqrt(table.shape[1])
    for row, y in zip(ids, x):
        y[row != 0] += sinusoid(range(np.count_nonzero(row)), table.shape[1])
    return x


def stack(
    x, mask, blocks, placement, activation, causal, memory=None, memory_mask=None,
    theta=None, alpha=1, bias=None, window=None,
):  # fmt: skip
    """The blocks one after the other. `alpha` is the scale of the residual stream."""
    x = np.where(mask[..., None], x, 0)
    masks = {
        "query_mask": mask,
        "use_causal_mask": causal,
        "window": window,
        "attention_bias": bias,
    }
    for block in blocks:

        def mix(x, block=block):
            return multi_head(x, x, block["mixer"], theta, value_mask=mask, **masks)

        def cross(x, block=block):
            options = {"query_mask": mask, "value_mask": memory_mask}
            return multi_head(x, memory, block["cross"], **options)

        def each(x, block=block):
            return feed_forward(x, activation, *block["feed_forward"])

        sublayers = [mix, each] if memory is None else [mix, cross, each]
        for sublayer, norms in zip(sublayers, block["norms"], strict=True):
            x = connection(x, sublayer, placement, norms, alpha)
            x = np.where(mask[..., None], x, 0)  # nothing depends on padding
    return x


def language_model(ids, parameters, **options):
    """Logits `(B, T, N)`."""
    scaled = options.pop("sinusoidal", False)
    x = embedded(ids, parameters["table"], scaled)
    x = stack(x, ids != 0, parameters["blocks"], causal=True, **options)
    return _final(x, parameters) @ parameters["output"]


def encoder_decoder(source, target, encoder, decoder, sinusoidal=False, **options):
    """Logits `(B, T, N)` of the tokens that follow those of `target`."""
    x = embedded(source, encoder["table"], sinusoidal)
    x = stack(x, source != 0, encoder["blocks"], causal=False, **options)
    memory = _final(x, encoder)
    memory = np.where((source != 0)[..., None], memory, 0)
    y = embedded(target, decoder["table"], sinusoidal)
    y = stack(
        y, target != 0, decoder["blocks"], causal=True, memory=memory,
        memory_mask=source != 0, **options,
    )  # fmt: skip
    return _final(y, decoder) @ decoder["output"]


def _final(x, parameters):
    last = parameters["norm"]
    return x if last is None else norm(x, last)
