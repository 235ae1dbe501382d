"""Multi-head attention of every kind, beside its reference in float64."""

import numpy as np
from helpers import set_weights_by_seed, to_numpy
from reference.dot_product_attention import dot_product_attention
from reference.positions import bucket, plain, rotated, slopes

from kseq.layers import AlibiBias, MultiHeadAttention, RotaryEmbedding, T5RelativeBias

B, T, S, D, E, H, G, K, V = 2, 5, 7, 6, 3, 4, 2, 4, 3


def draw(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype("float32")


def holes(*shape, seed=1):
    """A mask with Falses, and a True in each row."""
    mask = np.random.default_rng([seed, *shape]).random(shape) > 0.4
    mask[..., 0] = True
    return mask


def t5():
    return T5RelativeBias(H, num_buckets=8, max_distance=6, bidirectional=False)


KINDS = {
    "plain": {},
    "grouped": {"num_key_value_heads": G, "value_dim": V},
    "rotary": {"rotary": RotaryEmbedding},
    "alibi": {"bias": lambda: AlibiBias(H)},
    "t5": {"bias": t5, "num_key_value_heads": 1},
    "norm": {"query_key_norm": True, "soft_cap": 2.0, "sinks": True},
    "window": {"window": 3},
    "all": {
        "num_key_value_heads": G,
        "rotary": lambda: RotaryEmbedding(interleaved=True, rotary_dim=2),
        "bias": lambda: AlibiBias(H),
        "query_key_norm": True,
        "window": 2,
        "sinks": True,
    },
}


def make(kind="plain", **options):
    found = {**KINDS[kind], **options}
    made = {n: v() if callable(v) else v for n, v in found.items()}
    layer = MultiHeadAttention(H, K, **made)
    layer.build((B, T, D), (B, S, D))
    set_weights_by_seed(layer, 3)
    return layer


def normalized(x, scale):
    """RMS norm, with the epsilon inside the root."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale


def reference(layer, query, value, **masks):
    """In float64; the layer's parts are those of `KINDS`."""
    w = {w.path.split("/", 1)[1]: to_numpy(w).astype("float64") for w in layer.weights}

    def project(name, x):
        return np.einsum("btd,dhk->bthk", x, w[f"{name}/kernel"]) + w[f"{name}/bias"]

    q, k = project("query_dense", query), project("key_dense", value)
    v = project("value_dense", value)
    if layer.query_key_norm:
        q = normalized(q, w["query_norm/scale"])
        k = normalized(k, w["key_norm/scale"])
    if layer.rotary is not None:
        width = layer.rotary.rotary_dim or K
        q, k = (
            rotated(
                x,
                np.broadcast_to(np.arange(x.shape[1]), x.shape[:2]),
                plain(width, 1e4),
                layer.rotary.interleaved,
            )
            for x in (q, k)
        )
    bias = None
    if layer.bias is not None:
        distance = np.arange(k.shape[1])[None] - np.arange(q.shape[1])[:, None]
        if isinstance(layer.bias, AlibiBias):
            bias = -np.array(slopes(H))[:, None, None] * np.abs(distance)
        else:
            # 8 causal buckets up to a distance of 6: 0 1 2 3, then 4 of logarithms
            table = to_numpy(layer.bias.weights[0]).astype("float64")
            buckets = np.vectorize(lambda d: bucket(int(d), 8, 6, False))(distance)
            bias = np.moveaxis(table[buckets], -1, 0)
        bias = bias[None]
    y, weights = dot_product_attention(
        q,
        k,
        v,
        attention_bias=bias,
        soft_cap=layer.soft_cap,
        window=layer.window,
        sinks=w.get("sinks"),
        **masks,
    )
    kernel, offset = w["output_dense/kernel"], w["output_dense/bias"]
    return np.einsum("bthv,hvd->btd", y, kernel) + offset, weights
