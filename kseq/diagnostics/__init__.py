"""Measures a model: what it attends to, how large its gradients are."""

from kseq.diagnostics.alignment_crossing import alignment_crossing
from kseq.diagnostics.attention_maps import AttentionProbe, attention_maps
from kseq.diagnostics.attention_rollout import attention_rollout
from kseq.diagnostics.check_causality import check_causality
from kseq.diagnostics.check_padding import check_padding
from kseq.diagnostics.exposure_bias import ExposureBias, exposure_bias
from kseq.diagnostics.gradient_by_depth import (
    DepthGradientProbe,
    gradient_by_depth,
)
from kseq.diagnostics.gradient_norms import gradient_norms, layer_path
from kseq.diagnostics.gradient_through_time import (
    TimeGradient,
    TimeGradientProbe,
    gradient_through_time,
)
from kseq.diagnostics.head_statistics import HeadStatistics, head_statistics
from kseq.diagnostics.jacobian_norms import jacobian_norms
from kseq.diagnostics.leak_report import LeakReport
from kseq.layers.attention.capture import capture

__all__ = [
    "AttentionProbe",
    "DepthGradientProbe",
    "ExposureBias",
    "HeadStatistics",
    "LeakReport",
    "TimeGradient",
    "TimeGradientProbe",
    "alignment_crossing",
    "attention_maps",
    "attention_rollout",
    "capture",
    "check_causality",
    "check_padding",
    "exposure_bias",
    "gradient_by_depth",
    "gradient_norms",
    "gradient_through_time",
    "head_statistics",
    "jacobian_norms",
    "layer_path",
]
