"""Sentence pairs: the split, what is normalized, files of the wrong form."""

import hashlib
import os
import zipfile

import pytest

from kseq.data import load_parallel

TATOEBA = os.environ.get("KSEQ_TATOEBA")
LINES = (
    "Hi.\tHallo!\n"
    "Hi.\tGru\u0308ß Gott!\tCC-BY 2.0 (France) Attribution: tatoeba.org\r\n"
    "\n"
    "  Run! \tLauf!\u202f\n"
    "Run!\tLauf!\n"  # again, once it is stripped
    "Wait.\tWarte\u2028mal.\n"
)
PAIRS = [
    ("Hi.", "Hallo!"),
    ("Hi.", "Gr\u00fcß Gott!"),
    ("Run!", "Lauf!"),
    ("Wait.", "Warte\u2028mal."),
]


def written(path, text=LINES):
    path.write_bytes(text.encode("utf-8"))
    return path


def zipped(path, **files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "."), text)
    return path


def together(data):
    return sorted(pair for part in data for pair in part)


@pytest.mark.parametrize("start", ["", "\ufeff"], ids=["plain", "byte order mark"])
def test_pairs_by_hand(tmp_path, start):
    data = load_parallel(written(tmp_path / "pairs.tsv", start + LINES))
    assert together(data) == sorted(PAIRS)


def test_a_zip_with_one_text(tmp_path):
    path = zipped(tmp_path / "deu-eng.zip", deu__txt=LINES, _about__txt="** Info **")
    assert together(load_parallel(str(path))) == sorted(PAIRS)


def test_the_part_of_a_pair_is_the_hash_of_its_source(tmp_path):
    pairs = [(f"Sentence {i // 2}.", f"Satz {i}.") for i in range(2000)]
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    data = load_parallel(written(tmp_path / "pairs.txt", text))

    def share(source):
        return (
            int(hashlib.sha256(source.encode("utf-8")).hexdigest()[:8], base=16) % 100
        )

    for part, shares in [
        (data.test, (0, 1)),
        (data.dev, (2,)),
        (data.train, range(3, 100)),
    ]:
        assert part
        # in the order of the file
        assert part == [pair for pair in pairs if share(pair[0]) in shares]


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"text file of .*manythings\.org/anki"):
        load_parallel(tmp_path / "deu-eng.zip")


@pytest.mark.parametrize("line", ["Hi.", "Hi.\t", "\tHallo!", "Hi.\t \tCC-BY"])
def test_a_line_without_two_sentences(tmp_path, line):
    path = written(tmp_path / "pairs.txt", f"Hi.\tHallo!\n{line}\n")
    with pytest.raises(ValueError, match=r"two sentences with a tab.*line_number=2"):
        load_parallel(path)


def test_a_file_that_is_no_text(tmp_path):
    (tmp_path / "pairs.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="must be a text in UTF-8"):
        load_parallel(tmp_path / "pairs.txt")


def test_a_file_that_is_no_zip(tmp_path):
    with pytest.raises(ValueError, match="`path` is no zip file"):
        load_parallel(written(tmp_path / "pairs.zip"))


@pytest.mark.parametrize("files", [{"_about__txt": ""}, {"a__txt": "", "b__tsv": ""}])
def test_a_zip_must_hold_one_text(tmp_path, files):
    with pytest.raises(ValueError, match=r"must hold one text file.*files="):
        load_parallel(zipped(tmp_path / "pairs.zip", **files))


@pytest.mark.slow
@pytest.mark.skipif(not TATOEBA, reason="KSEQ_TATOEBA names no file")
def test_counts_of_tatoeba():
    """English and German of 2018-05-13."""
    data = load_parallel(TATOEBA)
    assert [len(part) for part in data] == [164_709, 1_699, 3_405]
    sources = [{source for source, _ in part} for part in data]
    assert [len(part) for part in sources] == [131_465, 1_339, 2_730]
    assert len(set.union(*sources)) == 135_534
