"""Documents one behind the other in rows of one length."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kseq._checks import check_size, message
from kseq.data.token_ids import check_token_ids
from kseq.data.vocabulary import PAD


class PackedRows(NamedTuple):
    """What `pack` returns: int32 arrays `(R, L)`, 0 wherever there is padding.

    `token_ids` are the documents; `target_ids` the token that follows each in its
    document, 0 after the last; `segment_ids` are 1, 2, ... for the documents of a row;
    `positions` count from 0 in each document. Printed, it says how much is padding.
    """

    token_ids: np.ndarray
    target_ids: np.ndarray
    segment_ids: np.ndarray
    positions: np.ndarray

    def __str__(self) -> str:
        rows, length = self.token_ids.shape
        segments = int(self.segment_ids.max(axis=1).sum())
        padding = float((self.segment_ids == 0).mean())
        return (
            f"{_count(segments, 'segment')} in {_count(rows, 'row')} of "
            f"{_count(length, 'token')}, {padding:.1%} padding."
        )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("s" if number != 1 else "")


def pack(documents: Sequence[Sequence[int]], length: int) -> PackedRows:
    """Puts several documents into each row of `length` tokens.

    One static shape, and little padding. A document longer than `length` is split into
    pieces of `length` and a rest; each piece is a segment of its own, whose last target
    is the first token of the next piece. The target of a document's last token is 0,
    which a masked loss does not count, and never a token of another document. Put an
    end id behind each document if the model has to learn where it ends.

    Segments are placed by best fit, longest first: each into the fullest row that it
    fits into. That takes at most 11/9 of the fewest rows, plus 4. Nothing is random:
    the same documents give the same rows. In a row, segments keep the order of the
    documents, and rows are in the order of their first segments; `fit` shuffles them.

    No token may see another document. Attention takes
    `attention_mask=kseq.ops.segment_mask(segment_ids)` and `positions=positions`, a
    recurrent layer `reset_mask=kseq.ops.segment_starts(segment_ids)`. With one long
    document, the rows cover it once, in order.

    Args:
        documents: sequence of id sequences. None of the ids is 0. Documents without
            tokens are left out.
        length: int. L, tokens of a row.

    Returns:
        `PackedRows(token_ids, target_ids, segment_ids, positions)`.

    Raises:
        TypeError: `documents` must hold integer ids.
        ValueError: `documents` must have at least one token. The ids of `documents`
            must be at least 1...

    Example:

    >>> rows = kseq.data.pack([[5, 6, 7], [8, 9, 5, 4], [3, 4]], length=6)
    >>> rows.token_ids.tolist()
    [[5, 6, 7, 0, 0, 0], [8, 9, 5, 4, 3, 4]]
    >>> rows.target_ids.tolist()
    [[6, 7, 0, 0, 0, 0], [9, 5, 4, 0, 4, 0]]
    >>> print(rows)
    3 segments in 2 rows of 6 tokens, 25.0% padding.

    References:
        Johnson, 1973, "Near-optimal bin packing algorithms", thesis, MIT (the bound).
        Krell et al., 2021, "Efficient sequence packing without
        cross-contamination", arXiv:2107.02027.
    """
    check_size("length", length)
    # (document, first token, number of tokens) of each segment
    segments = [
        (index, start, min(length, len(document) - start))
        for index, document in enumerate(documents)
        for start in range(0, len(document), length)
    ]
    if not segments:
        raise ValueError(
            message("`documents` must have at least one token.", documents=documents)
        )
    check_token_ids("documents", documents)
    rows = _best_fit_decreasing([size for _, _, size in segments], length)
    packed = PackedRows(*np.full((4, len(rows), length), PAD, "int32"))
    for row, members in enumerate(rows):
        place = 0
        for number, segment in enumerate(members, start=1):
            index, start, size = segments[segment]
            here = slice(place, place + size)
            targets = documents[index][start + 1 : start + size + 1]
            packed.token_ids[row, here] = documents[index][start : start + size]
            packed.target_ids[row, place : place + len(targets)] = targets
            packed.segment_ids[row, here] = number
            packed.positions[row, here] = np.arange(size)
            place += size
    return packed


def _best_fit_decreasing(sizes: list[int], length: int) -> list[list[int]]:
    """The members of each row, ascending; rows ascend by their first member."""
    rows: list[list[int]] = []
    rows_by_space: dict[int, list[int]] = defaultdict(list)
    spaces: list[int] = []  # the keys of rows_by_space that have a row, ascending
    for segment in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        size = sizes[segment]
        found = bisect_left(spaces, size)
        if found < len(spaces):
            space = spaces[found]
            row = rows_by_space[space].pop()
            if not rows_by_space[space]:
                del spaces[found]
        else:
            space, row = length, len(rows)
            rows.append([])
        rows[row].append(segment)
        left = space - size
        if left:
            if not rows_by_space[left]:
                insort(spaces, left)
            rows_by_space[left].append(row)
    return sorted(sorted(row) for row in rows)
