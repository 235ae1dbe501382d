"""A learning rate that rises, stays, and falls at the end."""

from typing import Any

import keras
from keras import ops

from kseq._checks import check_at_least_zero, check_size, message
from kseq._typing import Tensor


@keras.saving.register_keras_serializable(package="kseq")
class WarmupStableDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A linear warm-up, a constant rate, and a linear decay to 0.

        lr(s) = lr * min(s / w, 1, (T - s) / d),  at least 0

    T is `total_steps`, w `warmup_steps` and d `decay_steps`. A run that is to go on
    starts again from a checkpoint before step T - d. Hu et al. decay exponentially;
    the straight line to 0 is the variant of Hägele et al.

    Args:
        learning_rate: float, lr, at least 0.
        total_steps: int. All steps; the rate is 0 after them.
        warmup_steps: int, at least 0: how many of them rise.
        decay_steps: int, at least 0: how many of them fall.

    Call arguments:
        step: s, the steps already taken, as Keras counts: the first one has 0.

    Returns:
        A float32 scalar.

    Raises:
        ValueError: `` `total_steps` must be a positive integer... ``, `` `warmup_steps`
            and `decay_steps` must fit... `` and, for each number, `` ... must be a
            number of at least 0... ``

    Example:

    >>> rate = kseq.training.WarmupStableDecay(
    ...     1.0, 1000, warmup_steps=100, decay_steps=200)
    >>> [float(rate(step)) for step in (50, 500, 900, 1000)]
    [0.5, 1.0, 0.5, 0.0]

    References:
        Hu et al., 2024, "MiniCPM", arXiv:2404.06395, section 4.
        Hägele et al., 2024, "Scaling laws and compute-optimal training beyond fixed
        training durations", arXiv:2405.18392, section 3.
    """

    def __init__(
        self,
        learning_rate: float,
        total_steps: int,
        *,
        warmup_steps: int,
        decay_steps: int,
    ) -> None:
        self.learning_rate = check_at_least_zero("learning_rate", learning_rate)
        self.total_steps = check_size("total_steps", total_steps)
        self.warmup_steps = int(check_at_least_zero("warmup_steps", warmup_steps))
        self.decay_steps = int(check_at_least_zero("decay_steps", decay_steps))
        if self.warmup_steps + self.decay_steps > self.total_steps:
            raise ValueError(
                message(
                    "`warmup_steps` and `decay_steps` must fit into `total_steps`.",
                    warmup_steps=warmup_steps,
                    decay_steps=decay_steps,
                    total_steps=total_steps,
                )
            )

    def __call__(self, step: Tensor) -> Tensor:
        s = ops.cast(step, "float32")
        left = ops.maximum(self.total_steps - s, 0.0)
        share = ops.where(left > 0, 1.0, 0.0)
        if self.warmup_steps:
            share = ops.minimum(share, s / self.warmup_steps)
        if self.decay_steps:
            share = ops.minimum(share, left / self.decay_steps)
        return self.learning_rate * share

    def get_config(self) -> dict[str, Any]:
        return {
            "learning_rate": self.learning_rate,
            "total_steps": self.total_steps,
            "warmup_steps": self.warmup_steps,
            "decay_steps": self.decay_steps,
        }
