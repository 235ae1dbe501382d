"""Crossentropy of integer targets, averaged over real tokens."""

from typing import Any

import keras
from keras import ops

from kseq._checks import check_at_least_zero, check_rate, message
from kseq._typing import Tensor
from kseq.backend import sum_over_replicas
from kseq.ops.target_ids import check_target_shape, known_targets


def token_crossentropy(
    targets: Tensor,
    logits: Tensor,
    weights: Tensor,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> Tensor:
    """Crossentropy of each token that counts, in nats; 0 for the others.

        l = -(1 - e) log p[y] - e/N sum_k log p[k] + zeta (log sum_k exp z_k)^2

    p is the softmax of the logits z. e is `label_smoothing`: the target distribution
    is mixed with the uniform one over all N tokens (Szegedy et al., 2016), not over
    the N - 1 others. zeta is `z_loss`.

    Args:
        targets: integer `(B, T)`, ids below N.
        logits: float `(B, T, N)`.
        weights: float `(B, T)`. What stands where it is 0 may be anything.
        label_smoothing: e, in [0, 1).
        z_loss: zeta, at least 0.

    Returns:
        `(B, T)`, at least float32. A target out of range is an error when eager, and
        NaN in a compiled program, which can't raise.

    Raises:
        ValueError: `` Target ids must lie in [0, N)... `` and
            `` The targets must be ids, of the shape of the logits... ``
    """
    logits, targets = ops.convert_to_tensor(logits), ops.convert_to_tensor(targets)
    compute = keras.backend.result_type(logits.dtype, "float32")
    counts = weights > 0
    logits = ops.where(ops.expand_dims(counts, -1), ops.cast(logits, compute), 0.0)
    targets, known = known_targets(targets, counts, logits.shape[-1])
    log_probs = ops.log_softmax(logits, axis=-1)
    losses = -ops.take_along_axis(log_probs, targets[..., None], axis=-1)[..., 0]
    if label_smoothing:
        uniform = -ops.mean(log_probs, axis=-1)
        losses = (1 - label_smoothing) * losses + label_smoothing * uniform
    if z_loss:
        losses = losses + z_loss * ops.logsumexp(logits, axis=-1) ** 2
    losses = ops.where(known, losses, float("nan"))
    return ops.where(counts, losses, 0.0)


def token_mean(losses: Tensor, weights: Tensor) -> Tensor:
    """`sum(weights * losses) / sum(weights)` over all replicas; 0 without a weight.

    Each replica has its own part of it: the sum of the parts is the mean.
    """
    return mean_of_sum(ops.sum(losses * ops.cast(weights, losses.dtype)), weights)


def mean_of_sum(share: Tensor, weights: Tensor) -> Tensor:
    """`token_mean` of losses whose weighted sum, in this replica, is `share`."""
    total = sum_over_replicas(ops.sum(weights))
    return share / ops.cast(ops.where(total > 0, total, 1.0), share.dtype)


def _check_weights(weights: Tensor, targets: Tensor) -> None:
    pairs = zip(weights.shape, targets.shape, strict=False)
    if len(weights.shape) != len(targets.shape) or any(
        None not in pair and pair[0] not in (1, pair[1]) for pair in pairs
    ):
        raise ValueError(
            message(
                "`sample_weight` must have shape (B,) or (B, T), that of the targets.",
                sample_weight_shape=tuple(weights.shape),
                y_true_shape=tuple(targets.shape),
            )
        )


@keras.saving.register_keras_serializable(package="kseq")
class MaskedCrossentropy(keras.losses.Loss):
    """Mean crossentropy over the real tokens of a batch, from logits.

        L = sum_bt w_bt l_bt / sum_bt w_bt

    l is the crossentropy of a token in nats (`label_smoothing` mixes the target
    with the uniform distribution over all tokens, `z_loss` adds that multiple of the
    square of their log-sum-exp, which keeps it near 0). w is 0 where the target is
    `pad_id`, where the Keras mask of the predictions is False, and where
    `sample_weight` is 0; else the sample weight, or 1. Keras's own losses average
    over the batch first, so that a token of a short row counts more. Over several
    replicas both sums run over all of them.

    Args:
        pad_id: int, the target id that stands for padding. None counts every
            target. Defaults to `0`.
        label_smoothing: probability in [0, 1) spread over all tokens. Defaults to
            `0.0`.
        z_loss: float, at least 0. PaLM takes 1e-4. Defaults to `0.0`.

    Call arguments:
        y_true: integer `(B, T)`, target ids.
        y_pred: float `(B, T, N)`, logits.
        sample_weight: float `(B, T)` or `(B,)`, at least 0. The `class_weight` of `fit`
            is not for tokens: Keras takes targets `(B, T)` for one-hot rows.

    Returns:
        A scalar, at least float32; 0 when no token is real.

    Masking: the logits of a token that does not count may hold anything, NaN
        included; their gradient is 0.

    Raises:
        ValueError: `` `label_smoothing` must be a probability in [0, 1)... ``,
            `` `z_loss` must be a number of at least 0... ``, `` The targets must be
            ids, of the shape of the logits... ``, `` `sample_weight` must have shape
            (B,) or (B, T)... `` and, when eager, `` Target ids must
            lie in [0, N)... ``: in a compiled program such a target makes the loss
            NaN.

    Example:

    >>> loss = kseq.training.MaskedCrossentropy()
    >>> logits = keras.ops.zeros((1, 3, 4))
    >>> print(f"{float(loss(keras.ops.array([[2, 3, 0]]), logits)):.4f}")  # ln 4
    1.3863

    References:
        Szegedy et al., 2016, arXiv:1512.00567, section 7, for the smoothing.
        Chowdhery et al., 2022, "PaLM", arXiv:2204.02311, section 5, for the z-loss.
    """

    def __init__(
        self,
        pad_id: int | None = 0,
        *,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        name: str = "masked_crossentropy",
    ) -> None:
        super().__init__(name=name, reduction="none")
        self.pad_id = pad_id
        self.label_smoothing = check_rate("label_smoothing", label_smoothing)
        self.z_loss = check_at_least_zero("z_loss", z_loss)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """1 for a real token, 0 for padding, `(B, T)`."""
        ones = ops.ones_like(y_pred[..., 0])
        if self.pad_id is None:
            return ones
        return ops.where(ops.not_equal(y_true, self.pad_id), ones, 0.0)

    def token_weights(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        """w, `(B, T)`: how much each token counts."""
        y_true, y_pred = map(ops.convert_to_tensor, (y_true, y_pred))
        check_target_shape(y_true, y_pred, "the logits")
        if sample_weight is not None:
            sample_weight = ops.convert_to_tensor(sample_weight)
            if len(sample_weight.shape) == 1:
                sample_weight = ops.expand_dims(sample_weight, 1)  # (B, 1)
            _check_weights(sample_weight, y_true)
        # the mask of y_pred has no public getter, but Keras multiplies by it and by
        # the sample weight: what it makes of a one is the weight of a token
        return super().__call__(y_true, y_pred, sample_weight)

    def __call__(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        weights = self.token_weights(y_true, y_pred, sample_weight)
        losses = token_crossentropy(
            y_true, y_pred, weights, self.label_smoothing, self.z_loss
        )
        return token_mean(losses, weights)

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "pad_id": self.pad_id,
            "label_smoothing": self.label_smoothing,
            "z_loss": self.z_loss,
        }
