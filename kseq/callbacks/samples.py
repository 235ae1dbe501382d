"""What a model makes of some examples, epoch by epoch."""

import html
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kseq._checks import message
from kseq.callbacks.event_callback import EventCallback

Texts = Sequence[str]
# what Markdown would read as more than itself
_MARKUP = re.compile(r"([\\`*_{}\[\]()#+\-.!|~])")


class Samples(EventCallback):
    """Writes decoded examples as a table for TensorBoard's Text page.

    A row for each example: its source, the reference and what the model says, which
    `generate` finds, so with the decoding that the model is used with. The tag is
    `samples`, the step `optimizer.iterations`. Each metric of all examples together
    stands above the table and is a curve of its own, `samples/<name>`.

    Args:
        log_dir: the `log_dir` of `keras.callbacks.TensorBoard`, a local directory.
            The records go to `<log_dir>/kseq`.
        sources: the inputs of the examples, as strings.
        references: as many right answers.
        generate: function from `sources` to the model's answers, as strings. It runs at
            the end of an epoch.
        metrics: name -> function from the answers and the references to a float. None
            is none. Defaults to `None`.
        every: int. Epochs from one table to the next. Defaults to `1`.

    Raises:
        ImportError: if `tensorboard` is not installed.
        ValueError: `` `references` must hold as many strings as `sources`... ``; at the
            end of an epoch, `` `generate` must return as many strings... ``

    Example:

    >>> import os, tempfile
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> x = y = np.ones((2, 1))
    >>> with tempfile.TemporaryDirectory() as log_dir:
    ...     callback = kseq.callbacks.Samples(
    ...         log_dir, ["Hund", "Katze"], ["dog", "cat"],
    ...         generate=lambda sources: ["dog"] * len(sources),
    ...         metrics={"found": lambda a, r: len(set(a) & set(r)) / len(r)})
    ...     history = model.fit(x, y, verbose=0, callbacks=[callback])
    ...     os.listdir(log_dir)
    ['kseq']
    """

    def __init__(
        self,
        log_dir: str | os.PathLike,
        sources: Texts,
        references: Texts,
        generate: Callable[[Texts], Texts],
        *,
        metrics: Mapping[str, Callable[[Texts, Texts], float]] | None = None,
        every: int = 1,
    ) -> None:
        super().__init__(log_dir, every=every)
        for name, texts in (("sources", sources), ("references", references)):
            _check_texts(name, texts)
        if len(sources) != len(references) or not len(sources):
            raise ValueError(
                message(
                    "`references` must hold as many strings as `sources`, and one at "
                    "least.",
                    sources=len(sources),
                    references=len(references),
                )
            )
        self.sources = list(sources)
        self.references = list(references)
        self.generate = generate
        self.metrics = dict(metrics or {})

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if (epoch + 1) % self.every:
            return
        answers = self.generate(self.sources)
        _check_texts("generate", answers)
        if len(answers) != len(self.sources):
            raise ValueError(
                message(
                    "`generate` must return as many strings as it is given.",
                    given=len(self.sources),
                    returned=len(answers),
                )
            )
        found = {
            name: float(metric(answers, self.references))
            for name, metric in self.metrics.items()
        }
        step = int(self.model.optimizer.iterations)
        rows = zip(self.sources, self.references, answers, strict=True)
        scores = ", ".join(
            f"{_escaped(name)} {value:.4g}" for name, value in found.items()
        )
        title = f"Epoch {epoch + 1}" + (f": {scores}" if scores else "")
        table = _table(["source", "reference", "answer"], list(rows))
        self.writer.text("samples", f"{title}\n\n{table}", step)
        self.writer.scalars({f"samples/{name}": v for name, v in found.items()}, step)
        self.writer.flush()


def _check_texts(name: str, texts: Any) -> None:
    """Refuses what is no list of strings; of `generate` that is what it returned."""
    strings = isinstance(texts, Sequence) and not isinstance(texts, str)
    if not (strings and all(isinstance(text, str) for text in texts)):
        raise TypeError(message(f"`{name}` must be a list of strings.", texts=texts))


def _table(header: Texts, rows: Sequence[Texts]) -> str:
    """A table in Markdown, whose cells show the strings as they are."""
    lines = [header, ["---"] * len(header)]
    lines += [[_escaped(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escaped(text: str) -> str:
    escaped = _MARKUP.sub(r"\\\1", html.escape(text, quote=False))
    return "<br>".join(escaped.splitlines())
