"""Keras callbacks that write what `kseq.diagnostics` measures for TensorBoard."""

from kseq.callbacks.attention_maps import AttentionMaps
from kseq.callbacks.attention_statistics import AttentionStatistics
from kseq.callbacks.gradient_flow import GradientFlow
from kseq.callbacks.gradient_norms import GradientNorms
from kseq.callbacks.samples import Samples

__all__ = [
    "AttentionMaps",
    "AttentionStatistics",
    "GradientFlow",
    "GradientNorms",
    "Samples",
]
