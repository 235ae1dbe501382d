"""Rotary position embeddings (Su et al. 2021)."""

from typing import Any

import keras
import numpy as np
from keras import ops

from kseq._checks import check_rank, message
from kseq._typing import Tensor
from kseq.ops.position_angles import position_angles


def rotary_angles(
    positions: Any,
    frequencies: np.ndarray,
    gain: float = 1.0,
    dtype: str = "float32",
) -> tuple[Tensor, Tensor]:
    """Cosine and sine of `p theta_i`, which `apply_rotary` takes.

    Args:
        positions: int `(T,)` or `(B, T)`, in [0, 2**31) tokens.
        frequencies: float64 array `(R / 2,)`: theta_i of `rotary_frequencies`.
        gain: float. What both are multiplied by: the `gain` of a scaling. Defaults
            to `1.0`.
        dtype: `"float32"` or `"float64"`. Defaults to `"float32"`.

    Returns:
        Two tensors, `dtype` `(T, R / 2)` or `(B, T, R / 2)`.

    Numerics: within 1e-6 of the true values at every position.

    Raises:
        TypeError: `` `positions` must be integers. ``
        ValueError: `` `positions` must not be negative... `` when eager, and
            `` `dtype` must be one of 'float32', 'float64'. ``

    Example:

    >>> theta = kseq.ops.rotary_frequencies(4)
    >>> cos, sin = kseq.ops.rotary_angles(np.arange(3), theta)
    >>> tuple(cos.shape)
    (3, 2)
    """
    angles = position_angles(positions, frequencies, dtype)
    return ops.cos(angles) * gain, ops.sin(angles) * gain


def apply_rotary(
    x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool = False
) -> Tensor:
    """Turns pairs of coordinates of each query or key by the angles of its position.

        (a_i, b_i) -> (a_i cos_i - b_i sin_i, b_i cos_i + a_i sin_i),  i < R / 2

    Half-split: a_i = x_i, b_i = x_{i + R / 2}, as in Llama and GPT-NeoX; interleaved:
    a_i = x_{2i}, b_i = x_{2i + 1}, as in the paper and GPT-J. Coordinates from R on
    stay as they are. The dot product of a query and a key turned this way depends on
    the difference of their positions only.

    Args:
        x: float `(B, T, H, K)`. Queries or keys.
        cos: float `(T, R / 2)` or `(B, T, R / 2)`, with R <= K.
        sin: float, as `cos`.
        interleaved: bool. Which coordinates are a pair. Defaults to `False`.

    Returns:
        The shape and dtype of `x`.

    Numerics: at least float32 inside.

    Raises:
        ValueError: `` `x` must have shape (B, T, H, K). `` and
            `` The rotated width must not exceed that of `x`. ``

    Example:

    >>> theta = kseq.ops.rotary_frequencies(4)
    >>> cos, sin = kseq.ops.rotary_angles(np.arange(3), theta)
    >>> tuple(kseq.ops.apply_rotary(keras.ops.ones((2, 3, 5, 4)), cos, sin).shape)
    (2, 3, 5, 4)

    References:
        Su et al., 2021, "RoFormer: enhanced transformer with rotary position
        embedding", arXiv:2104.09864, eq. 34.
    """
    check_rank("x", x, (4,), "(B, T, H, K)")
    half, width = cos.shape[-1], x.shape[-1]
    if 2 * half > width:
        raise ValueError(
            message(
                "The rotated width must not exceed that of `x`.",
                rotary_dim=2 * half,
                shape=tuple(x.shape),
            )
        )
    compute = keras.backend.result_type(x.dtype, "float32")
    wide = ops.cast(x, compute)
    cos, sin = (ops.expand_dims(ops.cast(y, compute), -2) for y in (cos, sin))
    if interleaved:
        a, b = wide[..., 0 : 2 * half : 2], wide[..., 1 : 2 * half : 2]
    else:
        a, b = wide[..., :half], wide[..., half : 2 * half]
    a, b = a * cos - b * sin, b * cos + a * sin  # (B, T, H, R / 2)
    if interleaved:
        shape = (*ops.shape(x)[:-1], 2 * half)
        turned = [ops.reshape(ops.stack([a, b], axis=-1), shape)]  # (B, T, H, R)
    else:
        turned = [a, b]
    return ops.cast(ops.concatenate([*turned, wide[..., 2 * half :]], -1), x.dtype)
