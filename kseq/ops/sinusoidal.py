"""Sinusoidal position encodings (Vaswani et al. 2017)."""

from typing import Any

import numpy as np
from keras import ops

from kseq._typing import Tensor
from kseq.ops.position_angles import geometric_frequencies, position_angles


def sinusoidal_positions(
    positions: Any,
    hidden_dim: int,
    max_wavelength: float = 10_000.0,
    dtype: str = "float32",
) -> Tensor:
    """Sines and cosines of each position, at wavelengths in geometric progression.

        PE(p)[2i] = sin(p theta_i);  PE(p)[2i + 1] = cos(p theta_i)
        theta_i = max_wavelength ** (-2i / hidden_dim)

    Interleaved, as in the paper; tensor2tensor and others put all sines first,
    which is this with the columns `[0, 2, ..., 1, 3, ...]`.

    Args:
        positions: int, any shape `(...)`, in [0, 2**31) tokens.
        hidden_dim: int, even. Width of an encoding.
        max_wavelength: float. The waves are 2 pi to nearly 2 pi `max_wavelength`
            tokens long. Defaults to `10_000.0`.
        dtype: `"float32"` or `"float64"`. Defaults to `"float32"`.

    Returns:
        `dtype` `(..., hidden_dim)`.

    Numerics: within 1e-6 of the true value at every position.

    Raises:
        TypeError: `` `positions` must be integers. ``
        ValueError: `` `positions` must not be negative... `` when eager,
            `` A width of pairs must be even... ``,
            `` `max_wavelength` must be greater than 1... `` and
            `` `dtype` must be one of 'float32', 'float64'. ``

    Example:

    >>> table = kseq.ops.sinusoidal_positions(np.arange(3), 4)
    >>> tuple(table.shape)
    (3, 4)

    References:
        Vaswani et al., 2017, "Attention is all you need", arXiv:1706.03762,
        section 3.5.
    """
    frequencies = geometric_frequencies(hidden_dim, max_wavelength)
    angles = position_angles(positions, frequencies, dtype)  # (..., D / 2)
    pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # (..., D / 2, 2)
    return ops.reshape(pairs, (*ops.shape(angles)[:-1], hidden_dim))  # (..., D)


def sinusoidal_shift(
    offset: int,
    hidden_dim: int,
    max_wavelength: float = 10_000.0,
    dtype: str = "float32",
) -> Tensor:
    """The linear map from the encoding of any position to that of one further on.

        PE(p + k) = M_k PE(p)

    M_k turns pair i, `(sin, cos)`, by the angle k theta_i, whatever p is.

    Args:
        offset: int. k, in tokens; negative for positions further back.
        hidden_dim: int, even. Width of an encoding.
        max_wavelength: float. As in `sinusoidal_positions`. Defaults to `10_000.0`.
        dtype: float dtype. Defaults to `"float32"`.

    Returns:
        `dtype` `(hidden_dim, hidden_dim)`: M_k, for encodings that are columns. A
        table of rows `(T, hidden_dim)` is multiplied by its transpose.

    Raises:
        ValueError: `` A width of pairs must be even... `` and
            `` `max_wavelength` must be greater than 1... ``

    Example:

    >>> shift = kseq.ops.sinusoidal_shift(5, 4)
    >>> tuple(shift.shape)
    (4, 4)

    References:
        Vaswani et al., 2017, arXiv:1706.03762, section 3.5.
    """
    angles = offset * geometric_frequencies(hidden_dim, max_wavelength)
    sines, cosines = np.arange(0, hidden_dim, 2), np.arange(1, hidden_dim, 2)
    shift = np.zeros((hidden_dim, hidden_dim))
    shift[sines, sines] = shift[cosines, cosines] = np.cos(angles)
    shift[sines, cosines] = np.sin(angles)
    shift[cosines, sines] = -np.sin(angles)
    return ops.convert_to_tensor(shift, dtype)
