"""One of the inputs of a model."""

from collections.abc import Callable
from typing import Any

import numpy as np

from kseq._checks import message


def chosen_input(x: Any, key: Any) -> tuple[np.ndarray, Callable[[np.ndarray], Any]]:
    """The input to check, and a function that makes `x` with another in its place."""
    if key is None and not isinstance(x, dict | list | tuple):
        return np.asarray(x), lambda values: values
    keys = list(x) if isinstance(x, dict) else list(range(len(x)))
    if key not in keys:
        raise ValueError(
            message(
                f"`key` must choose one of the inputs {', '.join(map(repr, keys))}.",
                key=key,
            )
        )

    def rebuild(values: np.ndarray) -> Any:
        if isinstance(x, dict):
            return {**x, key: values}
        return [values if i == key else part for i, part in enumerate(x)]

    return np.asarray(x[key]), rebuild
