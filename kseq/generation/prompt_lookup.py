"""A draft without weights: what followed the same tokens before."""

from dataclasses import dataclass
from typing import Any, ClassVar

import keras
from keras import ops

from kseq._checks import check_size
from kseq._typing import Tensor


@dataclass(frozen=True)
class PromptLookup:
    """Guesses that a row goes on as it did after the same tokens before.

    With x_1 .. x_t the row so far, prompt included, and m_j <= n the number of tokens
    up to j that are the same as those up to t, x_{j-i} = x_{t-i} for i < m_j:

        x_{t+1} = x_{j+1},  j the last one of the largest m_j, if that is not 0

    The draft of a `Speculative` for rows that repeat their prompt: summaries,
    corrections, answers about a text, code. Where nothing has been there before, its
    guess is any token. A row of an encoder-decoder begins with its source, which serves
    where source and target have one vocabulary.

    Args:
        vocabulary_size: int. N, of the model.
        longest_match: int. n. Defaults to `3`.

    Example:

    >>> model = kseq.models.TransformerLM(
    ...     vocabulary_size=30, num_layers=1, hidden_dim=8, num_heads=2)
    >>> draft = kseq.generation.PromptLookup(vocabulary_size=30)
    >>> generated = model.generate(
    ...     [[5, 6, 7, 5, 6]], 8, strategy=kseq.generation.Speculative(draft))
    >>> generated.token_ids.shape
    (1, 8)

    References:
        Saxena, 2023, "Prompt lookup decoding"; Yang et al., 2023, "Inference with
        reference: lossless acceleration of large language models", arXiv:2304.04487.
    """

    vocabulary_size: int
    longest_match: int = 3

    variables: ClassVar[list[keras.Variable]] = []

    def __post_init__(self) -> None:
        check_size("vocabulary_size", self.vocabulary_size)
        check_size("longest_match", self.longest_match)

    def start(self, prompt_ids: Tensor, max_new_tokens: int) -> tuple[Tensor, Any]:
        """The last id of each row, and the row before it with room for what follows."""
        prompt_ids = ops.cast(prompt_ids, "int32")
        length = prompt_ids.shape[1] - 1
        row = ops.pad(prompt_ids[:, :-1], ((0, 0), (0, max_new_tokens + 1)))
        count = ops.full_like(prompt_ids[:, 0], length)
        return prompt_ids[:, -1], {"row": row, "count": count}

    def step(self, token_ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Logits `(B, N)`: 0 of the guess and -inf of all else, or 0 of all."""
        row, count = state["row"], state["count"]
        places = ops.arange(row.shape[1], dtype="int32")  # (L,)
        row = ops.where(places == count[:, None], token_ids[:, None], row)
        # how many tokens up to each place are those up to the last one
        matched = ops.zeros_like(row)
        same = places < count[:, None]
        for i in range(self.longest_match):
            wanted = ops.take_along_axis(row, ops.maximum(count - i, 0)[:, None], 1)
            before = ops.pad(row[:, : row.shape[1] - i], ((0, 0), (i, 0)))
            same = ops.logical_and(same, ops.logical_and(before == wanted, wanted != 0))
            matched = matched + ops.cast(same, "int32")
        # the last of the longest
        best = ops.argmax(matched * row.shape[1] + places, axis=1)[:, None]
        found = ops.take_along_axis(matched, best, axis=1) > 0  # (B, 1)
        guess = ops.take_along_axis(row, ops.minimum(best + 1, row.shape[1] - 1), 1)
        ids = ops.arange(self.vocabulary_size, dtype="int32")
        # what followed may be padding, or an id of the source's vocabulary only
        guessed = ops.logical_and(found, ops.logical_and(ids == guess, ids != 0))
        logits = ops.where(guessed, 0.0, -float("inf"))
        logits = ops.where(ops.any(guessed, axis=1, keepdims=True), logits, 0.0)
        return logits, {"row": row, "count": count + 1}

    def rewind(self, state: Any, counts: Tensor) -> Any:
        """The state without the last `counts` `(B,)` tokens."""
        return {**state, "count": state["count"] - counts}
