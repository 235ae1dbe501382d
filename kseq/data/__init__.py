"""Data sets of the examples, vocabularies, batches of few shapes, error rates."""

from kseq.data.bucketed_pairs import BucketedPairs
from kseq.data.cmudict import PronunciationData, load_cmudict, pronunciation_pairs
from kseq.data.pronunciation_error import (
    ErrorRates,
    pronunciation_error,
    pronunciation_error_by_length,
)
from kseq.data.vocabulary import Vocabulary

__all__ = [
    "BucketedPairs",
    "ErrorRates",
    "PronunciationData",
    "Vocabulary",
    "load_cmudict",
    "pronunciation_error",
    "pronunciation_error_by_length",
    "pronunciation_pairs",
]
