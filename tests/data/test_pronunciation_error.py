"""Word and phoneme error rates, worked by hand."""

import sys

import pytest

from kseq.data import (
    ErrorRates,
    pronunciation_error,
    pronunciation_error_by_length,
)

WORDS = ["cat", "read", "tomato", "owl"]
HYPOTHESES = [s.split() for s in ["K AE T", "R IY D Z", "T AH M EY T", ""]]
REFERENCES = [
    [s.split() for s in known]
    for known in [
        ["K AE T"],  # right: distance 0 of 3
        ["R EH D", "R IY D"],  # nearest R IY D: 1 of 3
        ["T AH M EY T OW", "T AH M AA T OW"],  # 1 of 6, not 2
        ["AW L"],  # all deleted: 2 of 2
    ]
]


def test_rates_by_hand():
    rates = pronunciation_error(HYPOTHESES, REFERENCES)
    assert rates == ErrorRates(word=3 / 4, phoneme=4 / 14, words=4)
    assert str(rates) == "4 words, word error rate 75.00%, phoneme error rate 28.57%"


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_of_equally_near_references_the_shorter_counts(order):
    known = ["K AE T S".split(), "K AE".split()]  # each one edit from K AE T
    rates = pronunciation_error([["K", "AE", "T"]], [[known[i] for i in order]])
    assert rates.phoneme == 1 / 2


def test_a_nearer_reference_counts_although_it_is_longer():
    known = [["K"], "K AE T S".split()]  # 2 edits of 1 phone, 1 edit of 4
    assert pronunciation_error([["K", "AE", "T"]], [known]).phoneme == 1 / 4


def test_substitution_insertion_and_deletion_cost_one_each():
    rates = pronunciation_error(["A B C D".split()], [["X B D E".split()]])
    assert rates.phoneme == 3 / 4


def test_phones_are_compared_whole():
    assert pronunciation_error([["AA", "T"]], [[["AE", "T"]]]).phoneme == 1 / 2


def test_rates_by_word_length():
    assert pronunciation_error_by_length(WORDS, HYPOTHESES, REFERENCES) == {
        3: ErrorRates(word=1 / 2, phoneme=2 / 5, words=2),
        4: ErrorRates(word=1.0, phoneme=1 / 3, words=1),
        6: ErrorRates(word=1.0, phoneme=1 / 6, words=1),
    }


@pytest.mark.parametrize(
    ("hypotheses", "references"), [([], []), ([["K"]], []), ([["K"]], [[["K"]]] * 2)]
)
def test_one_hypothesis_for_each_word(hypotheses, references):
    with pytest.raises(ValueError, match="one hypothesis for each word"):
        pronunciation_error(hypotheses, references)
    with pytest.raises(ValueError, match="one hypothesis for each word"):
        pronunciation_error_by_length(["k"], hypotheses, references)


def test_one_word_for_each_hypothesis():
    with pytest.raises(ValueError, match=r"words=3, hypotheses=4"):
        pronunciation_error_by_length(WORDS[:3], HYPOTHESES, REFERENCES)


@pytest.mark.parametrize("known", [[], [[]], [["K"], []]])
def test_words_without_a_reference_are_refused(known):
    with pytest.raises(ValueError, match=r"must have a reference.*word=1"):
        pronunciation_error([["K"], ["T"]], [[["K"]], known])


def test_the_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidfuzz.distance", None)
    with pytest.raises(ImportError, match=r'pip install "kseq\[examples\]"'):
        pronunciation_error([["K"]], [[["K"]]])
