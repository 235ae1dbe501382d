"""Sentence pairs of two languages, split by the first sentence."""

import hashlib
import unicodedata
import zipfile
from pathlib import Path
from typing import NamedTuple

from kseq._checks import message

SentencePair = tuple[str, str]
WHERE = "Such files are at https://www.manythings.org/anki (deu-eng.zip)."


class ParallelData(NamedTuple):
    """What `load_parallel` returns: `(source, target)` in the order of the file."""

    train: list[SentencePair]
    dev: list[SentencePair]
    test: list[SentencePair]


def load_parallel(path: str | Path) -> ParallelData:
    """Reads tab-separated sentence pairs and splits them by their first sentence.

    Each line is `source TAB target`; what a second tab begins, such as the attribution
    in the files of Tatoeba, is not read. Both sides are put into Unicode's NFC and
    stripped of white space at their ends, nothing else. Pairs that are there twice are
    kept once.

    With `h = int(sha256(source in UTF-8)[:8 hex digits], 16) % 100`, sources with h of
    0 or 1 are for test, 2 for dev, the others for train: 2 %, 1 % and 97 %. So all
    translations of a sentence are in one part, which does not change when the file
    grows. (A target may be in two parts, as the translation of two sources.)

    Args:
        path: str or Path. A text file in UTF-8, or a .zip that holds one (files whose
            names begin with `_` do not count).

    Returns:
        `ParallelData(train, dev, test)`.

    Raises:
        FileNotFoundError: `path` must be a file of sentence pairs, or a .zip of one.
        ValueError: a .zip must hold one text file; the text must be UTF-8; each line
            that is not blank must have two sentences with a tab between.

    References:
        Tatoeba, https://tatoeba.org, in the form of https://www.manythings.org/anki
    """
    parts = ParallelData([], [], [])
    for pair in _pairs(path):
        digest = hashlib.sha256(pair[0].encode("utf-8")).hexdigest()
        share = int(digest[:8], 16) % 100
        part = parts.test if share < 2 else parts.dev if share < 3 else parts.train
        part.append(pair)
    return parts


def _pairs(path: str | Path) -> list[SentencePair]:
    """Distinct pairs in the order of the file."""
    pairs: dict[SentencePair, None] = {}
    # not splitlines, which would break a line at U+2028 too
    for number, line in enumerate(_text(Path(path)).split("\n"), start=1):
        sides = [unicodedata.normalize("NFC", s).strip() for s in line.split("\t")[:2]]
        if not any(sides):
            continue
        if len(sides) < 2 or not all(sides):
            raise ValueError(
                message(
                    "Each line must have two sentences with a tab between.",
                    path=str(path),
                    line_number=number,
                    line=line[:80],
                    fix=WHERE,
                )
            )
        pairs[sides[0], sides[1]] = None
    return list(pairs)


def _text(path: Path) -> str:
    if not path.is_file():
        raise FileNotFoundError(
            message(
                "`path` must be a text file of sentence pairs, or a .zip of one.",
                path=str(path),
                fix=WHERE,
            )
        )
    data = _unzipped(path) if path.suffix == ".zip" else path.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            message(
                "The sentence pairs must be a text in UTF-8.",
                path=str(path),
                fix=WHERE,
            )
        ) from error


def _unzipped(path: Path) -> bytes:
    if not zipfile.is_zipfile(path):
        raise ValueError(message("`path` is no zip file.", path=str(path), fix=WHERE))
    with zipfile.ZipFile(path) as archive:
        texts = [
            name
            for name in archive.namelist()
            if name.endswith((".txt", ".tsv")) and not Path(name).name.startswith("_")
        ]
        if len(texts) != 1:
            raise ValueError(
                message(
                    "The .zip must hold one text file, a .txt or a .tsv.",
                    path=str(path),
                    files=archive.namelist(),
                    fix=WHERE,
                )
            )
        return archive.read(texts[0])
