"""How far the gradient of a model reaches, epoch by epoch."""

import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from kseq._checks import message
from kseq.callbacks.event_callback import EventCallback
from kseq.diagnostics import DepthGradientProbe, TimeGradientProbe

_PLUGIN = "kseq_through_time"


class GradientFlow(EventCallback):
    """Writes the gradient through time and by depth for the dashboard **Sequences**.

    On one fixed batch, as in inference and in a function of its own, so training is the
    same with and without this callback. What is written is what
    `kseq.diagnostics` finds: for each state of each recurrent layer the norm of dL/dh_t
    at every step t (`gradient_through_time`), for a simple RNN with the bound that
    its recurrent weights set; and the norm of the gradient after each
    Transformer block (`gradient_by_depth`), one number a block. A record has 4 bytes a
    step or block and about 100 more; its step is `optimizer.iterations`.

    Args:
        log_dir: the `log_dir` of `keras.callbacks.TensorBoard`, a local directory.
            The records go to `<log_dir>/kseq`.
        probe_x: one small batch of inputs, as `model.fit` takes it.
        probe_y: its targets.
        layers: layers for the curve by depth, in a model whose blocks are not those of
            kseq. None takes these. Defaults to `None`.
        every: int. Epochs from one record to the next. Defaults to `1`.

    Raises:
        ImportError: if `tensorboard` is not installed.
        ValueError: when training begins, if the model has neither recurrent layers nor
            Transformer blocks of kseq, and `layers` is None.

    Example:

    >>> import os, tempfile
    >>> model = keras.Sequential([keras.Input((6, 3)), kseq.layers.GRU(4)])
    >>> model.compile("sgd", "mse")
    >>> x, y = np.ones((2, 6, 3)), np.ones((2, 4))
    >>> with tempfile.TemporaryDirectory() as log_dir:
    ...     callback = kseq.callbacks.GradientFlow(log_dir, x, y)
    ...     history = model.fit(x, y, verbose=0, callbacks=[callback])
    ...     os.listdir(log_dir)
    ['kseq']
    """

    def __init__(
        self,
        log_dir: str | os.PathLike,
        probe_x: Any,
        probe_y: Any,
        *,
        layers: Sequence[keras.Layer] | None = None,
        every: int = 1,
    ) -> None:
        super().__init__(log_dir, every=every)
        self.probe_x = probe_x
        self.probe_y = probe_y
        self.layers = layers

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        batch = self.probe_x, self.probe_y
        self._through_time = TimeGradientProbe(self.model, *batch)
        self._by_depth = DepthGradientProbe(self.model, *batch, layers=self.layers)
        if not self._through_time() and not self._by_depth():
            raise ValueError(
                message(
                    "`model` must hold recurrent layers or Transformer blocks of kseq, "
                    "or `layers` must be given.",
                    model=self.model.name,
                )
            )

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if (epoch + 1) % self.every:
            return
        for name, (norms, bound) in self._through_time().items():
            rows = norms if bound is None else np.stack([norms, bound])
            self._write(name, rows, "time")
        depth = [np.linalg.norm(norms) for norms in self._by_depth().values()]
        if depth:
            self._write("depth", np.array(depth), "depth")
        self.writer.flush()

    def _write(self, name: str, rows: np.ndarray, kind: str) -> None:
        self.writer.tensor(
            f"through_time/{name}",
            rows,
            int(self.model.optimizer.iterations),
            plugin=_PLUGIN,
            content={"v": 1, "kind": kind, "label": name},
        )
