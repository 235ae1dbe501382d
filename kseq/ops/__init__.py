"""Pure functions on tensors: no layer, no variable.

Shapes, everywhere in kseq: `B` batch, `T` query or target length, `S` key or
source length, `D` model width, `H` heads, `K` key width per head, `V` value
width per head, `F` feed-forward width, `U` cell units, `N` vocabulary. The
layout is `(B, T, H, K)`; masks are boolean, True for what is real or allowed.
"""

from kseq.ops.attention_scores import additive_scores, dot_scores
from kseq.ops.linear_recurrence import linear_recurrence
from kseq.ops.masked_softmax import masked_softmax
from kseq.ops.masks import check_mask_shape, combine_masks, zero_padding
from kseq.ops.segments import segment_starts, started

__all__ = [
    "additive_scores",
    "check_mask_shape",
    "combine_masks",
    "dot_scores",
    "linear_recurrence",
    "masked_softmax",
    "segment_starts",
    "started",
    "zero_padding",
]
