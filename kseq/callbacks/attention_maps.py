"""Pictures of what a model attends to, epoch by epoch."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from kseq._checks import check_size, message
from kseq.callbacks.chosen_layers import chosen_layers
from kseq.callbacks.event_callback import EventCallback
from kseq.diagnostics.attention_maps import AttentionProbe
from kseq_tensorboard.records import pack

Tokens = Sequence[Sequence[str]]
# characters by which the dashboard's menu names an example
_LABEL = 40


class AttentionMaps(EventCallback):
    """Writes the attention of each layer for TensorBoard, epoch by epoch.

    The model runs on one fixed batch, as in inference and in a function of its own,
    so training is the same with and without this callback. The dashboard
    **Sequences**, which comes with kseq, shows the weights of every layer, head and
    example. For those who have TensorBoard alone, its page Images has a picture of
    each example: queries down, keys across, the weight as color, the mean over heads
    where there are several, tagged `attention/<layer path>/<number of the example>`.
    The step of all is `optimizer.iterations`.

    The weights are kept in float16: 2 bytes times heads, queries and keys for each
    layer, example and record, so 262 kB for 8 heads over 128 tokens, and 4.2 MB for
    512. TensorBoard holds up to 50 records of each layer in memory;
    `--samples_per_plugin=kseq_attention=10` makes that 10.

    A model whose layers attend over different sequences takes one callback for each
    kind, told apart by `layers`: they write to the same file.

    Args:
        log_dir: the `log_dir` of `keras.callbacks.TensorBoard`, a local directory.
            The records go to `<log_dir>/kseq`.
        probe: one small batch of inputs, as `model.predict` takes it: an array, or a
            list or dictionary of arrays.
        query_tokens: for each example of the batch, the strings of its query
            positions, without padding: rows after the last one are left out. None
            numbers all positions. Defaults to `None`.
        key_tokens: the same for the key positions. Defaults to `None`.
        layers: parts of layer paths; a layer is drawn if its path holds one of them.
            None draws all. Defaults to `None`.
        every: int. Epochs from one record to the next. Defaults to `1`.
        max_tokens: int. Queries and keys past this many are left out of the weights
            for the dashboard; the pictures have them all. Defaults to `128`.
        font: path of a TrueType font, for scripts that Pillow's own font lacks.

    Raises:
        ImportError: if `tensorboard` is not installed.
        TypeError: when training begins, if `layers` or the tokens are no strings.
        ValueError: when training begins, if the model is not built, no layer records
            its attention, none matches `layers`, or the tokens do not fit the batch;
            at once, if `font` is no file.

    Example:

    >>> import os, tempfile
    >>> model = kseq.models.RecurrentSeq2Seq(9, 9, embedding_dim=4, units=4)
    >>> model.compile("sgd", kseq.training.MaskedCrossentropy())
    >>> x = {"source_ids": np.array([[3, 4, 2]]), "target_ids": np.array([[1, 5]])}
    >>> y = np.array([[5, 2]])
    >>> with tempfile.TemporaryDirectory() as log_dir:
    ...     callback = kseq.callbacks.AttentionMaps(
    ...         log_dir, x, query_tokens=[["N", "."]], key_tokens=[["k", "n", "."]])
    ...     history = model.fit(x, y, verbose=0, callbacks=[callback])
    ...     os.listdir(log_dir)
    ['kseq']
    """

    def __init__(
        self,
        log_dir: str | os.PathLike,
        probe: Any,
        query_tokens: Tokens | None = None,
        key_tokens: Tokens | None = None,
        *,
        layers: Sequence[str] | None = None,
        every: int = 1,
        max_tokens: int = 128,
        font: str | None = None,
    ) -> None:
        super().__init__(log_dir, every=every)
        self.probe = probe
        self.query_tokens = query_tokens
        self.key_tokens = key_tokens
        self.layers = layers
        self.max_tokens = check_size("max_tokens", max_tokens)
        if font is not None and not os.path.isfile(font):
            raise ValueError(message("`font` must be the path of a file.", font=font))
        self.font = font

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._measure = AttentionProbe(self.model)
        # a wrong list of tokens is found now, not after the first epoch
        for name, weights in self._maps().items():
            self._tokens("query_tokens", name, weights, axis=-2)
            self._tokens("key_tokens", name, weights, axis=-1)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if (epoch + 1) % self.every:
            return
        # Pillow comes with tensorboard, which kseq does without elsewhere
        from kseq.callbacks.attention_picture import AttentionPanel, attention_png

        step = int(self.model.optimizer.iterations)
        for order, (name, weights) in enumerate(self._maps().items()):
            queries = self._tokens("query_tokens", name, weights, axis=-2)
            keys = self._tokens("key_tokens", name, weights, axis=-1)
            self.writer.blobs(
                f"attention_weights/{name}",
                [
                    _record(*example, epoch + 1, self.max_tokens)
                    for example in zip(weights, queries, keys, strict=True)
                ],
                step,
                plugin="kseq_attention",
                content={
                    "v": 1,
                    "layer": name,
                    "order": order,
                    "heads": weights.shape[1] if weights.ndim == 4 else 1,
                    "examples": [" ".join(tokens)[:_LABEL] for tokens in keys],
                },
            )
            mean = weights.mean(axis=1) if weights.ndim == 4 else weights
            examples = zip(mean, queries, keys, strict=True)
            for number, example in enumerate(examples, start=1):
                panel = AttentionPanel(f"example {number}", *example)
                png = attention_png(panel, self.font)
                self.writer.image(f"attention/{name}/{number}", png, step)
        self.writer.flush()

    def _maps(self) -> dict[str, np.ndarray]:
        return chosen_layers(self._measure(self.probe), self.layers)

    def _tokens(
        self, argument: str, layer: str, weights: np.ndarray, axis: int
    ) -> Tokens:
        """The tokens along one axis of `weights`, one list per example."""
        tokens: Tokens | None = getattr(self, argument)
        examples, length = weights.shape[0], weights.shape[axis]
        if tokens is None:
            return [[str(position) for position in range(length)]] * examples
        strings = [isinstance(t, str) for example in tokens for t in example]
        if not all(strings):
            raise TypeError(message(f"`{argument}` must hold strings.", tokens=tokens))
        sizes = [len(example) for example in tokens]
        if len(sizes) != examples:
            raise ValueError(
                message(
                    f"`{argument}` must hold one list of strings per example of "
                    "`probe`.",
                    lists=len(sizes),
                    examples=examples,
                )
            )
        if not all(0 < size <= length for size in sizes):
            raise ValueError(
                message(
                    f"Each list of `{argument}` must have from 1 to as many tokens as "
                    "the attention has positions.",
                    fix="Leave padding out; if this layer attends over another "
                    "sequence, choose others by `layers`.",
                    layer=layer,
                    tokens=sizes,
                    positions=length,
                )
            )
        return tokens


def _record(
    weights: np.ndarray,
    queries: Sequence[str],
    keys: Sequence[str],
    epoch: int,
    max_tokens: int,
) -> bytes:
    """One example for the dashboard: `weights` of shape `(T, S)` or `(H, T, S)`."""
    rows, columns = (min(len(tokens), max_tokens) for tokens in (queries, keys))
    if weights.ndim == 2:
        kind = "alignment"
    else:
        kind = "self" if list(queries) == list(keys) else "cross"
    heads = weights.reshape(-1, *weights.shape[-2:])[:, :rows, :columns]
    header = {
        "kind": kind,
        "epoch": epoch,
        "queries": list(queries[:rows]),
        "keys": list(keys[:columns]),
        "left_out": [len(queries) - rows, len(keys) - columns],
    }
    return pack(heads.astype("float16"), header)
