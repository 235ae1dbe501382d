"""Word and phoneme error rate against several right answers."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kseq._checks import message

Phones = Sequence[str]


@dataclass(frozen=True)
class ErrorRates:
    """Error rates as shares in [0, 1] (`phoneme` may pass 1) and the words counted."""

    word: float
    phoneme: float
    words: int

    def __str__(self) -> str:
        return (
            f"{self.words:,} words, word error rate {self.word:.2%}, "
            f"phoneme error rate {self.phoneme:.2%}"
        )


def pronunciation_error(
    hypotheses: Sequence[Phones], references: Sequence[Sequence[Phones]]
) -> ErrorRates:
    """Word and phoneme error rate, each word against its nearest reference.

    d_i = min_r edit_distance(hypothesis_i, r) over the references r of word i; among
    equals the shortest reference r_i counts.
    word = #{i : d_i > 0} / #words,  phoneme = sum_i d_i / sum_i len(r_i)

    Args:
        hypotheses: sequence of phone sequences, one for each distinct word.
        references: for each word, the sequence of its right pronunciations.

    Returns:
        `ErrorRates(word, phoneme, words)`.

    Raises:
        ValueError: there must be one hypothesis for each word, at least one word, and a
            reference with a phone for each word.
        ImportError: `rapidfuzz` must be installed.

    Example:

    >>> pronunciation_error([("K", "AE", "T")], [[("K", "AH", "T"), ("K", "AE")]])
    ErrorRates(word=1.0, phoneme=0.5, words=1)

    References:
        Bisani and Ney, 2008, "Joint-sequence models for grapheme-to-phoneme
        conversion", Speech Communication 50, section 5, whose scoring this is.
    """
    return _rates(_count(hypotheses, references))


def pronunciation_error_by_length(
    words: Sequence[str],
    hypotheses: Sequence[Phones],
    references: Sequence[Sequence[Phones]],
) -> dict[int, ErrorRates]:
    """The rates of `pronunciation_error` for the words of each length.

    Args:
        words: sequence of str. The spellings, one for each hypothesis.
        hypotheses: as in `pronunciation_error`.
        references: as in `pronunciation_error`.

    Returns:
        dict from word length in letters, ascending, to `ErrorRates`.
    """
    if len(words) != len(hypotheses):
        raise ValueError(
            message(
                "There must be one hypothesis for each word.",
                words=len(words),
                hypotheses=len(hypotheses),
            )
        )
    groups: dict[int, list[tuple[int, int]]] = defaultdict(list)
    counts = _count(hypotheses, references)
    for word, count in zip(words, counts, strict=True):
        groups[len(word)].append(count)
    return {length: _rates(groups[length]) for length in sorted(groups)}


def _count(
    hypotheses: Sequence[Phones], references: Sequence[Sequence[Phones]]
) -> list[tuple[int, int]]:
    """For each word the distance to the nearest reference and that one's length."""
    if len(hypotheses) != len(references) or not len(hypotheses):
        raise ValueError(
            message(
                "There must be one hypothesis for each word, and at least one word.",
                hypotheses=len(hypotheses),
                references=len(references),
            )
        )
    for index, known in enumerate(references):
        if not known or not all(known):
            raise ValueError(
                message(
                    "Each word must have a reference, and each reference a phone.",
                    word=index,
                    references=known,
                )
            )
    distance = _levenshtein()
    return [
        min((distance(hypothesis, reference), len(reference)) for reference in known)
        for hypothesis, known in zip(hypotheses, references, strict=True)
    ]


def _levenshtein() -> Callable[[Phones, Phones], int]:
    try:
        from rapidfuzz.distance import Levenshtein
    except ImportError as error:
        raise ImportError(
            "The error rates need the `rapidfuzz` package. "
            'Try: pip install "kseq[examples]"'
        ) from error
    return Levenshtein.distance


def _rates(counts: list[tuple[int, int]]) -> ErrorRates:
    return ErrorRates(
        word=sum(distance > 0 for distance, _ in counts) / len(counts),
        phoneme=sum(distance for distance, _ in counts) / sum(n for _, n in counts),
        words=len(counts),
    )
