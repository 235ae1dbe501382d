"""What decoding refuses: arguments, and models that answer in another shape."""

from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
from keras import ops

from kseq._checks import message
from kseq._typing import Tensor


def check_prompt_array(prompt_ids: Any) -> np.ndarray:
    """The prompts as int32 `(B, P)`."""
    array = np.asarray(prompt_ids)
    if array.ndim != 2 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(
            message(
                "`prompt_ids` must be integers of shape (B, P).",
                shape=array.shape,
                dtype=str(array.dtype),
            )
        )
    return array.astype("int32")


def check_stop_ids(stop_ids: Any) -> tuple[int, ...]:
    """The ids that end a row, sorted."""
    ids: list[Any] = list(stop_ids) if isinstance(stop_ids, Iterable) else [None]
    for stop in ids:
        if isinstance(stop, bool) or not isinstance(stop, Integral) or stop < 1:
            raise ValueError(
                message(
                    "`stop_ids` must be a list of positive integers.", stop_ids=stop_ids
                )
            )
    return tuple(sorted({int(stop) for stop in ids}))


def check_seed(seed: Any) -> np.ndarray:
    """A seed as `kseq.ops.hash_bits` takes it: its 62 lowest bits."""
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise ValueError(message("`seed` must be an integer.", seed=seed))
    seed = int(seed)
    return np.array([seed % 2**31, seed // 2**31 % 2**31], "int32")


def check_start(last: Tensor) -> Tensor:
    """Returns what the first step takes, int32 `(B,)`."""
    if len(last.shape) != 1:
        raise ValueError(
            message(
                "`start` must return ids (B,) and the state.", shape=tuple(last.shape)
            )
        )
    return ops.cast(last, "int32")


def check_logits(logits: Tensor, stop_ids: tuple[int, ...]) -> Tensor:
    """Returns what a step made, float32 `(B, N)`."""
    if len(logits.shape) != 2:
        raise ValueError(
            message(
                "`step` must return logits (B, N) and the state.",
                shape=tuple(logits.shape),
            )
        )
    if stop_ids and stop_ids[-1] >= logits.shape[1]:
        raise ValueError(
            message(
                f"`stop_ids` must lie in [1, {logits.shape[1]}), the ids that the "
                "model makes.",
                stop_ids=stop_ids,
            )
        )
    return ops.cast(logits, "float32")
