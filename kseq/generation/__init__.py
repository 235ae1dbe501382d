"""Decoding, token by token, of any model that can start and step."""

from kseq.generation.beam_search import BeamSearch
from kseq.generation.decode_step import DecodeStep, read_by_steps, take_rows
from kseq.generation.filters import (
    MinP,
    RepetitionPenalty,
    Temperature,
    TopK,
    TopP,
)
from kseq.generation.generate import Generated, Strategy, generate, stream
from kseq.generation.prompt_lookup import PromptLookup
from kseq.generation.speculative import Speculative
from kseq.generation.token_choice import Greedy, Sampling

__all__ = [
    "BeamSearch",
    "DecodeStep",
    "Generated",
    "Greedy",
    "MinP",
    "PromptLookup",
    "RepetitionPenalty",
    "Sampling",
    "Speculative",
    "Strategy",
    "Temperature",
    "TopK",
    "TopP",
    "generate",
    "read_by_steps",
    "stream",
    "take_rows",
]
