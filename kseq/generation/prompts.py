"""Prompts as a compiled decoder takes them: checked, in few shapes."""

from typing import Any

import numpy as np

from kseq._checks import message


def pad_prompts(
    name: str,
    prompts: Any,
    vocabulary_size: int,
    *,
    multiple: int = 1,
    left: bool = False,
) -> np.ndarray:
    """Prompts of any lengths in one array.

    Args:
        name: what errors call them.
        prompts: rows of ids, lists of any lengths or an array `(B, P)` that is filled
            with 0.
        vocabulary_size: int, above every id.
        multiple: int. P is rounded up to it. Defaults to `1`.
        left: bool. Whether the zeros go to the left, all of a row, so that it ends with
            its last id. Defaults to `False`.

    Returns:
        int32 `(B, P)`.

    Raises:
        ValueError: `` `prompts` must be rows of integers... `` and ``... must lie in
            [0, N)... ``; with `left`, `` ... at least one id that is not 0... ``
    """
    rows = [np.asarray(row) for row in prompts]
    for i, row in enumerate(rows):
        if row.ndim != 1 or not row.size or row.dtype.kind not in "iu":
            raise ValueError(
                message(
                    f"`{name}` must be rows of integers, at least one in each.",
                    fix="An array of shape (B, P), or a list of lists.",
                    row=i,
                    shape=row.shape,
                    dtype=str(row.dtype),
                )
            )
    if not rows:
        return np.zeros((0, multiple), "int32")
    low, high = min(map(np.min, rows)), max(map(np.max, rows))
    if low < 0 or high >= vocabulary_size:
        raise ValueError(
            message(
                f"`{name}` must lie in [0, {vocabulary_size}), the size of its "
                "vocabulary.",
                smallest=int(low),
                largest=int(high),
            )
        )
    if left:
        rows = [row[row != 0] for row in rows]
        empty = [i for i, row in enumerate(rows) if not row.size]
        if empty:
            raise ValueError(
                message(
                    f"Each row of `{name}` needs at least one id that is not 0.",
                    fix="Begin with the id that starts a text.",
                    rows_without=empty,
                )
            )
    longest = max(map(len, rows))
    width = longest + -longest % multiple
    padded = np.zeros((len(rows), width), "int32")
    for row, ids in zip(padded, rows, strict=True):
        row[width - len(ids) if left else 0 :][: len(ids)] = ids
    return padded


def check_made_ids(token_ids: Any, rows: int) -> np.ndarray:
    """What was made for so many prompts, int32 `(B, L)`."""
    made = np.asarray(token_ids)
    if made.ndim != 2 or made.shape[0] != rows or not made.shape[1]:
        raise ValueError(
            message(
                "`token_ids` must be integers of shape (B, L), a row for each prompt.",
                fix="Of `num_return` rows take one: token_ids[:, 0].",
                shape=made.shape,
                prompts=rows,
            )
        )
    return made.astype("int32")
