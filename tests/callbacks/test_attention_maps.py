"""The pictures of a training: where they are written, when, and of what size."""

import json

import keras
import numpy as np
import pytest
from callbacks.events import load, picture, read_events
from tiny_model import TIME, attention_weights, make_batches, make_model

from kseq.callbacks import AttentionMaps, GradientNorms
from kseq.callbacks.attention_picture import draw_attention
from kseq.callbacks.event_writer import open_event_writer
from kseq_tensorboard.records import unpack

STEPS = 3
X, Y = make_batches(STEPS)
PROBE = X[:2]
QUERIES = [["F", "OW1", "T"], ["N", "AY1"]]
KEYS = [list("pho"), list("nigh")]
BLOBS = "attention_weights/attention"


def train(model, callbacks, epochs=2):
    return model.fit(
        X, Y, batch_size=2, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks
    )


@pytest.fixture
def panels(monkeypatch):
    """What is drawn, picture by picture."""
    drawn = []

    def spy(panel, font):
        drawn.append(panel)
        return draw_attention(panel, font)

    monkeypatch.setattr("kseq.callbacks.attention_picture.draw_attention", spy)
    return drawn


def test_one_picture_per_example_and_epoch(panels, tmp_path):
    train(make_model(), [AttentionMaps(tmp_path, PROBE, QUERIES, KEYS)])
    events = read_events(tmp_path / "kseq")
    tags = ["attention/attention/1", "attention/attention/2"]
    assert set(events) == {*tags, BLOBS}
    for number, tag in enumerate(tags):
        assert [step for step, _ in events[tag]] == [STEPS, 2 * STEPS]
        for (_, value), drawn in zip(events[tag], panels[number::2], strict=True):
            assert picture(value).size == draw_attention(drawn).size
            assert drawn.query_tokens == QUERIES[number]
            assert drawn.key_tokens == KEYS[number]


def test_the_weights_are_those_of_the_model_after_the_epoch(panels, tmp_path):
    model = make_model()
    train(model, [AttentionMaps(tmp_path, PROBE)])
    table, kernel, *_ = model.get_weights()
    want = attention_weights(table[PROBE], kernel)
    got = np.stack([panel.weights for panel in panels[-2:]])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    first = np.stack([panel.weights for panel in panels[:2]])
    assert np.abs(first - got).max() > 1e-3


@pytest.mark.parametrize("heads", [0, 2])
def test_the_dashboard_gets_the_weights_of_every_head(heads, tmp_path):
    model = make_model(heads=heads)
    train(model, [AttentionMaps(tmp_path, PROBE, QUERIES, KEYS)])
    table, kernel, *_ = model.get_weights()
    want = attention_weights(table[PROBE], kernel)
    records = read_events(tmp_path / "kseq")[BLOBS]
    assert [step for step, _ in records] == [STEPS, 2 * STEPS]
    assert len(records[-1][1]) == len(PROBE)
    for number, blob in enumerate(records[-1][1]):
        header, got = unpack(blob)
        rows, columns = len(QUERIES[number]), len(KEYS[number])
        assert got.dtype == "float16"
        assert got.shape == (max(heads, 1), rows, columns)
        # half precision has 11 bits
        np.testing.assert_allclose(got[0], want[number, :rows, :columns], rtol=1e-3)
        if heads:
            np.testing.assert_allclose(got[1], 1 / (TIME - 1), rtol=1e-3)
        assert header["queries"] == QUERIES[number]
        assert header["keys"] == KEYS[number]
        assert header["epoch"] == 2
        assert header["kind"] == ("cross" if heads else "alignment")


def test_the_series_of_the_dashboard_says_what_it_holds(tmp_path):
    train(make_model(heads=2), [AttentionMaps(tmp_path, PROBE, QUERIES, KEYS)])
    [content] = load(tmp_path / "kseq").PluginTagToContent("kseq_attention").values()
    assert json.loads(content) == {
        "v": 1,
        "layer": "attention",
        "order": 0,
        "heads": 2,
        "examples": ["p h o", "n i g h"],
    }


def test_max_tokens_bounds_what_the_dashboard_gets(tmp_path):
    train(make_model(), [AttentionMaps(tmp_path, PROBE, max_tokens=3)], epochs=1)
    [(_, blobs)] = read_events(tmp_path / "kseq")[BLOBS]
    for header, weights in map(unpack, blobs):
        assert weights.shape == (1, 3, 3)
        assert header["queries"] == header["keys"] == ["0", "1", "2"]
        assert header["left_out"] == [TIME - 3, TIME - 1 - 3]


def test_heads_are_averaged(panels, tmp_path):
    model = make_model(heads=2)
    train(model, [AttentionMaps(tmp_path, PROBE)], epochs=1)
    plain = make_model()
    train(plain, [AttentionMaps(tmp_path, PROBE)], epochs=1)
    # the second head of the tiny model is uniform
    for heads, one in zip(panels[:2], panels[2:], strict=True):
        want = (one.weights + 1 / (TIME - 1)) / 2
        np.testing.assert_allclose(heads.weights, want, rtol=1e-5)


def test_positions_are_numbered_without_tokens(panels, tmp_path):
    train(make_model(), [AttentionMaps(tmp_path, PROBE)], epochs=1)
    assert panels[0].query_tokens == ["0", "1", "2", "3", "4"]
    assert panels[1].key_tokens == ["0", "1", "2", "3"]


def test_every_counts_epochs(tmp_path):
    train(make_model(), [AttentionMaps(tmp_path, PROBE, every=2)], epochs=5)
    events = read_events(tmp_path / "kseq")
    assert [step for step, _ in events["attention/attention/1"]] == [6, 12]


def test_shares_the_file_of_the_gradient_norms(tmp_path):
    train(make_model(), [AttentionMaps(tmp_path, PROBE), GradientNorms(tmp_path)])
    assert len(list((tmp_path / "kseq").iterdir())) == 1
    events = read_events(tmp_path / "kseq")
    assert len(events["attention/attention/1"]) == 2
    assert len(events["gradient_norm/global"]) == 2 * STEPS


def test_the_file_is_closed_when_training_ends(tmp_path):
    train(make_model(), [AttentionMaps(tmp_path, PROBE)])
    writer = open_event_writer(tmp_path / "kseq")
    assert writer.users == 1
    writer.close()


def test_training_is_the_same_with_and_without(tmp_path):
    weights = []
    for callbacks in ([AttentionMaps(tmp_path, PROBE)], []):
        model = make_model(optimizer=keras.optimizers.Adam(0.01))
        train(model, callbacks)
        weights.append([*model.get_weights(), *model.predict(PROBE, verbose=0)])
    for got, want in zip(*weights, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (
            {"query_tokens": QUERIES[:1]},
            "`query_tokens` must hold one list.*examples=2",
        ),
        ({"query_tokens": [["a"] * 6, ["a"]]}, "`query_tokens`.*positions=5"),
        ({"key_tokens": [["a"] * 5, ["a"]]}, "`key_tokens`.*positions=4"),
        ({"key_tokens": [[], ["a"]]}, "`key_tokens` must have from 1"),
        ({"layers": ["cross"]}, "`layers` must hold.*The model has attention"),
        ({"layers": "attention"}, "`layers` must be a list of strings.*block_0"),
        ({"key_tokens": [[1], [2]]}, "`key_tokens` must hold strings"),
        ({"font": "nowhere.ttf"}, "`font` must be the path of a file.*nowhere"),
    ],
    ids=[
        "examples",
        "long queries",
        "long keys",
        "empty",
        "layers",
        "one layer",
        "ids",
        "font",
    ],
)
def test_mistakes_are_found_before_training(options, match, tmp_path):
    model = make_model()
    with pytest.raises((ValueError, TypeError), match=match):
        train(model, [AttentionMaps(tmp_path, PROBE, **options)])
    assert int(model.optimizer.iterations) == 0
