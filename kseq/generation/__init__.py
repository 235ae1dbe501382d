"""Autoregressive decoding over a step function; knows no model."""

from kseq.generation.greedy import greedy_decode

__all__ = ["greedy_decode"]
