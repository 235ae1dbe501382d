"""Losses and metrics over real tokens; training in windows of long sequences."""

from kseq.training.masked_crossentropy import MaskedCrossentropy
from kseq.training.token_metrics import TokenAccuracy, TokenCrossentropy
from kseq.training.truncated_bptt import truncated_bptt

__all__ = [
    "MaskedCrossentropy",
    "TokenAccuracy",
    "TokenCrossentropy",
    "truncated_bptt",
]
