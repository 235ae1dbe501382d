"""What `keras.ops` lacks or gets wrong, on TensorFlow and JAX.

The only folder that names a backend: one file per primitive, each with a
TensorFlow half and a JAX half behind one signature.
"""

from kseq.backend.chains import parallel_chains
from kseq.backend.compiled import compiled
from kseq.backend.concrete import is_concrete
from kseq.backend.custom_gradient import custom_gradient
from kseq.backend.dense_gradient import dense_gradient
from kseq.backend.fused import has_fused_attention
from kseq.backend.gradient import gradient
from kseq.backend.loop import Buffer, empty, filled, loop, stacked
from kseq.backend.normal import normal
from kseq.backend.remat import remat
from kseq.backend.replicas import sum_over_replicas
from kseq.backend.scan import scan

__all__ = [
    "Buffer",
    "compiled",
    "custom_gradient",
    "dense_gradient",
    "empty",
    "filled",
    "gradient",
    "has_fused_attention",
    "is_concrete",
    "loop",
    "normal",
    "parallel_chains",
    "remat",
    "scan",
    "stacked",
    "sum_over_replicas",
]
