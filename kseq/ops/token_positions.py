"""Which position each token has."""

from typing import Any

import keras
from keras import ops

from kseq._checks import check_rank, message
from kseq._typing import Tensor
from kseq.backend import is_concrete


def check_integers(name: str, values: Any) -> Tensor:
    """`values` as an int32 tensor.

    Raises:
        TypeError: `` `positions` must be integers. `` with `name` in its place.
    """
    values = ops.convert_to_tensor(values)
    dtype = keras.backend.standardize_dtype(values.dtype)
    if "int" not in dtype:
        raise TypeError(message(f"`{name}` must be integers.", dtype=dtype))
    return ops.cast(values, "int32")


def check_positions(name: str, positions: Any) -> Tensor:
    """`positions` as an int32 tensor; that none is negative is checked when eager.

    Raises:
        TypeError: as `check_integers`.
        ValueError: `` `positions` must not be negative... `` with `name` alike.
    """
    positions = check_integers(name, positions)
    if is_concrete(positions) and 0 not in positions.shape:
        smallest = int(ops.min(positions))
        if smallest < 0:
            raise ValueError(
                message(
                    f"`{name}` must not be negative.",
                    fix="The first token has position 0.",
                    smallest=smallest,
                )
            )
    return positions


def is_zero(start_index: Any) -> bool:
    """Whether `start_index` is the default: a plain 0, no tensor."""
    return isinstance(start_index, int) and start_index == 0


def token_positions(
    x: Tensor, positions: Tensor | None = None, start_index: Tensor | int = 0
) -> Tensor:
    """The positions of the tokens of `x` `(B, T, ...)`: int32 `(T,)` or `(B, T)`.

    They are `positions` `(T,)` or `(B, T)`, or count up from `start_index`, a scalar
    or one `(B,)` for each row.

    Raises:
        TypeError: `` `positions` must be integers. `` (`start_index` alike).
        ValueError: `` `positions` must not be negative... ``,
            `` `positions` must have shape (T,) or (B, T)... `` (`start_index` alike)
            and `` Give `positions` or `start_index`, not both. ``
    """
    batch, length = x.shape[:2]
    if positions is None:
        start = check_positions("start_index", start_index)
        check_rank("start_index", start, (0, 1), "() or (B,)")
        _check_sizes("start_index", start, "() or (B,)", B=batch)
        steps = ops.arange(ops.shape(x)[1], dtype="int32")
        return ops.expand_dims(start, -1) + steps  # (T,) or (B, T)
    if not is_zero(start_index):
        raise ValueError(
            message(
                "Give `positions` or `start_index`, not both.", start_index=start_index
            )
        )
    positions = check_positions("positions", positions)
    check_rank("positions", positions, (1, 2), "(T,) or (B, T)")
    _check_sizes("positions", positions, "(T,) or (B, T)", B=batch, T=length)
    return positions


def _check_sizes(name: str, given: Tensor, layout: str, **sizes: Any) -> None:
    """Raises unless the axes of `given` are the last of `sizes`, where known."""
    pairs = zip(reversed(given.shape), reversed(sizes.values()), strict=False)
    if any(got and want and got != want for got, want in pairs):
        raise ValueError(
            message(
                f"`{name}` must have shape {layout}.", shape=tuple(given.shape), **sizes
            )
        )
