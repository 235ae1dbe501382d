"""Decoded examples on TensorBoard's Text page."""

import html
import re

import keras
import numpy as np
import pytest
from callbacks.events import load, read_events
from tensorboard import plugin_util

from kseq.callbacks import Samples

SOURCES = ["ein Hund", "a|b `c` *d* _e_", "<b>&amp;</b> [x](y) \\ # 1. -"]
REFERENCES = ["a dog", "two\nlines", ""]


def fit(log_dir, generate, epochs=3, **options):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    callback = Samples(log_dir, SOURCES, REFERENCES, generate, **options)
    x, y = np.ones((4, 2)), np.ones((4, 1))
    model.fit(x, y, batch_size=2, epochs=epochs, verbose=0, callbacks=[callback])


def cells(markdown):
    """What TensorBoard shows in the table, row by row."""
    page = plugin_util.markdown_to_safe_html(markdown)
    rows = re.findall(r"<tr>(.*?)</tr>", page, flags=re.DOTALL)
    return [
        [
            html.unescape(cell.replace("<br>", "\n"))
            for cell in re.findall(r"<t[hd]>(.*?)</t[hd]>", row, flags=re.DOTALL)
        ]
        for row in rows
    ]


def test_every_string_is_shown_as_it_is(tmp_path):
    fit(tmp_path, lambda sources: [s.upper() for s in sources], epochs=1)
    ((step, (text,)),) = read_events(tmp_path / "kseq")["samples"]
    assert step == 2
    header, *rows = cells(text.decode())
    assert header == ["source", "reference", "answer"]
    answers = [source.upper() for source in SOURCES]
    assert rows == [list(row) for row in zip(SOURCES, REFERENCES, answers)]
    events = load(tmp_path / "kseq")
    assert events.SummaryMetadata("samples").plugin_data.plugin_name == "text"


def test_metrics_and_every(tmp_path):
    calls = []

    def generate(sources):
        calls.append(list(sources))
        return ["a dog"] * len(sources)

    def exact(answers, references):
        return sum(a == r for a, r in zip(answers, references)) / len(answers)

    fit(tmp_path, generate, every=2, metrics={"exact": exact})
    found = read_events(tmp_path / "kseq")
    assert calls == [SOURCES]
    ((step, (text,)),) = found["samples"]
    assert step == 4
    assert text.startswith(b"Epoch 2: exact 0.3333\n")
    assert found["samples/exact"] == [(4, pytest.approx(1 / 3))]


def test_wrong_counts(tmp_path):
    with pytest.raises(ValueError, match="must hold as many strings as `sources`"):
        Samples(tmp_path, SOURCES, ["a dog"], list)
    with pytest.raises(ValueError, match="must return as many strings"):
        fit(tmp_path, lambda sources: sources[:1])


@pytest.mark.parametrize("answers", ["yes", [1, 2, 3], None], ids=str)
def test_answers_are_strings(answers, tmp_path):
    with pytest.raises(TypeError, match="`generate` must be a list of strings"):
        fit(tmp_path, lambda sources: answers)
    with pytest.raises(TypeError, match="`sources` must be a list of strings"):
        Samples(tmp_path, "ab", ["a", "b"], list)
