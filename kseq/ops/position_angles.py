"""Angles of positions, exact however far the position."""

from typing import Any

import numpy as np
from keras import ops

from kseq._checks import check_choice, message
from kseq._typing import Tensor
from kseq.ops.token_positions import check_positions


def geometric_frequencies(width: int, max_wavelength: float) -> np.ndarray:
    """theta_i = max_wavelength ** (-2i / width), i = 0 .. width / 2 - 1, in float64.

    Raises:
        ValueError: `` A width of pairs must be even... `` and
            `` `max_wavelength` must be greater than 1... ``
    """
    if width < 2 or width % 2:
        raise ValueError(
            message(
                "A width of pairs must be even.",
                fix="A sine needs its cosine, and a rotation two coordinates.",
                width=width,
            )
        )
    if not max_wavelength > 1:
        raise ValueError(
            message(
                "`max_wavelength` must be greater than 1: slower and slower waves.",
                max_wavelength=max_wavelength,
            )
        )
    return float(max_wavelength) ** -(np.arange(0, width, 2) / width)


def position_angles(
    positions: Any, frequencies: np.ndarray, dtype: str = "float32"
) -> Tensor:
    """The angle p theta of position p, up to whole turns.

    A float32 product of p and theta is off by .06 at position 1,000,000. Here turns
    are counted in integers of 2**-32 turns, whose overflow drops whole turns:

        theta = 2 pi (n + r) / 2**32,  n an integer and |r| <= 1/2
        p theta = 2 pi (p n + p r) / 2**32

    Args:
        positions: int, any shape `(...)`, in [0, 2**31).
        frequencies: float64 array `(F,)`, radians a token.
        dtype: `"float32"` or `"float64"`.

    Returns:
        `dtype` `(..., F)`, in radians; for float32 in [-pi, pi].

    Numerics: the float32 angle is within 4e-7 of the true one at every position.

    Raises:
        TypeError, ValueError: as `check_positions`, and
            `` `dtype` must be one of 'float32', 'float64'. ``
    """
    check_choice("dtype", dtype, ["float32", "float64"])
    positions = ops.expand_dims(check_positions("positions", positions), -1)
    if dtype == "float64":
        return ops.cast(positions, dtype) * frequencies
    turns = frequencies / (2 * np.pi) * 2.0**32
    whole = np.round(turns)
    rest = (turns - whole).astype("float32")
    whole = whole.astype("int64").astype("int32")  # modulo 2**32
    part = ops.cast(ops.cast(positions, "float32") * rest, "int32")
    turns = positions * whole + part
    return ops.cast(turns, "float32") * np.float32(2 * np.pi / 2**32)
