"""What attention weights look like, a number for each row."""

import keras
from keras import ops

from kseq._typing import Tensor


def weight_statistics(weights: Tensor) -> dict[str, Tensor]:
    """Four statistics of each row of attention weights.

        entropy: -sum_j w_j ln w_j, in nats
        max_weight: max_j w_j
        first_key: w_0, what an attention sink at the first key gets
        mean_distance: sum_j w_j |i - j|, in tokens

    `kseq.ops.attention_statistics` finds the same without the matrix; it knows the
    padding too, and takes the first real key.

    Args:
        weights: float `(..., T, S)`.

    Returns:
        dict of `(..., T)` by the names above, at least float32. A row of zeros has 0
        throughout.
    """
    compute = keras.backend.result_type(weights.dtype, "float32")
    w = ops.cast(weights, compute)
    length, source = ops.shape(w)[-2:]
    distance = ops.abs(ops.arange(length)[:, None] - ops.arange(source)[None])
    logarithm = ops.log(ops.where(w > 0, w, 1.0))
    return {
        "entropy": -ops.sum(w * logarithm, axis=-1),
        "max_weight": ops.max(w, axis=-1),
        "first_key": w[..., 0],
        "mean_distance": ops.sum(w * ops.cast(distance, compute), axis=-1),
    }
