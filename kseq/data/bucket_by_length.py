"""Batches of sequences, with or without labels, in few static shapes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kseq._checks import message
from kseq.data.bucketed_batches import BucketedBatches
from kseq.data.token_ids import check_token_ids
from kseq.data.vocabulary import PAD

Ids = Sequence[int]


def bucket_by_length(
    sequences: Sequence[Ids],
    labels: Sequence[Any] | None = None,
    *,
    batch_size: int,
    boundaries: Sequence[int] | None = None,
    num_buckets: int = 4,
    shuffle: bool = True,
    seed: int = 0,
    **kwargs: Any,
) -> "BucketedSequences":
    """Pads id lists to a few lengths, so that XLA compiles few programs.

    A data set for `fit`, `evaluate` and `predict`. Each batch has an int32 array
    `ids` `(batch_size, L)` padded with 0, where `L` is one of `boundaries`, and is

    - `(ids,)` without labels;
    - `(ids, labels, weights)` with one label for each sequence: `(batch_size,)`, int32
      or float32, and float32 weights, 1 for a sequence and 0 for a row to spare;
    - `(ids, labels)` with one label for each token: int32 `(batch_size, L)` padded
      with 0, which a masked loss does not count, so 0 is no label.

    The sequences of a bucket that do not fill a batch join the next longer bucket, so
    one batch at most, the longest, has rows to spare. Every sequence is in one batch of
    each epoch. For pairs of a source and a target there is `BucketedPairs`.

    With `shuffle=True` sequences and batches change their order each epoch, as the seed
    says. `fit` shuffles the batches once more with Python's `random`: call
    `keras.utils.set_random_seed`, or pass `shuffle=False` to `fit`, for a run that can
    be repeated. `predict` needs `shuffle=False`: `rows(index)` then says which sequence
    stands in each row of a batch.

    Args:
        sequences: sequence of id sequences, each with at least one id, none of them 0.
        labels: one number for each sequence, or one sequence of ids for each sequence,
            of its length. None for none. Defaults to `None`.
        batch_size: int. Rows of every batch.
        boundaries: sequence of int or None. Lengths to pad to; the longest must hold
            the longest sequence. None chooses those that pad least. Defaults to `None`.
        num_buckets: int. How many lengths to choose when `boundaries` is None.
            Defaults to `4`.
        shuffle: bool. False keeps one order, for evaluation, in each batch that in
            which they were given. Defaults to `True`.
        seed: int. Seed of the order. Defaults to `0`.
        **kwargs: `workers`, `use_multiprocessing` and `max_queue_size` of
            `keras.utils.PyDataset`.

    Returns:
        A `keras.utils.PyDataset`, with `boundaries`, `shapes` (those of its batches)
        and `rows(index)`. Printed, it says how many programs XLA makes.

    Raises:
        TypeError: `sequences` must hold integer ids.
        ValueError: each of `sequences` must have a token; their ids must be at least
            1; there must be a label for
            each sequence, or one for each of its tokens; the longest of `boundaries`
            must hold the longest sequence.

    Example:

    >>> reviews = [[5, 3], [7, 4, 3, 9, 8], [6]]
    >>> batches = kseq.data.bucket_by_length(
    ...     reviews, [1, 0, 1], batch_size=2, num_buckets=2, shuffle=False)
    >>> ids, labels, weights = batches[0]
    >>> ids.tolist(), labels.tolist()
    ([[5, 3], [6, 0]], [1, 1])
    >>> print(batches)
    3 sequences in 2 batches of 2 rows, padded to 2 or 5 tokens: XLA makes 2 programs.
    """
    return BucketedSequences(
        sequences,
        labels,
        batch_size=batch_size,
        boundaries=boundaries,
        num_buckets=num_buckets,
        shuffle=shuffle,
        seed=seed,
        **kwargs,
    )


class BucketedSequences(BucketedBatches):
    """What `bucket_by_length` returns."""

    def __init__(
        self, sequences: Sequence[Ids], labels: Sequence[Any] | None, **options: Any
    ) -> None:
        lengths = [len(ids) for ids in sequences]
        if not lengths or not all(lengths):
            raise ValueError(
                message(
                    "`sequences` must have at least one sequence, and each at least "
                    "one token.",
                    sequences=len(lengths),
                    without_tokens=[i for i, n in enumerate(lengths) if not n][:5],
                )
            )
        check_token_ids("sequences", sequences)
        self.sequences = sequences
        self.labels: Any = labels
        self.labels_by_token = _by_token(labels, lengths)
        if labels is not None and not self.labels_by_token:
            kind = np.asarray(labels).dtype.kind
            self.labels = np.asarray(labels, "float32" if kind == "f" else "int32")
        super().__init__(lengths, noun="sequence", **options)

    def __getitem__(self, index: int) -> tuple[np.ndarray, ...]:
        length, rows = self.length_and_rows(index)
        ids = self._padded(self.sequences, rows, length)
        if self.labels is None:
            return (ids,)
        if self.labels_by_token:
            return ids, self._padded(self.labels, rows, length)
        spare = self.batch_size - len(rows)
        labels = np.pad(self.labels[rows], (0, spare))
        weights = np.pad(np.ones(len(rows), "float32"), (0, spare))
        return ids, labels, weights

    def _padded(
        self, sequences: Sequence[Ids], rows: list[int], length: int
    ) -> np.ndarray:
        padded = np.full((self.batch_size, length), PAD, "int32")
        for place, row in enumerate(rows):
            padded[place, : len(sequences[row])] = sequences[row]
        return padded


def _by_token(labels: Sequence[Any] | None, lengths: list[int]) -> bool:
    """Whether `labels`, checked against `lengths`, has one for each token."""
    if labels is None:
        return False
    # None for a number
    found = [len(label) if np.ndim(label) else None for label in labels]
    by_token = any(n is not None for n in found)
    wanted = lengths if by_token else [None] * len(lengths)
    if found != wanted:
        wrong = [
            i for i, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b
        ]
        raise ValueError(
            message(
                "`labels` must have a number for each sequence, or for each a sequence "
                "of its length.",
                labels=len(found),
                sequences=len(lengths),
                wrong=wrong[:5],
            )
        )
    return by_token
