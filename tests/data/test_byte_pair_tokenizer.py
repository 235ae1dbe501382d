"""Byte pairs: merges by hand, no loss on any text, the same vocabulary each time."""

import random
import sys

import pytest

from kseq.data import BytePairTokenizer

LINES = ["low low low low low lower lower", "newest newest newest newest newest newest",
         "widest widest widest Grüße, Grüße!"]  # fmt: skip
TEXTS = [
    "",
    " ",
    "lowest newer",
    "  two  spaces \n\n\tand a tab \r\n",
    "Grüß Gott, größte Straße",
    "</s><pad><s> ·Ġ ▁",
    "日本語 עברית 👩‍👩‍👧 e\u0301 \u00e9",
    "\x00\x7f\u2028\ufeff\ufffd\U0010ffff",
    "it's 3.14 don't!!",
]


@pytest.fixture(scope="module")
def tokenizer():
    return BytePairTokenizer.train(LINES, 300)


def test_merges_of_the_paper():
    """Sennrich et al., section 3.2, with a space in the place of their end of word."""
    words = ["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3
    tokenizer = BytePairTokenizer.train(words, 259 + 4)
    # es, est 9 times; lo, low 7 times
    assert set(tokenizer.merges) == {("e", "s"), ("es", "t"), ("l", "o"), ("lo", "w")}
    assert tokenizer.tokens(tokenizer.encode("lowest")) == ["low", "est"]


def test_ids_are_marks_bytes_and_merges():
    tokenizer = BytePairTokenizer([("a", "b"), ("ab", "c"), ("Ġ", "abc")])
    assert len(tokenizer) == 3 + 256 + 3
    assert tokenizer.encode("a\x00ÿ") == [3 + 97, 3, 3 + 0xC3, 3 + 0xBF]
    assert tokenizer.encode("abcab abc") == [260, 259, 261]
    assert tokenizer.decode(range(3 + 97, 3 + 100)) == "abc"


def test_two_merges_may_give_one_piece():
    tokenizer = BytePairTokenizer([("a", "b"), ("b", "c"), ("ab", "c"), ("a", "bc")])
    assert len(tokenizer) == 259 + 3
    assert tokenizer.encode("abc") == [261]
    assert tokenizer.decode([261]) == "abc"


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_nothing_is_lost(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(3 <= i < len(tokenizer) for i in ids)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_nothing_is_lost_of_any_unicode(tokenizer, seed):
    draw = random.Random(seed)
    surrogates = range(0xD800, 0xE000)
    codes = [draw.choice([draw.randrange(128), draw.randrange(0x110000)])
             for _ in range(997)]  # fmt: skip
    text = "".join(chr(c) for c in codes if c not in surrogates)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_decode_skips_marks_and_stops_at_the_end(tokenizer):
    low, new = tokenizer.encode("low"), tokenizer.encode(" new")
    assert tokenizer.decode([1, 0, *low, 0, *new, 2, *low]) == "low new"


def test_bytes_that_are_no_text(tokenizer):
    assert tokenizer.decode([3 + 0xC3]) == "\ufffd"
    assert tokenizer.tokens([3 + 0xC3, 3 + 0xBC]) == ["<0xC3>", "<0xBC>"]


def test_tokens_can_be_read(tokenizer):
    ids = [1, *tokenizer.encode("low Grüße\n"), 2, 0]
    tokens = tokenizer.tokens(ids)
    assert len(tokens) == len(ids)
    assert (tokens[0], tokens[1]) == ("<s>", "low")
    assert tokens[-3:] == ["<0x0A>", "</s>", "<pad>"]
    assert "".join(tokens[1:-3]) == "low·Grüße"


def test_the_same_lines_give_the_same_merges(tokenizer):
    for lines in (LINES, iter(LINES), reversed(LINES)):
        assert BytePairTokenizer.train(lines, 300).merges == tokenizer.merges


def test_what_is_seen_once_is_not_joined():
    assert len(BytePairTokenizer.train(["abcd"], 300)) == 259
    assert len(BytePairTokenizer.train(["ab", "ab"], 300)) == 260


def test_the_size_is_kept():
    assert len(BytePairTokenizer.train(LINES, 265)) == 265


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        (b"a", TypeError, "`text` must be a str.*b'a'"),
        (["a"], TypeError, "`text` must be a str"),
        ("a\ud800", ValueError, "`text` must be Unicode, without surrogates"),
    ],
    ids=ascii,
)
def test_what_is_no_text_is_named(text, error, words):
    with pytest.raises(error, match=words):
        BytePairTokenizer([]).encode(text)


@pytest.mark.parametrize("size", [1, 258])
def test_a_size_below_the_bytes_is_refused(size):
    with pytest.raises(ValueError, match=r"3 marks and 256 bytes.*at least 259"):
        BytePairTokenizer.train(LINES, size)


def test_one_text_is_refused():
    with pytest.raises(TypeError, match=r"not one text.*lines='low lower'.*splitlines"):
        BytePairTokenizer.train("low lower", 300)


def test_a_merge_of_an_unknown_piece_is_refused():
    with pytest.raises(ValueError, match=r"known before it.*merge=\('ab', 'c'\)"):
        BytePairTokenizer([("ab", "c"), ("a", "b")])


@pytest.mark.parametrize("bad", [262, -1])
def test_an_id_outside_the_vocabulary_is_refused(bad):
    tokenizer = BytePairTokenizer([("a", "b"), ("ab", "c"), ("c", "d")])
    for read in (tokenizer.decode, tokenizer.tokens):
        with pytest.raises(ValueError, match=rf"\[0, size\).*id={bad}, size=262"):
            read([5, bad])


def test_save_and_load(tmp_path, tokenizer):
    tokenizer.save(tmp_path / "pairs.json")
    loaded = BytePairTokenizer.load(tmp_path / "pairs.json")
    assert loaded.merges == tokenizer.merges
    assert loaded.encode(LINES[2]) == tokenizer.encode(LINES[2])


def test_the_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r'pip install "kseq\[examples\]"'):
        BytePairTokenizer([])
    with pytest.raises(ImportError, match=r'pip install "kseq\[examples\]"'):
        BytePairTokenizer.train(LINES, 300)
