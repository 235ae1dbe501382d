"""What each attention head looks at, as curves over the training."""

import os
from collections.abc import Sequence
from typing import Any

from kseq.callbacks.chosen_layers import chosen_layers
from kseq.callbacks.event_callback import EventCallback
from kseq.diagnostics import AttentionProbe, HeadStatistics, head_statistics


class AttentionStatistics(EventCallback):
    """Writes statistics of each attention head for TensorBoard's Scalars page.

    The model runs on one fixed batch, as in inference and in a function of its own.
    What is written is what `kseq.diagnostics.head_statistics` finds, a curve for each
    layer, statistic and head: a head whose entropy falls to 0 has collapsed onto one
    key, one whose weight on the first key goes to 1 does nothing, and weight on padding
    is a fault. The tag is `attention_statistics/<layer path>/<statistic>/<head>`, the
    step `optimizer.iterations`.

    A model whose layers attend over different sequences takes one callback for each
    kind, told apart by `layers`: they write to the same file.

    Args:
        log_dir: the `log_dir` of `keras.callbacks.TensorBoard`, a local directory.
            The records go to `<log_dir>/kseq`.
        probe: one small batch of inputs, as `model.predict` takes it.
        query_mask: bool `(B, T)`. True is a real query. None takes all. Defaults to
            `None`.
        key_mask: bool `(B, S)`. True is a real key. None takes all. Defaults to `None`.
        layers: parts of layer paths; a layer counts if its path holds one of them. None
            takes all. Defaults to `None`.
        every: int. Epochs from one record to the next. Defaults to `1`.

    Raises:
        ImportError: if `tensorboard` is not installed.
        ValueError: when training begins, if no layer records its attention, none
            matches `layers`, or the masks do not fit.

    Example:

    >>> import os, tempfile
    >>> model = kseq.models.TransformerLM(
    ...     vocabulary_size=9, num_layers=1, hidden_dim=8, num_heads=2)
    >>> model.compile("sgd", kseq.training.MaskedCrossentropy())
    >>> ids = np.array([[3, 4, 5, 0]])
    >>> with tempfile.TemporaryDirectory() as log_dir:
    ...     callback = kseq.callbacks.AttentionStatistics(
    ...         log_dir, ids, query_mask=ids != 0, key_mask=ids != 0)
    ...     history = model.fit(ids, ids, verbose=0, callbacks=[callback])
    ...     os.listdir(log_dir)
    ['kseq']
    """

    def __init__(
        self,
        log_dir: str | os.PathLike,
        probe: Any,
        *,
        query_mask: Any = None,
        key_mask: Any = None,
        layers: Sequence[str] | None = None,
        every: int = 1,
    ) -> None:
        super().__init__(log_dir, every=every)
        self.probe = probe
        self.query_mask = query_mask
        self.key_mask = key_mask
        self.layers = layers

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._measure = AttentionProbe(self.model)
        self._statistics()  # a wrong mask is found now, not after the first epoch

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if (epoch + 1) % self.every:
            return
        values = {
            f"attention_statistics/{layer}/{name}/{head}": float(value)
            for layer, statistics in self._statistics().items()
            for name, heads in statistics._asdict().items()
            for head, value in enumerate(heads)
        }
        self.writer.scalars(values, int(self.model.optimizer.iterations))
        self.writer.flush()

    def _statistics(self) -> dict[str, HeadStatistics]:
        masks = {"query_mask": self.query_mask, "key_mask": self.key_mask}
        maps = chosen_layers(self._measure(self.probe), self.layers)
        return {name: head_statistics(w, **masks) for name, w in maps.items()}
