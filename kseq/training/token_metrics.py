"""Metrics over real tokens, true over a whole epoch."""

from typing import Any

import keras
from keras import ops

from kseq._typing import Tensor
from kseq.training.masked_crossentropy import MaskedCrossentropy, token_crossentropy


class TokenMean(keras.metrics.Metric):
    """Base: sum of a value over tokens / number of tokens, since the last reset."""

    def __init__(
        self, pad_id: int | None = 0, *, name: str | None = None, dtype: Any = None
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.pad_id = pad_id
        self._tokens = MaskedCrossentropy(pad_id)
        self.total = self.add_weight(name="total", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros")

    def token_values(self, y_true: Tensor, y_pred: Tensor, weights: Tensor) -> Tensor:
        """The value of each token, `(B, T)`."""
        raise NotImplementedError(f"{type(self).__name__} must compute values.")

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        weights = self._tokens.token_weights(y_true, y_pred, sample_weight)
        self.add_values(self.token_values(y_true, y_pred, weights), weights)

    def add_values(self, values: Tensor, weights: Tensor) -> None:
        """Counts tokens whose values, `(B, T)`, are known."""
        weighted = ops.cast(values, self.dtype) * ops.cast(weights, self.dtype)
        self.total.assign_add(ops.sum(weighted))
        self.count.assign_add(ops.sum(ops.cast(weights, self.dtype)))

    def result(self) -> Tensor:
        return ops.divide_no_nan(self.total, self.count)

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name, "dtype": self.dtype, "pad_id": self.pad_id}


@keras.saving.register_keras_serializable(package="kseq")
class TokenAccuracy(TokenMean):
    """Share of real tokens whose most probable id is the target.

    Args:
        pad_id: int, the target id that stands for padding. None counts every
            target. Defaults to `0`.
        name: Defaults to `"token_accuracy"`.
        dtype: of the sums. Defaults to `None`, float32.

    Call arguments:
        y_true: integer `(B, T)`.
        y_pred: float `(B, T, N)`, logits or probabilities.
        sample_weight: float `(B, T)` or `(B,)`.

    Returns:
        A scalar in [0, 1]; 0 before the first token.

    Example:

    >>> metric = kseq.training.TokenAccuracy()
    >>> logits = keras.ops.one_hot(keras.ops.array([[1, 2, 1]]), 3)
    >>> float(metric(keras.ops.array([[1, 1, 0]]), logits))
    0.5
    """

    def __init__(
        self,
        pad_id: int | None = 0,
        *,
        name: str = "token_accuracy",
        dtype: Any = None,
    ) -> None:
        super().__init__(pad_id, name=name, dtype=dtype)

    def token_values(self, y_true: Tensor, y_pred: Tensor, weights: Tensor) -> Tensor:
        """1 where the most probable id is the target."""
        del weights
        predicted = ops.argmax(y_pred, axis=-1)
        return ops.equal(predicted, ops.cast(y_true, predicted.dtype))


@keras.saving.register_keras_serializable(package="kseq")
class TokenCrossentropy(TokenMean):
    """Mean crossentropy of the real tokens of a whole epoch, in nats.

    Keras's own `loss` line is a mean of batch means; this is the true one.

    Args:
        pad_id: int, the target id that stands for padding. None counts every
            target. Defaults to `0`.
        name: Defaults to `"token_crossentropy"`.
        dtype: of the sums. Defaults to `None`, float32.

    Call arguments:
        y_true: integer `(B, T)`.
        y_pred: float `(B, T, N)`, logits.
        sample_weight: float `(B, T)` or `(B,)`.

    Returns:
        A scalar; 0 before the first token.

    Example:

    >>> metric = kseq.training.TokenCrossentropy()
    >>> value = metric(keras.ops.array([[1, 0]]), keras.ops.zeros((1, 2, 4)))
    >>> print(f"{float(value):.4f}")  # ln 4
    1.3863
    """

    def __init__(
        self,
        pad_id: int | None = 0,
        *,
        name: str = "token_crossentropy",
        dtype: Any = None,
    ) -> None:
        super().__init__(pad_id, name=name, dtype=dtype)

    def token_values(self, y_true: Tensor, y_pred: Tensor, weights: Tensor) -> Tensor:
        """Crossentropy of each token, without smoothing."""
        return token_crossentropy(y_true, y_pred, weights)


@keras.saving.register_keras_serializable(package="kseq")
class Perplexity(TokenCrossentropy):
    """`exp` of the mean crossentropy of the real tokens of a whole epoch.

    Not a mean over batches of their perplexities, which is larger.

    Args:
        pad_id: int, the target id that stands for padding. None counts every
            target. Defaults to `0`.
        name: Defaults to `"perplexity"`.
        dtype: of the sums. Defaults to `None`, float32.

    Call arguments:
        y_true: integer `(B, T)`.
        y_pred: float `(B, T, N)`, logits.
        sample_weight: float `(B, T)` or `(B,)`.

    Returns:
        A scalar of at least 1; 1 before the first token.

    Example:

    >>> metric = kseq.training.Perplexity()
    >>> value = metric(keras.ops.array([[1, 0]]), keras.ops.zeros((1, 2, 4)))
    >>> print(f"{float(value):.3f}")
    4.000
    """

    def __init__(
        self, pad_id: int | None = 0, *, name: str = "perplexity", dtype: Any = None
    ) -> None:
        super().__init__(pad_id, name=name, dtype=dtype)

    def result(self) -> Tensor:
        return ops.exp(super().result())
