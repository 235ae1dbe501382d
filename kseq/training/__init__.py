"""Losses and metrics over real tokens; schedules; training that Keras lacks."""

from kseq.training.inverse_sigmoid import InverseSigmoid
from kseq.training.inverse_sqrt import InverseSqrt
from kseq.training.masked_crossentropy import MaskedCrossentropy
from kseq.training.scheduled_sampling import ScheduledSampling
from kseq.training.token_metrics import Perplexity, TokenAccuracy, TokenCrossentropy
from kseq.training.truncated_bptt import truncated_bptt
from kseq.training.two_pass_sampling import TwoPassSampling
from kseq.training.vocabulary_trainer import VocabularyTrainer
from kseq.training.warmup_stable_decay import WarmupStableDecay

__all__ = [
    "InverseSigmoid",
    "InverseSqrt",
    "MaskedCrossentropy",
    "Perplexity",
    "ScheduledSampling",
    "TokenAccuracy",
    "TokenCrossentropy",
    "TwoPassSampling",
    "VocabularyTrainer",
    "WarmupStableDecay",
    "truncated_bptt",
]
