"""Data sets of the examples, vocabularies, batches of few shapes, error rates."""

from kseq.data.bucket_by_length import bucket_by_length
from kseq.data.bucketed_pairs import BucketedPairs
from kseq.data.byte_pair_tokenizer import BytePairTokenizer
from kseq.data.cmudict import PronunciationData, load_cmudict, pronunciation_pairs
from kseq.data.pack import PackedRows, pack
from kseq.data.parallel_text import ParallelData, load_parallel
from kseq.data.pronunciation_error import (
    ErrorRates,
    pronunciation_error,
    pronunciation_error_by_length,
)
from kseq.data.text import TextData, load_text
from kseq.data.text_windows import TextWindows
from kseq.data.translation_score import (
    TranslationScore,
    translation_score,
    translation_score_by_length,
)
from kseq.data.vocabulary import Vocabulary

__all__ = [
    "BucketedPairs",
    "BytePairTokenizer",
    "ErrorRates",
    "PackedRows",
    "ParallelData",
    "PronunciationData",
    "TextData",
    "TextWindows",
    "TranslationScore",
    "Vocabulary",
    "bucket_by_length",
    "load_cmudict",
    "load_parallel",
    "load_text",
    "pack",
    "pronunciation_error",
    "pronunciation_error_by_length",
    "pronunciation_pairs",
    "translation_score",
    "translation_score_by_length",
]
