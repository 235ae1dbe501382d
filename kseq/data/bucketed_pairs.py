"""Batches of source and target sequences in few static shapes."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from kseq._checks import check_size, message
from kseq.data.vocabulary import END, PAD, START

Ids = Sequence[int]
Batch = tuple[dict[str, np.ndarray], np.ndarray]


class BucketedPairs(keras.utils.PyDataset):
    """Pads pairs of id lists to a few lengths, so that XLA compiles few programs.

    Each batch is `({"source_ids": source + end, "target_ids": start + target},
    target + end)`: three int32 arrays `(batch_size, L)` padded with 0, where `L` is one
    of `boundaries`. A pair needs `max(len(source), len(target)) + 1` places. The pairs
    of a bucket that do not fill a batch join the next longer bucket, so one batch at
    most, the longest, has rows to spare; they hold padding only, which a masked loss
    does not count. Every pair is in one batch of each epoch.

    With `shuffle=True` pairs and batches change their order each epoch, as the seed
    says. `fit` shuffles the batches once more with Python's `random`: call
    `keras.utils.set_random_seed`, or pass `shuffle=False` to `fit`, for a run that can
    be repeated.

    Args:
        sources: sequence of id sequences, without start and end ids.
        targets: sequence of id sequences, as many as sources, likewise.
        batch_size: int. Rows of every batch.
        boundaries: sequence of int or None. Lengths to pad to; the longest must hold
            the longest pair. None chooses those that pad least. Defaults to `None`.
        num_buckets: int. How many lengths to choose when `boundaries` is None.
            Defaults to `4`.
        shuffle: bool. False keeps one order, for evaluation. Defaults to `True`.
        seed: int. Seed of the order. Defaults to `0`.
        **kwargs: `workers`, `use_multiprocessing` and `max_queue_size` of
            `keras.utils.PyDataset`.

    Raises:
        ValueError: `sources` and `targets` must have the same number of sequences, at
            least one; the longest of `boundaries` must hold the longest pair.

    Example:

    >>> pairs = BucketedPairs([[5], [6, 7, 8]], [[9], [9]], batch_size=1, num_buckets=2)
    >>> inputs, labels = pairs[0]
    >>> inputs["source_ids"].shape == labels.shape
    True
    >>> print(pairs)
    2 pairs in 2 batches of 1 row, padded to 2 or 4 tokens: XLA makes 2 programs.
    """

    def __init__(
        self,
        sources: Sequence[Ids],
        targets: Sequence[Ids],
        *,
        batch_size: int,
        boundaries: Sequence[int] | None = None,
        num_buckets: int = 4,
        shuffle: bool = True,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if len(sources) != len(targets) or not len(sources):
            raise ValueError(
                message(
                    "`sources` and `targets` must have the same number of sequences, "
                    "at least one.",
                    sources=len(sources),
                    targets=len(targets),
                )
            )
        self.sources = sources
        self.targets = targets
        self.batch_size = check_size("batch_size", batch_size)
        self.shuffle = shuffle
        self.seed = seed
        self._lengths = np.array(
            [max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)]
        )
        self.boundaries = self._check_boundaries(boundaries, num_buckets)
        self._epoch = 0
        self._batches = self._arrange()

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> Batch:
        length, rows = self._batches[index]
        arrays = np.full((3, self.batch_size, length), PAD, dtype="int32")
        for row, pair in enumerate(rows):
            source, target = self.sources[pair], self.targets[pair]
            arrays[0, row, : len(source) + 1] = [*source, END]
            arrays[1, row, : len(target) + 1] = [START, *target]
            arrays[2, row, : len(target) + 1] = [*target, END]
        return {"source_ids": arrays[0], "target_ids": arrays[1]}, arrays[2]

    def __str__(self) -> str:
        lengths = [str(length) for _, length in self.shapes]
        size = f"{self.batch_size} row" + "s" * (self.batch_size > 1)
        return (
            f"{len(self.sources):,} pairs in {len(self):,} batches of {size}, padded "
            f"to {' or '.join(lengths)} tokens: XLA makes {len(lengths)} program"
            + "s" * (len(lengths) > 1)
            + "."
        )

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Shapes `(batch_size, L)` that the batches have, shortest first."""
        return [(self.batch_size, n) for n in sorted({n for n, _ in self._batches})]

    def rows(self, index: int) -> list[int]:
        """Which pair stands in each row of a batch; padded rows are not listed."""
        return [int(pair) for pair in self._batches[index][1]]

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
                    "The longest of `boundaries` must hold the longest pair, its "
                    "start or end id included.",
                    boundaries=list(boundaries),
                    longest_pair=longest,
                    fix=f"Add {longest} to `boundaries`.",
                )
            )
        return chosen

    def _arrange(self) -> list[tuple[int, np.ndarray]]:
        """Batches of the epoch as (length, indices of the pairs)."""
        generator = np.random.default_rng([self.seed, self._epoch])
        batches: list[tuple[int, np.ndarray]] = []
        waiting = np.array([], dtype=int)
        bucket_of_pair = np.searchsorted(self.boundaries, self._lengths)
        for bucket, length in enumerate(self.boundaries):
            members = np.flatnonzero(bucket_of_pair == bucket)
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
        return _two_lengths_first(batches)


def tightest_boundaries(lengths: Sequence[int] | np.ndarray, count: int) -> list[int]:
    """The at most `count` lengths to pad to that leave the least padding in all.

    Quantiles would put a quarter of the pairs into a last bucket as long as the longest
    pair; this weighs every choice by dynamic programming instead.

    Args:
        lengths: sequence of int. One length for each sequence.
        count: int. How many boundaries there may be.

    Returns:
        Sorted list of int; the last is the longest length.
    """
    check_size("num_buckets", count)
    values, weights = np.unique(np.asarray(lengths), return_counts=True)
    totals = np.concatenate([[0], np.cumsum(weights)])
    # best[j]: fewest tokens for the j shortest values, and the boundaries used
    best: list[tuple[int, list[int]]] = [(0, [])] + [
        (int(totals[j] * values[j - 1]), [int(values[j - 1])])
        for j in range(1, len(values) + 1)
    ]
    for _ in range(count - 1):
        best = [best[0]] + [
            min(
                (
                    best[i][0] + int((totals[j] - totals[i]) * values[j - 1]),
                    [*best[i][1], int(values[j - 1])],
                )
                for i in range(j)
            )
            for j in range(1, len(values) + 1)
        ]
    return best[-1][1]


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
