"""Vocabulary: ids of the marks, both ways, errors, the file."""

import pytest

from kseq.data import Vocabulary


def test_ids_follow_the_marks_in_the_order_given():
    vocabulary = Vocabulary(["b", "ae", "a"])
    assert vocabulary.tokens == ("<pad>", "<s>", "</s>", "b", "ae", "a")
    assert len(vocabulary) == 6
    assert vocabulary.encode(["ae", "a", "b"]) == [4, 5, 3]


def test_decode_skips_padding_and_start_and_stops_at_the_end():
    assert Vocabulary("abc").decode([1, 5, 0, 3, 2, 4, 4]) == ["c", "a"]
    assert Vocabulary("abc").decode([]) == []


def test_decode_reads_what_encode_wrote():
    vocabulary = Vocabulary("xyz")
    assert vocabulary.decode(vocabulary.encode("zyxxy")) == list("zyxxy")


def test_unknown_symbols_are_named():
    with pytest.raises(ValueError, match=r"unknown=\['!', 'd'\].*It knows a b c\."):
        Vocabulary("abc").encode("ad!b")


@pytest.mark.parametrize("bad", [6, -1])
def test_an_id_outside_the_vocabulary_is_refused(bad):
    with pytest.raises(ValueError, match=rf"\[0, size\).*id={bad}, size=6"):
        Vocabulary("abc").decode([3, bad])


@pytest.mark.parametrize("tokens", ["aba", ["a", "</s>"]])
def test_repeated_tokens_and_marks_are_refused(tokens):
    with pytest.raises(ValueError, match="must be distinct"):
        Vocabulary(tokens)


def test_save_and_load(tmp_path):
    vocabulary = Vocabulary(["ü", "a", "'"])
    vocabulary.save(tmp_path / "letters.json")
    assert Vocabulary.load(tmp_path / "letters.json").tokens == vocabulary.tokens
