"""Builders: whole models from a few sizes."""

from kseq.models.recurrent_lm import RecurrentLM
from kseq.models.recurrent_seq2seq import RecurrentSeq2Seq
from kseq.models.text_generator import TextGenerator
from kseq.models.transformer_encoder import TransformerEncoder
from kseq.models.transformer_lm import TransformerLM
from kseq.models.transformer_seq2seq import TransformerSeq2Seq

__all__ = [
    "RecurrentLM",
    "RecurrentSeq2Seq",
    "TextGenerator",
    "TransformerEncoder",
    "TransformerLM",
    "TransformerSeq2Seq",
]
