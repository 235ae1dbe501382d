"""What the callbacks that write for TensorBoard have in common."""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from kseq._checks import check_size

if TYPE_CHECKING:
    from kseq.callbacks.event_writer import EventWriter


class EventCallback(keras.callbacks.Callback):
    """Holds the event writer of `<log_dir>/kseq` while the model trains.

    Args:
        log_dir: the `log_dir` of `keras.callbacks.TensorBoard`, a local
            directory. The records go to its subdirectory `kseq`, a run of its own
            beside Keras's `train` and `validation`.
        every: int. How often a record is written; the subclass says in what.

    Raises:
        ImportError: if `tensorboard` is not installed.
    """

    def __init__(self, log_dir: str | os.PathLike, *, every: int = 1) -> None:
        # imported here, so that kseq works where tensorboard is not installed
        from kseq.callbacks.event_writer import open_event_writer

        super().__init__()
        self.log_dir = Path(log_dir)
        self.every = check_size("every", every)
        self._open_writer = partial(open_event_writer, self.log_dir / "kseq")
        self._writer: EventWriter | None = None

    @property
    def writer(self) -> "EventWriter":
        """The writer; opened at the first use, closed by `on_train_end`."""
        if self._writer is None:
            self._writer = self._open_writer()
        return self._writer

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
