"""Batches of source and target sequences in few static shapes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kseq._checks import message
from kseq.data.bucketed_batches import BucketedBatches
from kseq.data.token_ids import check_token_ids
from kseq.data.vocabulary import END, PAD, START

Ids = Sequence[int]
Batch = tuple[dict[str, np.ndarray], np.ndarray]


class BucketedPairs(BucketedBatches):
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
        shuffle: bool. False keeps one order, for evaluation, in each batch that in
            which they were given. Defaults to `True`.
        seed: int. Seed of the order. Defaults to `0`.
        **kwargs: `workers`, `use_multiprocessing` and `max_queue_size` of
            `keras.utils.PyDataset`.

    Raises:
        TypeError: `sources` must hold integer ids (`targets` alike).
        ValueError: `sources` and `targets` must have the same number of sequences, at
            least one; their ids must be at least 1; the longest of `boundaries` must
            hold the longest pair.

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
        if len(sources) != len(targets) or not len(sources):
            raise ValueError(
                message(
                    "`sources` and `targets` must have the same number of sequences, "
                    "at least one.",
                    sources=len(sources),
                    targets=len(targets),
                )
            )
        check_token_ids("sources", sources)
        check_token_ids("targets", targets)
        self.sources = sources
        self.targets = targets
        super().__init__(
            [max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)],
            noun="pair",
            batch_size=batch_size,
            boundaries=boundaries,
            num_buckets=num_buckets,
            shuffle=shuffle,
            seed=seed,
            **kwargs,
        )

    def __getitem__(self, index: int) -> Batch:
        length, rows = self.length_and_rows(index)
        arrays = np.full((3, self.batch_size, length), PAD, dtype="int32")
        for row, pair in enumerate(rows):
            source, target = self.sources[pair], self.targets[pair]
            arrays[0, row, : len(source) + 1] = [*source, END]
            arrays[1, row, : len(target) + 1] = [START, *target]
            arrays[2, row, : len(target) + 1] = [*target, END]
        return {"source_ids": arrays[0], "target_ids": arrays[1]}, arrays[2]
