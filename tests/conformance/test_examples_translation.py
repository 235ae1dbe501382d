"""The translation examples run as a newcomer runs them, with --quick."""

import json
import re
import subprocess
import sys
from pathlib import Path

import keras
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import kseq

EXAMPLES = Path(__file__).parents[2] / "examples"
TRAIN, SCORE = EXAMPLES / "train_translation.py", EXAMPLES / "score_translation.py"
KINDS = {
    "plain": kseq.models.RecurrentSeq2Seq,
    "bahdanau": kseq.models.RecurrentSeq2Seq,
    "transformer": kseq.models.TransformerSeq2Seq,
}


def run(*arguments):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """A text of 600 sentences, every fifth with a second translation."""
    lines = []
    for number in range(600):
        english = f"I have read {number} very good books." + " Yes." * (number % 4)
        german = f"Ich habe {number} gute Bücher gelesen."
        lines.append(f"{english}\t{german}\tan attribution")
        if number % 5 == 0:
            lines.append(f"{english}\t{number} gute Bücher las ich.\tan attribution")
    path = tmp_path_factory.mktemp("pairs") / "deu.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def attention_layers(folder):
    """The layers whose attention was drawn; a tag ends with an example's number."""
    events = EventAccumulator(str(folder))
    events.Reload()
    tags = [*events.Tags()["images"], *events.Tags()["tensors"]]
    return {t.rpartition("/")[0] for t in tags if t.startswith("attention/")}


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_train_and_score(tmp_path, pairs, name):
    result = run(TRAIN, "--quick", "--model", name, "--pairs", pairs,
        "--logdir", tmp_path)  # fmt: skip
    assert result.returncode == 0, result.stderr
    held_out = re.search(
        r"Held out: (\d+) sentences, BLEU (\S+), chrF (\S+)", result.stdout
    )
    assert "nrefs:var|case:mixed|eff:no|tok:13a" in result.stdout
    rows = re.findall(r"(\d+) to +(\d+) words: (\d+) sentence", result.stdout)
    assert f"make tensorboard LOGDIR={tmp_path}" in result.stdout

    found = json.loads((tmp_path / "results.json").read_text("utf-8"))
    references = {}
    for english, german in kseq.data.load_parallel(pairs).test:
        references.setdefault(english, []).append(german)
    model = keras.saving.load_model(tmp_path / "translation.keras")
    assert isinstance(model, KINDS[name])
    assert (found["model"], found["epochs"]) == (name, 1)
    assert found["parameters"] == model.count_params()
    assert found["seconds"] > 0
    assert found["sentences"] == len(references) == int(held_out[1])
    assert f"{found['bleu']:.1f}" == held_out[2]
    assert [[*map(int, row)] for row in rows] == [
        [*part["words"], part["sentences"]] for part in found["by_length"]
    ]
    assert sum(int(row[2]) for row in rows) == len(references)
    assert all(third in references[first] for first, _, third in found["samples"])

    picture = tmp_path / "alignment.png"
    assert picture.exists() == (name != "plain")
    layers = attention_layers(tmp_path / "kseq")
    assert len(layers) == (name != "plain")  # attention to the source, no other
    assert all(layer.startswith("attention/decoder_0") for layer in layers)

    picture.unlink(missing_ok=True)
    again = run(SCORE, "--quick", "--pairs", pairs, "--logdir", tmp_path)
    assert again.returncode == 0, again.stderr
    assert held_out[0] in again.stdout
    assert json.loads((tmp_path / "results.json").read_text("utf-8")) == found
    assert picture.exists() == (name != "plain")


@pytest.mark.slow
def test_another_run_takes_the_vocabulary(tmp_path, pairs):
    vocabulary = tmp_path / "shared.json"
    kseq.data.BytePairTokenizer.train(["ab ab ab"], 261).save(vocabulary)
    result = run(TRAIN, "--quick", "--model", "plain", "--pairs", pairs,
        "--vocabulary", vocabulary, "--logdir", tmp_path / "log")  # fmt: skip
    assert result.returncode == 0, result.stderr
    kept = tmp_path / "log" / "vocabulary.json"
    assert kept.read_text("utf-8") == vocabulary.read_text("utf-8")


@pytest.mark.slow
def test_help_explains_every_flag():
    shared = ["pairs", "font", "quick", "logdir"]
    for script, own in [(TRAIN, ["model", "epochs", "vocabulary"]), (SCORE, [])]:
        text = run(script, "--help").stdout
        for flag in [*shared, *own]:
            assert re.search(rf"^  --{flag}( \S+)?\s+\w|^  --model {{", text, re.M)
        assert "deu-eng.zip" in text


@pytest.mark.slow
@pytest.mark.parametrize("script", [TRAIN, SCORE])
def test_missing_pairs_are_named(tmp_path, script):
    result = run(script, "--pairs", tmp_path / "no.zip", "--logdir", tmp_path)
    assert result.returncode == 2
    assert "`path` must be a text file of sentence pairs" in result.stderr
    assert "https://www.manythings.org/anki" in result.stderr
    assert "Traceback" not in result.stderr
