"""Scores of a query against each key, before the softmax."""

import keras
from keras import ops

from kseq._typing import Tensor


def additive_scores(query: Tensor, key: Tensor, scale: Tensor) -> Tensor:
    """`e_ts = v . tanh(q_t + k_s)`, the additive score of Bahdanau et al. (2015).

    Args:
        query: float `(B, T, U)`, already projected.
        key: float `(B, S, U)`, already projected.
        scale: float `(U,)`, the vector v.

    Returns:
        Scores `(B, T, S)`, at least float32.
    """
    compute = keras.backend.result_type(query.dtype, "float32")
    hidden = ops.tanh(ops.expand_dims(query, 2) + ops.expand_dims(key, 1))
    hidden = ops.cast(hidden, compute)  # (B, T, S, U)
    # a product with a column: XLA does not vectorize tanh inside a sum
    column = ops.expand_dims(ops.cast(scale, compute), -1)  # (U, 1)
    return ops.matmul(hidden, column)[..., 0]  # (B, T, S)


def dot_scores(query: Tensor, key: Tensor) -> Tensor:
    """`e_ts = q_t . k_s`, the dot score of Luong et al. (2015).

    Args:
        query: float `(B, T, K)`.
        key: float `(B, S, K)`.

    Returns:
        Scores `(B, T, S)`, at least float32.
    """
    compute = keras.backend.result_type(query.dtype, "float32")
    return ops.einsum("btk,bsk->bts", ops.cast(query, compute), ops.cast(key, compute))
