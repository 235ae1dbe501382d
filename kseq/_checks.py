"""Argument checks with one error wording: the rule, what was received, the fix."""

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import keras
import numpy as np


def message(rule: str, fix: str = "", **received: Any) -> str:
    """Words of an error: `rule. Received: name=value, ... fix`."""
    values = ", ".join(f"{name}={value!r}" for name, value in received.items())
    return f"{rule} Received: {values}." + (f" {fix}" if fix else "")


def check_size(name: str, value: Any) -> int:
    """Returns `value` if it is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(
            message(f"`{name}` must be a positive integer.", **{name: value})
        )
    return int(value)


def check_rate(name: str, value: Any) -> float:
    """Returns `value` if it is a probability in [0, 1)."""
    if not isinstance(value, Real) or not 0 <= float(value) < 1:
        raise ValueError(
            message(
                f"`{name}` must be a probability in [0, 1): the share that is dropped.",
                **{name: value},
            )
        )
    return float(value)


def check_at_least_zero(name: str, value: Any) -> float:
    """Returns `value` if it is a finite number of at least 0."""
    if not isinstance(value, Real) or not 0 <= float(value) < math.inf:
        raise ValueError(
            message(f"`{name}` must be a number of at least 0.", **{name: value})
        )
    return float(value)


def check_choice(name: str, value: Any, choices: Iterable[Any]) -> Any:
    """Returns `value` if it is one of `choices`."""
    choices = list(choices)
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(message(f"`{name}` must be one of {listed}.", **{name: value}))
    return value


def check_mask(name: str, mask: Any) -> Any:
    """Returns `mask` if it is None or boolean; 0/1 and additive masks are refused."""
    if mask is None:
        return None
    if isinstance(mask, list | tuple):
        mask = np.asarray(mask)
    dtype = keras.backend.standardize_dtype(getattr(mask, "dtype", type(mask).__name__))
    if dtype != "bool":
        raise TypeError(
            message(
                f"`{name}` must be boolean.",
                fix="Turn a 0/1 mask into booleans with `mask != 0`. An additive "
                "mask is none: it is called `attention_bias`.",
                dtype=dtype,
            )
        )
    return mask


def check_floating(name: str, value: Any) -> Any:
    """Returns `value` if it is a floating-point tensor."""
    dtype = keras.backend.standardize_dtype(value.dtype)
    if "float" not in dtype:
        raise TypeError(
            message(
                f"`{name}` must be floating-point.",
                fix="Token ids go through an `Embedding` first; other whole numbers "
                "through `keras.ops.cast`.",
                dtype=dtype,
            )
        )
    return value


def check_rank(name: str, value: Any, ranks: Iterable[int], layout: str) -> None:
    """Refuses a tensor, or a shape, whose rank is not in `ranks`."""
    shape = tuple(getattr(value, "shape", value))
    if len(shape) not in tuple(ranks):
        raise ValueError(message(f"`{name}` must have shape {layout}.", shape=shape))
