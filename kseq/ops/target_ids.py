"""Which targets are ids of the vocabulary."""

from keras import ops

from kseq._checks import message
from kseq._typing import Tensor
from kseq.backend import is_concrete


def check_target_shape(targets: Tensor, x: Tensor, name: str) -> None:
    """Refuses targets that are not one id for each vector of `x`, called `name`.

    Raises:
        ValueError: `` The targets must be ids, of the shape of... ``
    """
    pairs = zip(targets.shape, x.shape[:-1], strict=False)
    if len(targets.shape) != len(x.shape) - 1 or any(
        None not in pair and pair[0] != pair[1] for pair in pairs
    ):
        raise ValueError(
            message(
                f"The targets must be ids, of the shape of {name} without the last "
                "axis.",
                targets_shape=tuple(targets.shape),
                shape=tuple(x.shape),
            )
        )


def known_targets(
    targets: Tensor, counts: Tensor, vocabulary_size: int
) -> tuple[Tensor, Tensor]:
    """The ids to look up, int32 in [0, N), and where they are the targets.

    An id may be anything where `counts` is False. Elsewhere one out of range is an
    error when eager; a compiled program, which can't raise, looks up 0 for it.
    """
    targets = ops.where(counts, ops.cast(targets, "int32"), 0)
    known = ops.logical_and(targets >= 0, targets < vocabulary_size)
    if is_concrete(known) and not ops.all(known):
        raise ValueError(
            message(
                "Target ids must lie in [0, N), N the width of the logits.",
                smallest=int(ops.min(targets)),
                largest=int(ops.max(targets)),
                N=vocabulary_size,
            )
        )
    return ops.where(known, targets, 0), known
