"""What `keras.ops` lacks or gets wrong, on TensorFlow and JAX.

The only folder that names a backend: one file per primitive, each with a
TensorFlow half and a JAX half behind one signature.
"""

from kseq.backend.compiled import compiled
from kseq.backend.concrete import is_concrete
from kseq.backend.dropout import dropout
from kseq.backend.replicas import sum_over_replicas
from kseq.backend.scan import scan

__all__ = ["compiled", "dropout", "is_concrete", "scan", "sum_over_replicas"]
