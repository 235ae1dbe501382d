"""Builders: whole models from a few sizes."""

from kseq.models.recurrent_seq2seq import RecurrentSeq2Seq

__all__ = ["RecurrentSeq2Seq"]
