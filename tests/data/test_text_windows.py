"""Random windows: what they hold, where they start, how they are drawn."""

import numpy as np
import pytest

from kseq.data import TextWindows, pack

IDS = np.random.default_rng(5).integers(3, 13, 101)


def make(ids=IDS, **options):
    return TextWindows(ids, **{"batch_size": 7, "length": 5, "steps": 11} | options)


def test_windows_and_their_labels():
    text = "".join(chr(i) for i in IDS)
    windows = make()
    assert len(windows) == len(list(windows)) == 11
    for inputs, labels in windows:
        assert inputs.shape == labels.shape == (7, 5)
        assert inputs.dtype == labels.dtype == "int32"
        for row, label in zip(inputs, labels):
            assert "".join(chr(i) for i in [*row, label[-1]]) in text
            np.testing.assert_array_equal(row[1:], label[:-1])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_windows_start_anywhere(seed):
    """9 places for 5 tokens and a label among 14; 1100 draws of each."""
    windows = make(range(3, 17), batch_size=900, seed=seed)
    starts = np.concatenate([inputs[:, 0] - 3 for inputs, _ in windows])
    counts = np.bincount(starts, minlength=9)
    assert len(counts) == 9
    assert np.abs(counts - 1100).max() < 5 * np.sqrt(1100)


def test_the_only_window():
    inputs, labels = make(range(3, 9), batch_size=2)[0]
    assert inputs.tolist() == [[3, 4, 5, 6, 7]] * 2
    assert labels.tolist() == [[4, 5, 6, 7, 8]] * 2


def test_a_batch_is_drawn_by_seed_epoch_and_number():
    first, same, other = make(seed=3), make(seed=3), make(seed=4)
    assert (first[5][0] == same[5][0]).all()
    assert (first[5][0] != other[5][0]).any()
    assert (first[5][0] != first[4][0]).any()
    first.on_epoch_end()
    assert (first[5][0] != same[5][0]).any()
    same.on_epoch_end()
    assert (first[5][0] == same[5][0]).all()


def test_packed_rows_cover_a_text_once():
    rows = pack([IDS], length=7)
    assert rows.token_ids.ravel()[:101].tolist() == IDS.tolist()
    assert rows.target_ids.ravel()[:101].tolist() == [*IDS[1:].tolist(), 0]
    assert not rows.target_ids.ravel()[101:].any()


@pytest.mark.parametrize("ids", [range(3, 8), np.ones((7, 9))])
def test_a_window_must_fit(ids):
    with pytest.raises(ValueError, match="rank 1 and more than `length` tokens"):
        make(ids)


@pytest.mark.parametrize("name", ["batch_size", "length", "steps"])
def test_sizes_must_be_positive(name):
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer"):
        make(**{name: 0})
