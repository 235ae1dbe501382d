"""BLEU and chrF against several right translations."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from kseq._checks import check_size, message


@dataclass(frozen=True)
class TranslationScore:
    """BLEU and chrF, both in [0, 100], with what sacrebleu says of their computation.

    The signatures belong beside the figures wherever these are printed.
    """

    bleu: float
    chrf: float
    sentences: int
    bleu_signature: str
    chrf_signature: str

    def __str__(self) -> str:
        noun = "sentence" if self.sentences == 1 else "sentences"
        return f"{self.sentences:,} {noun}, BLEU {self.bleu:.1f}, chrF {self.chrf:.1f}"


def translation_score(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> TranslationScore:
    """BLEU and chrF of a corpus, each sentence with any number of references.

    BLEU = 100 min(1, exp(1 - r / h)) (p_1 p_2 p_3 p_4)^(1/4)

    p_n is the share of the n-grams of all hypotheses that stand in a reference of
    their sentence, h the hypotheses' length in tokens, r that of the references
    nearest in length. chrF is the F2 score of character n-grams up to 6, against the
    reference that gives the most. Both are sacrebleu's, with its defaults: case
    counts, texts are plain, not tokenized (`sacrebleu` does that, by "13a").

    Args:
        hypotheses: sequence of str, one for each source sentence.
        references: for each of them, the sequence of its right translations.

    Returns:
        `TranslationScore(bleu, chrf, sentences, bleu_signature, chrf_signature)`.

    Raises:
        ValueError: there must be one hypothesis for each sentence, at least one
            sentence, and a reference for each sentence.
        ImportError: `sacrebleu` must be installed.

    Example:

    >>> score = translation_score(
    ...     ["Das ist ein Buch."], [["Es ist ein Buch.", "Das ist ein Buch."]])
    >>> print(score)
    1 sentence, BLEU 100.0, chrF 100.0

    References:
        Papineni et al., 2002, "BLEU: a method for automatic evaluation of machine
        translation", ACL; Popovic, 2015, "chrF: character n-gram F-score for automatic
        MT evaluation", WMT; Post, 2018, "A call for clarity in reporting BLEU scores",
        arXiv:1804.08771, for the signatures.
    """
    _check(hypotheses, references)
    metrics = _metrics()
    # a stream holds one reference of each sentence; None where a sentence has fewer
    streams = [list(stream) for stream in zip_longest(*references)]
    scores = [metric.corpus_score(list(hypotheses), streams) for metric in metrics]
    signatures = [str(metric.get_signature()) for metric in metrics]
    return TranslationScore(
        bleu=scores[0].score,
        chrf=scores[1].score,
        sentences=len(hypotheses),
        bleu_signature=signatures[0],
        chrf_signature=signatures[1],
    )


def translation_score_by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    num_groups: int = 10,
) -> dict[tuple[int, int], TranslationScore]:
    """The scores of `translation_score` for short, longer and the longest sources.

    The sentences are cut by the quantiles of their lengths. Sentences of one length
    stay together, so there may be fewer groups, and the longest is at most its share.

    Args:
        sources: sequence of str, one for each hypothesis; their lengths are counted in
            words, between white space.
        hypotheses: as in `translation_score`.
        references: as in `translation_score`.
        num_groups: int. Groups to cut into. Defaults to `10`.

    Returns:
        dict from `(fewest, most)` words, ascending, to `TranslationScore`.
    """
    check_size("num_groups", num_groups)
    if len(sources) != len(hypotheses):
        raise ValueError(
            message(
                "There must be one hypothesis for each source.",
                sources=len(sources),
                hypotheses=len(hypotheses),
            )
        )
    _check(hypotheses, references)
    lengths = np.array([len(source.split()) for source in sources])
    shares = np.arange(1, num_groups + 1) / num_groups
    bounds = np.unique(np.quantile(lengths, shares, method="inverted_cdf"))
    groups = np.searchsorted(bounds, lengths)
    table = {}
    for group in range(len(bounds)):
        members = np.flatnonzero(groups == group).tolist()
        fewest, most = int(lengths[members].min()), int(lengths[members].max())
        table[fewest, most] = translation_score(
            [hypotheses[i] for i in members], [references[i] for i in members]
        )
    return table


def _check(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    if len(hypotheses) != len(references) or not len(hypotheses):
        raise ValueError(
            message(
                "There must be one hypothesis for each sentence, and at least one "
                "sentence.",
                hypotheses=len(hypotheses),
                references=len(references),
            )
        )
    for index, known in enumerate(references):
        if isinstance(known, str) or not known:
            raise ValueError(
                message(
                    "Each sentence must have a sequence of references, at least one.",
                    sentence=index,
                    references=known,
                )
            )


def _metrics() -> tuple[Any, Any]:
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError as error:
        raise ImportError(
            "BLEU and chrF need the `sacrebleu` package. "
            'Try: pip install "kseq[examples]"'
        ) from error
    return BLEU(), CHRF()
