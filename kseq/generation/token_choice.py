"""How the next token is chosen of its logits: the most probable, or at random."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from keras import ops

from kseq._checks import message
from kseq._typing import Tensor
from kseq.ops.categorical import draw

Filter = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Greedy:
    """Takes the most probable token.

        y_t = argmax z_t

    Args:
        filters: what changes the logits first, one after the other, such as
            `[RepetitionPenalty(1.2)]`. Defaults to none.
    """

    filters: Sequence[Filter] = ()

    def __post_init__(self) -> None:
        _check_filters(self)

    def choose(self, logits: Tensor, seed: Tensor, rows: Tensor, t: Tensor) -> Tensor:
        """Ids `(B,)` of filtered logits `(B, N)`."""
        del seed, rows, t
        return ops.cast(ops.argmax(logits, axis=-1), "int32")

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """Of what `choose` chooses, `(B, N)`: 0, and -inf for all else."""
        best = ops.one_hot(ops.argmax(logits, axis=-1), logits.shape[-1])
        return ops.log(ops.cast(best, logits.dtype))


@dataclass(frozen=True)
class Sampling:
    """Draws a token from the model's distribution, or from what filters make of it.

        y_t ~ softmax(filters(z_t))

    as argmax(z + g) with Gumbel noise g, a hash of the seed, the number of the row, the
    position and the token: the same on every backend and for every `batch_size`.

    Args:
        filters: what changes the logits first, one after the other, such as
            `[Temperature(0.8), TopP(0.9)]`. Defaults to none.

    References:
        Gumbel, 1954, "Statistical theory of extreme values", for the draw.
    """

    filters: Sequence[Filter] = ()

    def __post_init__(self) -> None:
        _check_filters(self)

    def choose(self, logits: Tensor, seed: Tensor, rows: Tensor, t: Tensor) -> Tensor:
        """Ids `(B,)` of filtered logits `(B, N)`.

        Args:
            logits: float32 `(B, N)`.
            seed: int `(2,)`.
            rows: int `(B,)`, their numbers.
            t: int, the position.
        """
        return draw(logits, seed, rows, t)

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """Of what `choose` may choose, `(B, N)`."""
        return ops.log_softmax(logits)


def _check_filters(strategy: Greedy | Sampling) -> None:
    given = strategy.filters
    filters = tuple(given) if isinstance(given, Iterable) else (None,)
    for filter_ in filters:
        if not callable(filter_):
            raise TypeError(
                message(
                    "`filters` must be a list of functions of logits and history.",
                    fix="Such as [kseq.generation.TopK(50)].",
                    filters=given,
                )
            )
    object.__setattr__(strategy, "filters", filters)  # a tuple has a hash
