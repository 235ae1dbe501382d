"""BLEU and chrF, worked by hand."""

import sys
from math import exp

import pytest

from kseq.data import translation_score, translation_score_by_length

HYPOTHESIS, REFERENCE = "the cat sat on mat", "the cat sat on the mat"
# 5 of 5 words, 3 of 4 pairs, 2 of 3 and 1 of 2 stand in the reference of 6 words
BLEU = 100 * exp(1 - 6 / 5) * (5 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** (1 / 4)


def test_bleu_by_hand():
    score = translation_score([HYPOTHESIS], [[REFERENCE]])
    assert score.bleu == pytest.approx(BLEU)
    assert str(score) == f"1 sentence, BLEU {BLEU:.1f}, chrF {score.chrf:.1f}"
    assert score.bleu_signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth")


def test_chrf_by_hand():
    # of "ab" both letters and the pair are right; of "abc" 2 of 3, 1 of 2, and there is
    # no trigram in "ab" to count
    recall = (2 / 3 + 1 / 2) / 2
    expected = 100 * (1 + 2**2) * recall / (2**2 + recall)
    score = translation_score(["ab"], [["abc"]])
    assert score.chrf == pytest.approx(expected)
    assert score.chrf_signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0")


def test_each_sentence_has_its_own_number_of_references():
    hypotheses = [HYPOTHESIS, "he reads a good book", "no"]
    references = [[REFERENCE], ["x y", "x", "he reads a good book"], ["yes", "no"]]
    score = translation_score(hypotheses, references)
    # a right sentence of 5 words and one of 1 word add to matches and to n-grams
    matches = (11 / 11) * (7 / 8) * (5 / 6) * (3 / 4)
    assert score.bleu == pytest.approx(100 * exp(1 - 12 / 11) * matches ** (1 / 4))
    assert score.sentences == 3
    assert score.bleu_signature.startswith("nrefs:var|")
    assert score.chrf_signature.startswith("nrefs:var|")


def test_the_order_of_references_does_not_matter():
    orders = [["he reads", HYPOTHESIS], [HYPOTHESIS, "he reads"]]
    for order in orders:
        score = translation_score([HYPOTHESIS, "yes"], [order, ["yes"]])
        assert (score.bleu, score.chrf) == pytest.approx((100, 100))


def test_case_and_umlauts_count():
    right = translation_score(["Die Bücher sind hier"], [["Die Bücher sind hier"]])
    wrong = translation_score(["die Bucher sind hier"], [["Die Bücher sind hier"]])
    assert right.bleu == pytest.approx(100)
    assert wrong.bleu < 50


def test_by_length():
    # 1, 1, 1, 2, 3, 3, 4 and 9 words: quarters end at 1, 2, 3 and 9
    sources = ["a", "b", "c", "a b", "a b c", "d e f", "a b c d", "a " * 9]
    texts = [f"{number} w x y z" for number in range(8)]
    known = [[text] for text in texts]
    known[7] = ["nothing"]
    table = translation_score_by_length(sources, texts, known, num_groups=4)
    assert {words: score.sentences for words, score in table.items()} == {
        (1, 1): 3, (2, 2): 1, (3, 3): 2, (4, 9): 2,
    }  # fmt: skip
    assert list(table) == sorted(table)
    assert table[3, 3].bleu == pytest.approx(100)
    assert table[4, 9] == translation_score(texts[6:], known[6:])


def test_tenths_of_sentences_of_one_length_are_one_group():
    table = translation_score_by_length(["a b"] * 12, ["x"] * 12, [["x"]] * 12)
    assert list(table) == [(2, 2)]


@pytest.mark.parametrize(
    ("hypotheses", "references"), [([], []), (["a"], []), (["a"], [["a"]] * 2)]
)
def test_one_hypothesis_for_each_sentence(hypotheses, references):
    with pytest.raises(ValueError, match="one hypothesis for each sentence"):
        translation_score(hypotheses, references)
    with pytest.raises(ValueError, match="one hypothesis for each sentence"):
        translation_score_by_length(hypotheses, hypotheses, references)


def test_one_source_for_each_hypothesis():
    with pytest.raises(ValueError, match=r"each source.*sources=1, hypotheses=2"):
        translation_score_by_length(["a"], ["a", "b"], [["a"], ["b"]])


def test_there_must_be_a_group():
    with pytest.raises(ValueError, match="`num_groups`"):
        translation_score_by_length(["a"], ["a"], [["a"]], num_groups=0)


@pytest.mark.parametrize("known", [[], "a text"])
def test_a_sentence_without_references_is_refused(known):
    with pytest.raises(ValueError, match=r"sequence of references.*sentence=1"):
        translation_score(["a", "b"], [["a"], known])


def test_the_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(ImportError, match=r'pip install "kseq\[examples\]"'):
        translation_score(["a"], [["a"]])
