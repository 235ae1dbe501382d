"""One vector for a row of tokens."""

from typing import Any

import keras
from keras import ops

from kseq._checks import check_choice, check_floating, check_mask, check_rank
from kseq._typing import Shape, Tensor
from kseq.ops import zero_padding

POOLINGS = ("mean", "max", "first", "last")


@keras.saving.register_keras_serializable(package="kseq")
class SequencePooling(keras.layers.Layer):
    """Mean, maximum, first or last of the real tokens of each row.

        "mean":  y = sum_t m_t x_t / sum_t m_t
        "max":   y = max of x_t over t with m_t True
        "first", "last":  y = x_t at the first or last t with m_t True

    A row without a real token gives zeros.

    Args:
        pooling: `"mean"`, `"max"`, `"first"` or `"last"`. Defaults to `"mean"`.

    Call arguments:
        sequences: float `(B, T, D)`.
        mask: bool `(B, T)`. True is a real token. Filled from the Keras mask; None
            counts all.

    Returns:
        `(B, D)`.

    Masking: padding may hold anything, on either side. No mask is passed on.

    Numerics: the mean is taken in at least float32.

    Raises:
        ValueError: `` `pooling` must be one of 'mean', 'max', 'first', 'last'. `` and
            `` `sequences` must have shape (B, T, D). ``
        TypeError: `` `mask` must be boolean... `` and
            `` `sequences` must be floating-point... ``

    Example:

    >>> layer = kseq.layers.SequencePooling("mean")
    >>> x = np.array([[[1.0], [3.0], [9.0]]])
    >>> float(layer(x, mask=np.array([[True, True, False]]))[0, 0])
    2.0
    """

    def __init__(self, pooling: str = "mean", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pooling = check_choice("pooling", pooling, POOLINGS)
        self.supports_masking = True

    def build(self, sequences_shape: Shape) -> None:
        check_rank("sequences", sequences_shape, (3,), "(B, T, D)")

    def call(self, sequences: Tensor, mask: Tensor | None = None) -> Tensor:
        mask = check_mask("mask", mask)
        if mask is None:
            mask = ops.ones_like(sequences[..., 0], dtype="bool")
        x = zero_padding(check_floating("sequences", sequences), mask)
        real = ops.any(mask, axis=1, keepdims=True)  # (B, 1)
        if self.pooling == "mean":
            compute = keras.backend.result_type(x.dtype, "float32")
            count = ops.sum(ops.cast(mask, compute), axis=1, keepdims=True)
            mean = ops.sum(ops.cast(x, compute), axis=1) / ops.maximum(count, 1)
            return ops.cast(mean, x.dtype)
        if self.pooling == "max":
            lowest = ops.cast(-float("inf"), x.dtype)
            y = ops.max(ops.where(mask[..., None], x, lowest), axis=1)
            return ops.where(real, y, ops.zeros_like(y))
        places = ops.arange(ops.shape(mask)[1])
        if self.pooling == "first":
            chosen = ops.argmax(mask, axis=1)
        else:
            chosen = ops.max(ops.where(mask, places, 0), axis=1)
        one = ops.equal(places[None], ops.cast(chosen, places.dtype)[:, None])  # (B, T)
        # x is zero in a row without a real token
        return ops.sum(ops.where(one[..., None], x, ops.zeros_like(x)), axis=1)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> None:
        """None: the time axis is gone."""
        del inputs, previous_mask

    def compute_output_shape(self, sequences_shape: Shape) -> Shape:
        return (sequences_shape[0], sequences_shape[-1])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "pooling": self.pooling}
