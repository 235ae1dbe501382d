"""Losses and metrics over real tokens."""

from kseq.training.masked_crossentropy import MaskedCrossentropy
from kseq.training.token_metrics import TokenAccuracy, TokenCrossentropy

__all__ = ["MaskedCrossentropy", "TokenAccuracy", "TokenCrossentropy"]
