"""Byte-pair encoding: sub-words learned from a text."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import keras

from kseq._checks import check_size, message
from kseq.data.vocabulary import END, MARKS, PAD, START

SMALLEST = len(MARKS) + 256


@keras.saving.register_keras_serializable(package="kseq")
class BytePairTokenizer:
    """Maps text to ids of sub-words and back, for any text and without loss.

    Ids 0, 1 and 2 are padding, start and end; id 3 + b is byte b of the UTF-8 text; the
    merges follow in the order in which they were learned. A text is cut into words,
    numbers, signs and spaces by GPT-2's pattern, a space going with the word behind it;
    in each piece the pair of neighbors that was learned first is joined, again and
    again. `decode(encode(text)) == text`, whatever the text: nothing is normalized,
    nothing is unknown, and text that looks like a mark (`</s>`) is text.

    Args:
        merges: sequence of `(left, right)` in the order learned, each made of bytes
            and of what was joined before. Bytes are written as the letters that GPT-2's
            vocabulary files have for them (a space is `Ġ`). `train` finds the merges.

    Raises:
        ValueError: a merge must join two pieces that are known before it.
        ImportError: the `tokenizers` package must be installed.

    Example:

    >>> lines = ["low lower lowest", "new newer newest"]
    >>> tokenizer = kseq.data.BytePairTokenizer.train(lines, vocabulary_size=267)
    >>> ids = tokenizer.encode("newest low")
    >>> tokenizer.tokens(ids)
    ['ne', 'west', '·lo', 'w']
    >>> tokenizer.decode([1, *ids, 2, 0])
    'newest low'

    References:
        Sennrich et al., 2016, "Neural machine translation of rare words with subword
        units", arXiv:1508.07909.
        Radford et al., 2019, "Language models are unsupervised multitask learners",
        section 2.2 (bytes).
    """

    def __init__(self, merges: Sequence[tuple[str, str]]) -> None:
        self.merges = tuple((left, right) for left, right in merges)
        ids = {letter: byte for byte, letter in enumerate(_letters())}
        for left, right in self.merges:
            if left not in ids or right not in ids:
                raise ValueError(
                    message(
                        "A merge must join two pieces that are known before it.",
                        merge=(left, right),
                    )
                )
            # two merges may give one piece: a+bc and ab+c
            ids.setdefault(left + right, len(ids))
        byte = {letter: bytes([i]) for i, letter in enumerate(_letters())}
        self._pieces = [b"".join(byte[letter] for letter in piece) for piece in ids]
        self._encoder = _encoder(ids, self.merges)

    @classmethod
    def train(cls, lines: Iterable[str], vocabulary_size: int) -> "BytePairTokenizer":
        """Learns merges: the most frequent pair is joined until the size is reached.

        Pairs that are seen once are not joined, so a short text gives a smaller
        vocabulary. The same lines, in any order, give the same merges.

        Args:
            lines: iterable of str, such as an open file.
            vocabulary_size: int, at least 259: marks and bytes.

        Returns:
            `BytePairTokenizer`.

        Raises:
            ValueError: `vocabulary_size` must have room for 3 marks and 256 bytes.
            TypeError: `lines` must be an iterable of texts, not one text.
            ImportError: the `tokenizers` package must be installed.
        """
        if check_size("vocabulary_size", vocabulary_size) < SMALLEST:
            raise ValueError(
                message(
                    "`vocabulary_size` must have room for 3 marks and 256 bytes.",
                    vocabulary_size=vocabulary_size,
                    fix=f"It must be at least {SMALLEST}.",
                )
            )
        if isinstance(lines, str):
            raise TypeError(
                message(
                    "`lines` must be an iterable of texts, not one text.",
                    lines=lines[:20],
                    fix="Try lines=text.splitlines().",
                )
            )
        library = _library()
        learner = _encoder({}, ())
        learner.train_from_iterator(
            lines,
            library.trainers.BpeTrainer(
                vocab_size=vocabulary_size - len(MARKS),
                min_frequency=2,
                initial_alphabet=_letters(),
                show_progress=False,
            ),
        )
        return cls(json.loads(learner.to_str())["model"]["merges"])

    def __len__(self) -> int:
        return len(MARKS) + len(self._pieces)

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, with no start or end id added.

        Args:
            text: str.

        Returns:
            list of int.

        Raises:
            TypeError: `text` must be a str.
            ValueError: `text` must be Unicode, without surrogates.
        """
        if not isinstance(text, str):
            raise TypeError(message("`text` must be a str.", text=text))
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise ValueError(
                message("`text` must be Unicode, without surrogates.", text=text)
            )
        return [len(MARKS) + index for index in self._encoder.encode(text).ids]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of `ids` up to the first end id; padding and start are skipped.

        Args:
            ids: iterable of int, such as one row of what a model generates.

        Returns:
            str. Bytes that are no UTF-8, which a model may generate, become `\ufffd`.

        Raises:
            ValueError: an id before the end mark must be in [0, size).
        """
        pieces = []
        for index in map(int, ids):
            if index == END:
                break
            if index not in (PAD, START):
                pieces.append(self._piece(index))
        return b"".join(pieces).decode("utf-8", errors="replace")

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """What each id stands for, to be read, as the labels of an attention map.

        Args:
            ids: iterable of int.

        Returns:
            list of str, one for each id, the marks too. A space is `·`; bytes that are
            no letter by themselves are written `<0x0A>`.

        Raises:
            ValueError: an id must be in [0, size).
        """
        return [
            MARKS[i] if 0 <= i < len(MARKS) else _readable(self._piece(i))
            for i in map(int, ids)
        ]

    def save(self, path: str | Path) -> None:
        """Writes the merges as a JSON list of pairs."""
        text = json.dumps(self.merges, ensure_ascii=False)
        Path(path).write_text(text, encoding="utf-8")

    def get_config(self) -> dict[str, Any]:
        """What makes the like, so that Keras saves it with a model."""
        return {"merges": [list(pair) for pair in self.merges]}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "BytePairTokenizer":
        """What `get_config` describes."""
        return cls(**config)

    @classmethod
    def load(cls, path: str | Path) -> "BytePairTokenizer":
        """Reads what `save` wrote."""
        return cls(json.loads(Path(path).read_text(encoding="utf-8")))

    def _piece(self, index: int) -> bytes:
        if not len(MARKS) <= index < len(self):
            raise ValueError(
                message("An id must be in [0, size).", id=index, size=len(self))
            )
        return self._pieces[index - len(MARKS)]


def _letters() -> list[str]:
    """A printable letter for each byte, that of GPT-2's vocabulary files."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b if b in printable else next(others)) for b in range(256)]


def _readable(piece: bytes) -> str:
    try:
        text = piece.decode("utf-8").replace(" ", "·")
    except UnicodeDecodeError:
        text = ""
    if text.isprintable() and text:
        return text
    return "".join(f"<0x{byte:02X}>" for byte in piece)


def _encoder(ids: dict[str, int], merges: Sequence[tuple[str, str]]) -> Any:
    library = _library()
    encoder = library.Tokenizer(library.models.BPE(vocab=ids, merges=list(merges)))
    encoder.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return encoder


def _library() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError(
            "`BytePairTokenizer` needs the `tokenizers` package. "
            'Try: pip install "kseq[examples]"'
        ) from error
    return tokenizers
