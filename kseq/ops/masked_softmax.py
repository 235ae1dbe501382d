"""Softmax over the entries that a mask lets through."""

import keras
import numpy as np
from keras import ops

from kseq._typing import Tensor


def masked_softmax(
    scores: Tensor, mask: Tensor | None = None, sinks: Tensor | None = None
) -> Tensor:
    """Softmax over the last axis; a row that may see nothing gets weights 0.

        w_j = m_j exp(e_j - max e) / (exp(s - max e) + sum_k m_k exp(e_k - max e))

    The term exp(s - max e) is there with `sinks` only.

    Args:
        scores: float `(..., S)`. Entries under a False mask may hold anything.
        mask: bool, broadcastable to `scores`. True lets an entry through; None
            lets all through.
        sinks: float, broadcastable to `(..., 1)`, s: one more score, whose weight
            is not returned. None is none.

    Returns:
        Weights of the shape and dtype of `scores`; each row sums to 1 (to less with
        `sinks`), or to 0 where the mask is False throughout. Gradients are finite.

    Numerics: at least float32 inside, whatever the dtype of `scores`.
    """
    compute = keras.backend.result_type(scores.dtype, "float32")
    logits = ops.cast(scores, compute)
    mask = True if mask is None else mask
    least = float(np.finfo(compute).min)
    logits = ops.where(mask, logits, least)
    # with a first value, for there may be no entry at all
    largest = ops.max(logits, axis=-1, keepdims=True, initial=least)
    largest = ops.stop_gradient(largest)
    if sinks is not None:
        largest = ops.maximum(largest, ops.stop_gradient(sinks))
    exponentials = ops.where(mask, ops.exp(logits - largest), 0.0)
    total = ops.sum(exponentials, axis=-1, keepdims=True)
    if sinks is not None:
        total += ops.exp(sinks - largest)
    weights = exponentials / ops.where(total > 0, total, 1.0)
    return ops.cast(weights, scores.dtype)
