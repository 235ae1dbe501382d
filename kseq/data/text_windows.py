"""Random windows of one long text."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from kseq._checks import check_size, message


class TextWindows(keras.utils.PyDataset):
    """Batches of random windows of a text, with the next token as the label.

    Each batch is `(ids[s : s + length], ids[s + 1 : s + length + 1])`, two int32 arrays
    `(batch_size, length)`, where each row has a start s of its own, drawn evenly from
    all places that a window fits to. All batches have one shape: XLA makes one program.
    A batch is drawn from `seed`, the epoch and its number, whoever reads it and when.

    For evaluation, `rows = kseq.data.pack([ids], length)` covers the text once, in
    order: every token but the first is a label once in `rows.target_ids`.

    Args:
        ids: sequence of int, or int array `(n,)`. The text; none of the ids is 0.
        batch_size: int. Rows of every batch.
        length: int. T, tokens of a window.
        steps: int. Batches of an epoch.
        seed: int. Seed of the places. Defaults to `0`.
        **kwargs: `workers`, `use_multiprocessing` and `max_queue_size` of
            `keras.utils.PyDataset`.

    Raises:
        ValueError: `ids` must have rank 1 and more than `length` tokens.

    Example:

    >>> windows = TextWindows(range(3, 103), batch_size=2, length=5, steps=10)
    >>> inputs, labels = windows[0]
    >>> inputs.shape, bool((labels == inputs + 1).all()), len(windows)
    ((2, 5), True, 10)
    """

    def __init__(
        self,
        ids: Sequence[int] | np.ndarray,
        *,
        batch_size: int,
        length: int,
        steps: int,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.ids = np.asarray(ids, "int32")
        self.batch_size = check_size("batch_size", batch_size)
        self.length = check_size("length", length)
        self.steps = check_size("steps", steps)
        self.seed = seed
        if self.ids.ndim != 1 or len(self.ids) <= length:
            raise ValueError(
                message(
                    "`ids` must have rank 1 and more than `length` tokens.",
                    shape=self.ids.shape,
                    length=length,
                )
            )
        self._epoch = 0

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        generator = np.random.default_rng([self.seed, self._epoch, index])
        starts = generator.integers(len(self.ids) - self.length, size=self.batch_size)
        places = starts[:, None] + np.arange(self.length)  # (B, T)
        return self.ids[places], self.ids[places + 1]

    def on_epoch_end(self) -> None:
        """Draws other windows in the next epoch."""
        self._epoch += 1
