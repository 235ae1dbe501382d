"""The examples run as a newcomer runs them, with --quick."""

import re
import subprocess
import sys
from pathlib import Path

import keras
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import kseq

ROOT = Path(__file__).parents[2]
TRAIN_G2P = ROOT / "examples" / "train_g2p.py"


def run(*arguments):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def tags(folder):
    events = EventAccumulator(str(folder))
    events.Reload()
    found = events.Tags()
    return {*found["scalars"], *found["images"], *found["tensors"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "attention"), [("gru", "bahdanau"), ("lstm", "luong"), ("rnn", "none")]
)
def test_train_g2p(tmp_path, cell, attention):
    result = run(
        TRAIN_G2P, "--quick", "--epochs", 2, "--logdir", tmp_path,
        "--cell", cell, "--attention", attention,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    rates = re.search(
        r"Held out: (\d+) words, word error rate (\S+)%, phoneme error rate (\S+)%",
        result.stdout,
    )
    assert int(rates[1]) >= 200
    assert 0 <= float(rates[2]) <= 100
    assert "XLA makes 2 programs" in result.stdout
    table = result.stdout.partition("dictionary\n")[2].partition("\n\n")[0]
    assert len(table.splitlines()) == 12
    assert f"make tensorboard LOGDIR={tmp_path}" in result.stdout

    model = keras.saving.load_model(tmp_path / "g2p.keras")
    assert isinstance(model, kseq.models.RecurrentSeq2Seq)
    assert (model.cell, model.attention or "none") == (cell, attention)
    ids = model.generate([[5, 6, 2]], max_length=3).token_ids
    assert ids.shape[0] == 1
    found = tags(tmp_path / "kseq")
    assert any(tag.startswith("attention/") for tag in found) == (attention != "none")
    assert any(tag.startswith("gradient_norm") for tag in found), found


@pytest.mark.slow
def test_train_g2p_help_explains_every_flag():
    text = run(TRAIN_G2P, "--help").stdout
    for flag in "cell attention epochs units logdir full quick data".split():
        assert f"--{flag} " in text
    assert "default: gru" in text


@pytest.mark.slow
def test_train_g2p_full_asks_for_its_data():
    result = run(TRAIN_G2P, "--full")
    assert result.returncode == 2
    assert "--full needs --data DIR" in result.stderr


@pytest.mark.parametrize(
    "example", sorted(ROOT.glob("examples/*.py")), ids=lambda p: p.name
)
def test_examples_are_short(example):
    assert len(example.read_text().splitlines()) < 175
