"""The probability of scheduled sampling that falls slowly, then fast, then slowly."""

from typing import Any

import keras
from keras import ops

from kseq._checks import message
from kseq._typing import Tensor


@keras.saving.register_keras_serializable(package="kseq")
class InverseSigmoid(keras.optimizers.schedules.LearningRateSchedule):
    """How probable the true token is after i updates of scheduled sampling.

        p(i) = k / (k + exp(i / k))

    The other schedules of Bengio et al. are Keras's: linear is
    `keras.optimizers.schedules.PolynomialDecay`, exponential `ExponentialDecay`.

    Args:
        k: float, at least 1. The larger, the later: p is 1/2 after k ln k updates.

    Call arguments:
        step: i, the number of updates before this one.

    Returns:
        A float32 scalar.

    Raises:
        ValueError: `` `k` must be at least 1. ``

    Example:

    >>> probability = kseq.training.InverseSigmoid(1000)
    >>> print(f"{float(probability(5000)):.6f}")
    0.870767

    References:
        Bengio et al., 2015, "Scheduled sampling for sequence prediction with
        recurrent neural networks", arXiv:1506.03099, section 2.4.
    """

    def __init__(self, k: float) -> None:
        if not k >= 1:
            raise ValueError(message("`k` must be at least 1.", k=k))
        self.k = k

    def __call__(self, step: Tensor) -> Tensor:
        # 1 / (1 + exp(i / k - ln k)), which does not overflow
        i = ops.cast(step, "float32")
        return ops.sigmoid(ops.log(float(self.k)) - i / self.k)

    def get_config(self) -> dict[str, Any]:
        return {"k": self.k}
