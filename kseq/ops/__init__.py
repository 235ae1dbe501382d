"""Pure functions on tensors: no layer, no variable.

Shapes, everywhere in kseq: `B` batch, `T` query or target length, `S` key or
source length, `D` model width, `H` heads, `K` key width per head, `V` value
width per head, `F` feed-forward width, `U` cell units, `N` vocabulary. The
layout is `(B, T, H, K)`; masks are boolean, True for what is real or allowed.
"""

from kseq.ops.attention import attention
from kseq.ops.attention_scores import additive_scores, dot_scores
from kseq.ops.attention_statistics import attention_statistics
from kseq.ops.blockwise_attention import blockwise_attention
from kseq.ops.coverage import coverage_loss
from kseq.ops.dot_product_attention import dot_product_attention
from kseq.ops.key_value_cache import KeyValueCache
from kseq.ops.linear_attention import linear_attention
from kseq.ops.linear_recurrence import linear_recurrence
from kseq.ops.masked_softmax import masked_softmax
from kseq.ops.masks import causal_mask, check_mask_shape, combine_masks, zero_padding
from kseq.ops.relative_bias import alibi_slopes, relative_buckets
from kseq.ops.rotary import apply_rotary, rotary_angles
from kseq.ops.rotary_frequencies import (
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    NTKScaling,
    RotaryScaling,
    YaRNScaling,
    rotary_frequencies,
)
from kseq.ops.segments import segment_mask, segment_starts, started
from kseq.ops.sinusoidal import sinusoidal_positions, sinusoidal_shift
from kseq.ops.summed_vocabulary_crossentropy import summed_vocabulary_crossentropy
from kseq.ops.vocabulary_crossentropy import vocabulary_crossentropy
from kseq.ops.weight_statistics import weight_statistics

__all__ = [
    "DynamicNTKScaling",
    "KeyValueCache",
    "LinearScaling",
    "Llama3Scaling",
    "NTKScaling",
    "RotaryScaling",
    "YaRNScaling",
    "additive_scores",
    "alibi_slopes",
    "apply_rotary",
    "attention",
    "attention_statistics",
    "blockwise_attention",
    "causal_mask",
    "check_mask_shape",
    "combine_masks",
    "coverage_loss",
    "dot_product_attention",
    "dot_scores",
    "linear_attention",
    "linear_recurrence",
    "masked_softmax",
    "relative_buckets",
    "rotary_angles",
    "rotary_frequencies",
    "segment_mask",
    "segment_starts",
    "sinusoidal_positions",
    "sinusoidal_shift",
    "started",
    "summed_vocabulary_crossentropy",
    "vocabulary_crossentropy",
    "weight_statistics",
    "zero_padding",
]
