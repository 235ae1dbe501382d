"""What each head of an attention layer does, in five numbers."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from kseq._checks import check_mask, message
from kseq.ops import weight_statistics


class HeadStatistics(NamedTuple):
    """Means over the real queries of a batch, a number for each of H heads.

    Attributes:
        entropy: float `(H,)`, in nats. Near 0, a head looks at one key.
        normalized_entropy: float `(H,)`, each query's entropy divided by that of equal
            weights over the keys that it sees: 1 for a head that looks at all alike.
            NaN if no query sees two.
        distance: float `(H,)`, from a query to the keys it looks at, in tokens.
        first_key: float `(H,)`, the weight of the first real key: an attention sink.
        padding: float `(H,)`, the weight of padded keys. It must be 0.
    """

    entropy: np.ndarray
    normalized_entropy: np.ndarray
    distance: np.ndarray
    first_key: np.ndarray
    padding: np.ndarray


def head_statistics(
    weights: np.ndarray,
    *,
    query_mask: Any = None,
    key_mask: Any = None,
) -> HeadStatistics:
    """Says of each head where it looks: at few keys or many, near or far.

        entropy = -sum_j w_j ln w_j,  distance = sum_j w_j |i - j|

    Keys of weight 0 count as unseen. (`kseq.ops.attention_statistics` finds the first
    three for each query without a matrix of weights, for long sequences.)

    Args:
        weights: float `(B, T, S)` or `(B, H, T, S)`, one layer's of
            `kseq.diagnostics.attention_maps`.
        query_mask: bool `(B, T)`. True is a real query. None takes all. Defaults to
            `None`.
        key_mask: bool `(B, S)`. True is a real key. None takes all. Defaults to `None`.

    Returns:
        `HeadStatistics`, H = 1 for weights without heads.

    Raises:
        TypeError: `` `query_mask` must be boolean. `` (`key_mask` alike)
        ValueError: `` `weights` must have the shape (B, T, S) or (B, H, T, S). `` and
            `` `query_mask` must have the shape ... `` (`key_mask` alike)

    Example:

    >>> weights = np.array([[[1, 0, 0], [0.5, 0.5, 0], [0, 0, 1]]])
    >>> found = kseq.diagnostics.head_statistics(weights)
    >>> found.distance.round(3), found.normalized_entropy
    (array([0.167]), array([1.]))

    References:
        Clark et al., 2019, "What does BERT look at?", arXiv:1906.04341, sections 3.1
        and 3.3 (distance and entropy); Xiao et al., 2023, arXiv:2309.17453 (sinks).
    """
    weights = np.asarray(weights)
    if weights.ndim not in (3, 4):
        raise ValueError(
            message(
                "`weights` must have the shape (B, T, S) or (B, H, T, S).",
                shape=weights.shape,
            )
        )
    if weights.ndim == 3:
        weights = weights[:, None]
    rows, _, length, source = weights.shape
    queries = _mask("query_mask", query_mask, (rows, length))
    keys = _mask("key_mask", key_mask, (rows, source))
    found = {
        name: ops.convert_to_numpy(values)
        for name, values in weight_statistics(ops.convert_to_tensor(weights)).items()
    }
    seen = np.count_nonzero(weights, axis=-1)
    largest = np.log(np.maximum(seen, 2))
    first = np.take_along_axis(weights, keys.argmax(1)[:, None, None, None], axis=-1)
    padding = np.sum(weights, axis=-1, where=~keys[:, None, None])

    def mean(values: np.ndarray, counted: np.ndarray) -> np.ndarray:
        counted = np.broadcast_to(counted, values.shape)
        count = counted.sum(axis=(0, 2))
        total = np.sum(values, axis=(0, 2), dtype="float64", where=counted)
        return np.where(count, total / np.maximum(count, 1), np.nan)

    real = queries[:, None]  # (B, 1, T)
    return HeadStatistics(
        mean(found["entropy"], real),
        mean(found["entropy"] / largest, real & (seen > 1)),
        mean(found["mean_distance"], real),
        mean(first[..., 0], real),
        mean(padding, real),
    )


def _mask(name: str, mask: Any, shape: tuple[int, int]) -> np.ndarray:
    if mask is None:
        return np.ones(shape, bool)
    mask = np.asarray(check_mask(name, mask))
    if mask.shape != shape:
        raise ValueError(
            message(f"`{name}` must have the shape {shape}.", shape=mask.shape)
        )
    return mask
