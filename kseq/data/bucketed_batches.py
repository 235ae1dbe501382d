"""Batches of sequences in few static shapes: which sequences, padded to what."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from kseq._checks import check_size, message


class BucketedBatches(keras.utils.PyDataset):
    """Base of the data sets that pad sequences to a few lengths.

    Each sequence goes to the shortest of `boundaries` that holds it. Those of a bucket
    that do not fill a batch join the next longer bucket, so one batch at most, the
    longest, has rows to spare. Every sequence is in one batch of each epoch. A subclass
    makes the arrays of batch `index` from `length_and_rows(index)`.

    Args:
        lengths: sequence of int. The places that each sequence needs.
        noun: str. What messages call a sequence.
        batch_size: int. Rows of every batch.
        boundaries: sequence of int or None. Lengths to pad to; None chooses those that
            pad least.
        num_buckets: int. How many lengths to choose when `boundaries` is None.
        shuffle: bool. False keeps one order, in each batch that of the sequences.
        seed: int. Seed of the order.
        **kwargs: as in `keras.utils.PyDataset`.

    Raises:
        ValueError: the longest of `boundaries` must hold the longest sequence.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        *,
        noun: str,
        batch_size: int,
        boundaries: Sequence[int] | None,
        num_buckets: int,
        shuffle: bool,
        seed: int,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.noun = noun
        self.batch_size = check_size("batch_size", batch_size)
        self.shuffle = shuffle
        self.seed = seed
        self._lengths = np.array(lengths)
        self.boundaries = self._check_boundaries(boundaries, num_buckets)
        self._epoch = 0
        self._batches = self._arrange()

    def __len__(self) -> int:
        return len(self._batches)

    def __str__(self) -> str:
        lengths = [str(length) for _, length in self.shapes]
        return (
            f"{_count(len(self._lengths), self.noun)} in "
            f"{_count(len(self), 'batch', 'batches')} of "
            f"{_count(self.batch_size, 'row')}, padded to {' or '.join(lengths)} "
            f"tokens: XLA makes {_count(len(lengths), 'program')}."
        )

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Shapes `(batch_size, L)` that the batches have, shortest first."""
        return [(self.batch_size, n) for n in sorted({n for n, _ in self._batches})]

    def rows(self, index: int) -> list[int]:
        """Which sequence stands in each row of a batch; padded rows are not listed."""
        return self.length_and_rows(index)[1]

    def length_and_rows(self, index: int) -> tuple[int, list[int]]:
        """The length that a batch is padded to, and its sequences in order."""
        length, rows = self._batches[index]
        return length, [int(row) for row in rows]

    def on_epoch_end(self) -> None:
        """Draws the order of the next epoch."""
        if self.shuffle:
            self._epoch += 1
            self._batches = self._arrange()

    def _check_boundaries(
        self, boundaries: Sequence[int] | None, num_buckets: int
    ) -> list[int]:
        if boundaries is None:
            return tightest_boundaries(self._lengths, num_buckets)
        chosen = sorted({check_size("boundaries", length) for length in boundaries})
        longest = int(self._lengths.max())
        if not chosen or chosen[-1] < longest:
            raise ValueError(
                message(
                    f"The longest of `boundaries` must hold the longest {self.noun}, "
                    "start and end ids included.",
                    boundaries=list(boundaries),
                    longest=longest,
                    fix=f"Add {longest} to `boundaries`.",
                )
            )
        return chosen

    def _arrange(self) -> list[tuple[int, np.ndarray]]:
        """Batches of the epoch as (length, indices of the sequences)."""
        generator = np.random.default_rng([self.seed, self._epoch])
        batches: list[tuple[int, np.ndarray]] = []
        waiting = np.array([], dtype=int)
        bucket_of_row = np.searchsorted(self.boundaries, self._lengths)
        for bucket, length in enumerate(self.boundaries):
            members = np.flatnonzero(bucket_of_row == bucket)
            if self.shuffle:
                members = generator.permutation(members)
            waiting = np.concatenate([waiting, members])
            full = len(waiting) - len(waiting) % self.batch_size
            batches += [
                (length, waiting[start : start + self.batch_size])
                for start in range(0, full, self.batch_size)
            ]
            waiting = waiting[full:]
        if len(waiting):
            batches.append((int(self.boundaries[-1]), waiting))
        if self.shuffle:
            batches = [batches[i] for i in generator.permutation(len(batches))]
        else:
            # rows that another bucket left over stand first
            batches = [(length, np.sort(rows)) for length, rows in batches]
        return _two_lengths_first(batches)


def tightest_boundaries(lengths: Sequence[int] | np.ndarray, count: int) -> list[int]:
    """The at most `count` lengths to pad to that leave the least padding in all.

    Quantiles would put a quarter of the rows into a last bucket as long as the longest
    row; this weighs every choice by dynamic programming instead.

    Args:
        lengths: sequence of int. One length for each sequence.
        count: int. How many boundaries there may be.

    Returns:
        Sorted list of int; the last is the longest length.
    """
    check_size("num_buckets", count)
    values, weights = np.unique(np.asarray(lengths), return_counts=True)
    totals = np.concatenate([[0], np.cumsum(weights)])
    # cost[j]: fewest tokens for the j shortest values with the buckets so far;
    # last[j]: where the longest of these buckets starts
    cost = np.concatenate([[0], totals[1:] * values])
    starts: list[np.ndarray] = []
    for _ in range(min(count, len(values)) - 1):
        # choices[i, j - 1]: values i to j - 1 in one more bucket
        choices = cost[:-1, None] + (totals[None, 1:] - totals[:-1, None]) * values
        choices = np.where(np.tri(len(values), dtype=bool).T, choices, np.inf)
        starts.append(choices.argmin(axis=0))
        cost = np.concatenate([[0], choices.min(axis=0)])
    found, end = [], len(values)
    for start in reversed(starts):
        found.append(int(values[end - 1]))
        end = int(start[end - 1])
        if not end:
            break
    if end:
        found.append(int(values[end - 1]))
    return found[::-1]


def _two_lengths_first(
    batches: list[tuple[int, np.ndarray]],
) -> list[tuple[int, np.ndarray]]:
    """Lets the first two batches differ in length where any two do.

    On TensorFlow, Keras reads batches 0 and 1 and fixes for the whole run every
    dimension in which they agree: a later batch of another length would be refused.
    """
    for index, (length, _) in enumerate(batches):
        if length != batches[0][0]:
            batches[1], batches[index] = batches[index], batches[1]
            break
    return batches


def _count(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
