"""The two parts of a text."""

import pytest

from kseq.data import load_text


def test_the_last_tenth_is_for_evaluation(tmp_path):
    (tmp_path / "text.txt").write_bytes("ä123456789\r\nabcdefgh".encode())
    # 19 characters, a line end being one: int(17.1) are for train
    data = load_text(tmp_path / "text.txt")
    assert data == ("ä123456789\nabcdef", "gh")
    assert (data.train, data.dev) == data


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"must be a text file.*char-rnn"):
        load_text(tmp_path / "input.txt")


@pytest.mark.parametrize("text", ["", "a"])
def test_a_text_of_one_character_is_refused(tmp_path, text):
    (tmp_path / "text.txt").write_text(text)
    with pytest.raises(ValueError, match="at least two characters"):
        load_text(tmp_path / "text.txt")
