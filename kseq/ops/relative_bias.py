"""Where attention's biases by distance come from: ALiBi's slopes, T5's buckets."""

from typing import Any

import numpy as np
from keras import ops

from kseq._checks import check_size, message
from kseq._typing import Tensor
from kseq.ops.token_positions import check_integers


def alibi_slopes(num_heads: int) -> np.ndarray:
    """The slope of each head of ALiBi, in geometric progression.

        m_h = 2 ** (-8 (h + 1) / n),  h = 0 .. n - 1,  for n = `num_heads` heads

    if n is a power of two. Else those of the power p below come first, and then every
    other of 2p, from its first on, as in the authors' code.

    Args:
        num_heads: int. n.

    Returns:
        A float64 NumPy array `(num_heads,)`.

    Raises:
        ValueError: `` `num_heads` must be a positive integer. ``

    Example:

    >>> kseq.ops.alibi_slopes(2).tolist()
    [0.0625, 0.00390625]

    References:
        Press et al., 2022, "Train short, test long: attention with linear biases
        enables input length extrapolation", arXiv:2108.12409, section 3.
    """
    check_size("num_heads", num_heads)
    power = 2 ** (int(num_heads).bit_length() - 1)
    slopes = 2.0 ** (-8 * np.arange(1, power + 1) / power)
    between = 2.0 ** (-4 * np.arange(1, 2 * power, 2) / power)
    return np.concatenate([slopes, between])[:num_heads]


def relative_buckets(
    relative_positions: Any,
    num_buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
) -> Tensor:
    """T5's buckets of distances: one each for near ones, wider and wider ones beyond.

    With n buckets in a direction and e = n // 2, the distance d has bucket

        d                                                          if d < e
        min(n - 1, e + floor((n - e) ln(d / e) / ln(max_distance / e)))  else

    Bidirectional: n is half of `num_buckets`, and keys after the query take the other
    half, the first of which stays empty. Else n is `num_buckets`, and keys after the
    query have distance 0.

    Args:
        relative_positions: int, any shape. Key position - query position.
        num_buckets: int. Defaults to `32`.
        max_distance: int. Distances from here on share the last bucket. Defaults to
            `128`.
        bidirectional: bool. Whether both directions have buckets. Defaults to `True`.

    Returns:
        int32 of the shape of `relative_positions`, in [0, num_buckets).

    Numerics: the boundaries are exact: they come from a table made in float64.

    Raises:
        TypeError: `` `relative_positions` must be integers. ``
        ValueError: `` `num_buckets` must be... `` and
            `` `max_distance` must be greater than the distances with a bucket of
            their own... ``

    Example:

    >>> buckets = kseq.ops.relative_buckets([-20, -1, 0, 1, 20])
    >>> keras.ops.convert_to_numpy(buckets).tolist()
    [10, 1, 0, 17, 26]

    References:
        Raffel et al., 2020, "Exploring the limits of transfer learning with a unified
        text-to-text transformer", arXiv:1910.10683, section 2.1.
    """
    check_bucket_sizes(num_buckets, max_distance, bidirectional)
    n = num_buckets // 2 if bidirectional else num_buckets
    near = n // 2
    relative = check_integers("relative_positions", relative_positions)
    distance = np.arange(max_distance + 1)
    # 1e-9: a distance on a boundary, whose logarithm may be rounded down, is over it
    octaves = np.log(np.maximum(distance, near) / near) / np.log(max_distance / near)
    far = near + np.floor(octaves * (n - near) + 1e-9).astype("int32")
    table = np.where(distance < near, distance, np.minimum(far, n - 1)).astype("int32")
    behind = ops.abs(relative) if bidirectional else ops.maximum(-relative, 0)
    buckets = ops.take(table, ops.minimum(behind, max_distance))
    if bidirectional:
        buckets += n * ops.cast(relative > 0, "int32")
    return buckets


def check_bucket_sizes(
    num_buckets: int, max_distance: int, bidirectional: bool
) -> None:
    """Refuses sizes that leave a direction no bucket for far distances."""
    check_size("num_buckets", num_buckets)
    check_size("max_distance", max_distance)
    directions = 2 if bidirectional else 1
    if num_buckets % directions or num_buckets < 2 * directions:
        raise ValueError(
            message(
                f"`num_buckets` must be {'even and ' * bidirectional}at least "
                f"{2 * directions}.",
                num_buckets=num_buckets,
                bidirectional=bidirectional,
            )
        )
    near = num_buckets // directions // 2
    if max_distance <= near:
        raise ValueError(
            message(
                "`max_distance` must be greater than the distances with a bucket of "
                "their own.",
                max_distance=max_distance,
                own_buckets=near,
            )
        )
