"""Attention that depends on earlier queries or on places, beside its references."""

import numpy as np
from helpers import set_weights_by_seed
from reference import alignment

import kseq

B, T, S, Q, D, U = 2, 3, 5, 4, 6, 7
MAKE = {
    "monotonic": lambda **kw: kseq.layers.MonotonicAttention(U, noise=0, **kw),
    "location": lambda **kw: kseq.layers.LocationSensitiveAttention(
        U, filters=2, kernel_size=3, **kw
    ),
    "cumulative location": lambda **kw: kseq.layers.LocationSensitiveAttention(
        U, filters=3, kernel_size=4, cumulative=True, **kw
    ),
    "coverage": lambda **kw: kseq.layers.CoverageAttention(U, **kw),
    "local": lambda **kw: kseq.layers.LocalAttention(2, **kw),
}
ALIGNED = [name for name in MAKE if name != "local"]  # those with an alignment
REFERENCE = {
    "monotonic": alignment.monotonic,
    "location": alignment.location,
    "cumulative location": alignment.cumulative_location,
    "coverage": alignment.coverage,
    "local": alignment.local,
}
# entry 0 is hidden from row 1, query 1 of row 0 sees nothing
MASK = np.array(
    [
        [[True] * 5, [False] * 5, [True, True, False, True, False]],
        [[False, True, True, True, True]] * 3,
    ]
)
QUERY_MASK = np.array([[True, True, True], [True, False, True]])


def make(name, seed=0, dtype=None, query_width=Q, memory_width=D):
    """The built layer, weights of `seed`."""
    layer = MAKE[name](dtype=dtype)
    layer.build((B, T, query_width), (B, S, memory_width))
    set_weights_by_seed(layer, seed)
    return layer


def parts(layer):
    """Variables in the order of the references."""
    if isinstance(layer, kseq.layers.LocalAttention):
        kernels = [layer.memory_dense.kernel, layer.position_dense.kernel]
        return [*kernels, layer.position_scale]
    found = [layer.query_dense.kernel, layer.memory_dense.kernel, layer.scale]
    if isinstance(layer, kseq.layers.MonotonicAttention):
        return [*found, layer.gain, layer.bias, layer.offset]
    if isinstance(layer, kseq.layers.CoverageAttention):
        return [*found, layer.coverage_scale, layer.bias]
    dense = layer.location_dense
    return [*found, layer.location_conv.kernel, dense.kernel, dense.bias]


def data(seed=1, dtype="float32"):
    rng = np.random.default_rng(seed)
    query, memory = rng.normal(size=(B, T, Q)), rng.normal(size=(B, S, D))
    return query.astype(dtype), memory.astype(dtype)
