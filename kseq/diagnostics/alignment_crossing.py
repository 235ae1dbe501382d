"""How much an alignment crosses."""

import numpy as np

from kseq._checks import message


def alignment_crossing(weights: np.ndarray) -> float:
    """How much the alignment that attention weights show departs from one order.

    X = sum_{t<u} w_t w_u [a_t > a_u],  a_t = argmax_s weights[t, s],  w_t = its weight

    It counts the pairs of queries whose keys stand in the reverse order, each by how
    sure its alignment is: 0 for a monotonic alignment, at most T (T - 1) / 2.

    Args:
        weights: float `(T, S)`, attention of T queries over S keys, without padding.

    Returns:
        float, at least 0.

    Raises:
        ValueError: `weights` must have the shape (T, S), S at least 1.

    Example:

    >>> alignment_crossing(np.eye(3))
    0.0
    >>> alignment_crossing(np.eye(3)[[0, 2, 1]])  # have read it -> hat es gelesen
    1.0

    References:
        Kendall, 1938, "A new measure of rank correlation", Biometrika 30, which counts
        such pairs unweighted.
    """
    weights = np.asarray(weights)
    if weights.ndim != 2 or not weights.shape[1]:
        raise ValueError(
            message(
                "`weights` must have the shape (T, S), S at least 1.",
                shape=weights.shape,
            )
        )
    places, sure = weights.argmax(axis=1), weights.max(axis=1)
    crossed = places[:, None] > places  # (T, T)
    return float(np.triu(crossed * np.outer(sure, sure)).sum())
