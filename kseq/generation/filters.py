"""What changes the logits before a token is chosen.

A filter is a hashable function of `(logits (B, N), history (B, H))` that returns
logits. `history` are the ids so far, prompt included, 0 for none. These are values:
two that are equal share one compiled program.
"""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

from keras import ops

from kseq._checks import check_size, message
from kseq._typing import Tensor


@dataclass(frozen=True)
class Temperature:
    """`z / temperature`: below 1 the probable becomes more probable.

    Args:
        temperature: float above 0.
    """

    temperature: float

    def __post_init__(self) -> None:
        _check_above_zero("temperature", self.temperature)

    def __call__(self, logits: Tensor, history: Tensor) -> Tensor:
        del history
        return logits / self.temperature


@dataclass(frozen=True)
class TopK:
    """Keeps the `k` most probable tokens, and any as probable as the last of them.

    Args:
        k: int. All are kept where there are fewer.

    References:
        Fan et al., 2018, "Hierarchical neural story generation", arXiv:1805.04833.
    """

    k: int

    def __post_init__(self) -> None:
        check_size("k", self.k)

    def __call__(self, logits: Tensor, history: Tensor) -> Tensor:
        del history
        k = min(self.k, logits.shape[-1])
        smallest = ops.top_k(logits, k)[0][:, -1:]
        return _keep(logits >= smallest, logits)


@dataclass(frozen=True)
class TopP:
    """Keeps the most probable tokens that together have probability `p` (nucleus).

    A token stays if those more probable have less than p together, so that one always
    stays. Of [.5, .3, .12, .05, .03] p = .8 keeps two.

    Args:
        p: float in (0, 1].

    References:
        Holtzman et al., 2019, "The curious case of neural text degeneration",
        arXiv:1904.09751.
    """

    p: float

    def __post_init__(self) -> None:
        _check_share("p", self.p)

    def __call__(self, logits: Tensor, history: Tensor) -> Tensor:
        del history
        probabilities = ops.softmax(logits)
        order = ops.argsort(-probabilities)
        falling = ops.take_along_axis(probabilities, order, axis=-1)
        # not cumsum - p, which is rounded: a head of exactly p would let one more in
        before = ops.pad(ops.cumsum(falling, axis=-1)[:, :-1], ((0, 0), (1, 0)))
        rank = ops.argsort(order)
        return _keep(ops.take_along_axis(before < self.p, rank, axis=-1), logits)


@dataclass(frozen=True)
class MinP:
    """Keeps the tokens that are at least `p` times as probable as the most probable.

    Args:
        p: float in (0, 1].

    References:
        Nguyen et al., 2024, "Turning up the heat: min-p sampling", arXiv:2407.01082.
    """

    p: float

    def __post_init__(self) -> None:
        _check_share("p", self.p)

    def __call__(self, logits: Tensor, history: Tensor) -> Tensor:
        del history
        largest = ops.max(logits, axis=-1, keepdims=True)
        least = ops.log(ops.cast(self.p, logits.dtype))
        return _keep(logits - largest >= least, logits)


@dataclass(frozen=True)
class RepetitionPenalty:
    """Makes the tokens of the history less probable: `z / penalty`, or `z penalty`.

    The first for positive logits, the second for negative ones.

    Args:
        penalty: float above 0; more than 1 discourages repetition.

    References:
        Keskar et al., 2019, "CTRL", arXiv:1909.05858, section 4.1.
    """

    penalty: float

    def __post_init__(self) -> None:
        _check_above_zero("penalty", self.penalty)

    def __call__(self, logits: Tensor, history: Tensor) -> Tensor:
        rows = ops.broadcast_to(
            ops.arange(ops.shape(logits)[0], dtype="int32")[:, None], history.shape
        )
        places = ops.reshape(ops.stack([rows, history], axis=-1), (-1, 2))
        ones = ops.ones(ops.shape(places)[:1], "float32")
        seen = ops.scatter_update(ops.zeros_like(logits), places, ones)
        less = ops.where(logits > 0, logits / self.penalty, logits * self.penalty)
        return ops.where(seen > 0, less, logits)


def _keep(kept: Tensor, logits: Tensor) -> Tensor:
    return ops.where(kept, logits, ops.cast(float("-inf"), logits.dtype))


def _check_above_zero(name: str, value: Any) -> None:
    if not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise ValueError(
            message(f"`{name}` must be a finite number above 0.", **{name: value})
        )


def _check_share(name: str, value: Any) -> None:
    if not isinstance(value, Real) or not 0 < float(value) <= 1:
        raise ValueError(message(f"`{name}` must be in (0, 1].", **{name: value}))
