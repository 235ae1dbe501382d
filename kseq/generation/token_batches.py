"""Token ids as a compiled decoder takes them: checked, in few shapes."""

from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops

from kseq._checks import message
from kseq._typing import Tensor


def check_token_ids(name: str, ids: Any, vocabulary_size: int) -> np.ndarray:
    """`ids` as an int32 array `(B, S)`, or what is wrong with them."""
    rule = f"`{name}` must be integers of shape (B, S), B and S at least 1."
    rows = {np.shape(row) for row in ids}
    if len(rows) > 1:
        raise ValueError(
            message(rule, fix="Fill short rows with 0.", row_shapes=sorted(rows))
        )
    array = np.asarray(ids)
    if array.ndim != 2 or not array.size or array.dtype.kind not in "iu":
        raise ValueError(message(rule, shape=array.shape, dtype=str(array.dtype)))
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= vocabulary_size:
        raise ValueError(
            message(
                f"`{name}` must lie in [0, {vocabulary_size}), the size of its "
                "vocabulary.",
                smallest=low,
                largest=high,
            )
        )
    return array.astype("int32")


def pad_length(ids: np.ndarray, multiple: int) -> np.ndarray:
    """`ids` `(B, S)` with zeros behind, up to the next multiple in length."""
    missing = -ids.shape[1] % multiple
    return np.pad(ids, ((0, 0), (0, missing)))


def decode_in_batches(
    decode: Callable[[np.ndarray], Tensor], ids: np.ndarray, batch_size: int
) -> np.ndarray:
    """What `decode` makes of all rows, `batch_size` of them at a time.

    The last batch is filled by repeating a row, so that no shape is new.

    Args:
        decode: maps ids `(batch_size, S)` to tokens `(batch_size, L)`, rows filled
            with 0.
        ids: int32 `(B, S)`.
        batch_size: int, at most B.

    Returns:
        int32 `(B, L')`, where L' is the longest row's length, at least 1.
    """
    batches = []
    for first in range(0, len(ids), batch_size):
        batch = ids[first : first + batch_size]
        missing = np.repeat(batch[:1], batch_size - len(batch), axis=0)
        tokens = ops.convert_to_numpy(decode(np.concatenate([batch, missing])))
        batches.append(tokens[: len(batch)])
    tokens = np.concatenate(batches)
    return tokens[:, : max(1, np.count_nonzero(tokens.any(axis=0)))]
