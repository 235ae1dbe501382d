"""A two-way table between symbols and token ids."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import keras

from kseq._checks import message

PAD, START, END = 0, 1, 2
MARKS = ("<pad>", "<s>", "</s>")


@keras.saving.register_keras_serializable(package="kseq")
class Vocabulary:
    """Maps symbols to token ids and back.

    Ids 0, 1 and 2 are padding, start and end; the symbols follow in the order given.

    Args:
        tokens: iterable of str. The symbols, without repeats and without the three
            marks `<pad>`, `<s>` and `</s>`.

    Raises:
        ValueError: `tokens` must be distinct, and none of them a mark.

    Example:

    >>> letters = Vocabulary("abc")
    >>> letters.encode("cab")
    [5, 3, 4]
    >>> letters.decode([1, 5, 3, 4, 2, 0])
    ['c', 'a', 'b']
    >>> len(letters)
    6
    """

    def __init__(self, tokens: Iterable[str]) -> None:
        self.tokens = (*MARKS, *tokens)
        self._ids = {token: index for index, token in enumerate(self.tokens)}
        if len(self._ids) != len(self.tokens):
            repeated = sorted({t for t in self.tokens if self.tokens.count(t) > 1})
            raise ValueError(
                message(
                    "`tokens` must be distinct and must not hold the marks "
                    "'<pad>', '<s>', '</s>'.",
                    repeated=repeated,
                )
            )

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, symbols: Iterable[str]) -> list[int]:
        """Ids of `symbols`, with no start or end id added.

        Args:
            symbols: iterable of str; a plain string is read letter by letter.

        Returns:
            list of int, one id for each symbol.

        Raises:
            ValueError: `symbols` must be in the vocabulary.
        """
        symbols = list(symbols)
        unknown = sorted({symbol for symbol in symbols if symbol not in self._ids})
        if unknown:
            raise ValueError(
                message(
                    "`symbols` must be in the vocabulary.",
                    unknown=unknown,
                    symbols=symbols,
                    fix=f"It knows {' '.join(self.tokens[len(MARKS) :])}.",
                )
            )
        return [self._ids[symbol] for symbol in symbols]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Symbols of `ids` up to the first end id; padding and start are skipped.

        Args:
            ids: iterable of int, such as one row of what a model generates.

        Returns:
            list of str.

        Raises:
            ValueError: an id before the end mark must be in [0, size).
        """
        symbols = []
        for index in map(int, ids):
            if index == END:
                break
            if not 0 <= index < len(self):
                raise ValueError(
                    message("An id must be in [0, size).", id=index, size=len(self))
                )
            if index not in (PAD, START):
                symbols.append(self.tokens[index])
        return symbols

    def save(self, path: str | Path) -> None:
        """Writes the symbols, without the marks, as a JSON list."""
        text = json.dumps(self.tokens[len(MARKS) :], ensure_ascii=False)
        Path(path).write_text(text, encoding="utf-8")

    def get_config(self) -> dict[str, Any]:
        """What makes the like, so that Keras saves it with a model."""
        return {"tokens": list(self.tokens[len(MARKS) :])}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Vocabulary":
        """What `get_config` describes."""
        return cls(**config)

    @classmethod
    def load(cls, path: str | Path) -> "Vocabulary":
        """Reads what `save` wrote."""
        return cls(json.loads(Path(path).read_text(encoding="utf-8")))
