"""The learning rate of the Transformer: a rise, then the inverse square root."""

from typing import Any

import keras
from keras import ops

from kseq._checks import check_at_least_zero, check_size
from kseq._typing import Tensor


@keras.saving.register_keras_serializable(package="kseq")
class InverseSqrt(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then a decay with the inverse square root of the step.

        lr(s) = scale * d^-0.5 * min(s^-0.5, s * w^-1.5)

    (Vaswani et al., 2017, eq. 3, also called Noam's schedule), d being `hidden_dim`
    and w `warmup_steps`, at which it peaks at `scale * (d w)^-0.5`.

    Args:
        hidden_dim: int. The width of the model.
        warmup_steps: int. Steps of the rise. Defaults to `4000`.
        scale: float, at least 0, a factor of all rates. Defaults to `1.0`.

    Call arguments:
        step: the number of the step. The paper counts from 1, Keras from 0: s is
            `max(step, 1)`, so that steps 0 and 1 have the same rate.

    Returns:
        A float32 scalar.

    Raises:
        ValueError: `` `hidden_dim` must be a positive integer... ``, the same for
            `warmup_steps`, and `` `scale` must be a number of at least 0... ``

    Example:

    >>> rate = kseq.training.InverseSqrt(512)
    >>> print(f"{float(rate(4000)):.6e}")
    6.987712e-04

    References:
        Vaswani et al., 2017, "Attention is all you need", arXiv:1706.03762, eq. 3.
    """

    def __init__(
        self, hidden_dim: int, warmup_steps: int = 4000, *, scale: float = 1.0
    ) -> None:
        self.hidden_dim = check_size("hidden_dim", hidden_dim)
        self.warmup_steps = check_size("warmup_steps", warmup_steps)
        self.scale = check_at_least_zero("scale", scale)

    def __call__(self, step: Tensor) -> Tensor:
        s = ops.maximum(ops.cast(step, "float32"), 1.0)
        rate = ops.minimum(s**-0.5, s * self.warmup_steps**-1.5)
        return self.scale * self.hidden_dim**-0.5 * rate

    def get_config(self) -> dict[str, Any]:
        return {
            "hidden_dim": self.hidden_dim,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
        }
