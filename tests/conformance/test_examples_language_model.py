"""The examples that model a text run as a newcomer runs them, with --quick."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import kseq

ROOT = Path(__file__).parents[2]
LANGUAGE_MODEL = ROOT / "examples" / "train_language_model.py"
DEEP = ROOT / "examples" / "train_deep.py"
LINES = "To sleep, perchance to dream: ay, there's the rub.\nFor in that sleep, what?\n"


def run(*arguments):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(LINES * 100, encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "model_class"),
    [
        (["--norm", "rms", "--positions", "alibi"], kseq.models.TransformerLM),
        (["--model", "gru", "--byte-pairs", 300], kseq.models.RecurrentLM),
    ],
    ids=["transformer", "recurrent"],
)
def test_train_language_model(tmp_path, text, options, model_class):
    if "--byte-pairs" in options:
        pytest.importorskip("tokenizers")
    result = run(
        LANGUAGE_MODEL, "--quick", "--text", text, "--logdir", tmp_path, *options
    )
    assert result.returncode == 0, result.stderr
    pattern = r"Held out: (\S+) nats a character, perplexity (\S+)\n"
    nats, perplexity = map(float, re.search(pattern, result.stdout).groups())
    assert nats > 0
    if "--byte-pairs" in options:  # one stands for several characters
        assert nats < math.log(perplexity)
    else:
        assert nats == pytest.approx(math.log(perplexity), abs=1e-3)
    given, _, written = result.stdout.partition("Given: ")[2].partition("\n\nWritten: ")
    assert given
    assert given in LINES * 100
    written = written.partition("\n\nModel: ")[0]
    if "--byte-pairs" not in options:
        assert len(written) == 200
        assert set(written) <= set(LINES)

    model = keras.saving.load_model(tmp_path / "language_model.keras")
    assert type(model) is model_class
    assert model(np.array([[5, 6, 7]])).shape[:2] == (1, 3)


@pytest.mark.slow
def test_extrapolate(tmp_path, text):
    result = run(
        LANGUAGE_MODEL, "--quick", "--extrapolate", "--text", text,
        "--logdir", tmp_path, "--context", 8, "--steps", 5,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    table = json.loads((tmp_path / "extrapolation.json").read_text())
    scaled = ["rotary linear", "rotary NTK", "rotary YaRN"]
    assert list(table) == ["rotary", "alibi", "sinusoidal", "none", *scaled]
    printed = result.stdout.partition("nats a character")[2]
    for name, scores in table.items():
        assert list(scores) == ["8", "16", "32", "64"]
        assert np.isfinite(list(scores.values())).all()
        row = "".join(f"{score:8.3f}" for score in scores.values())
        assert f"{name:16}{row}\n" in printed
    # the same weights: what differs is the angles
    assert table["rotary"] != table["rotary linear"]
    assert (tmp_path / "extrapolation.png").read_bytes()[1:4] == b"PNG"


@pytest.mark.slow
def test_train_deep(tmp_path, text):
    result = run(DEEP, "--quick", "--text", text, "--logdir", tmp_path)
    assert result.returncode == 0, result.stderr
    runs = json.loads((tmp_path / "deep.json").read_text())
    post = ["post-glorot", "post", "post-warmup"]
    assert list(runs) == ["pre-layer", "pre-rms", "deepnorm", *post]
    table = result.stdout.partition("start   middle      end\n")[2].splitlines()
    for line, (name, one) in zip(table, runs.items()):
        norms, losses = one["gradient_norms"], one["losses"]
        assert len(norms) == 4
        assert len(losses) == 3
        assert np.isfinite(norms + losses).all()
        assert min(norms) > 0
        # Post-LN at a constant, high rate is there to fail
        assert losses[-1] < losses[0] or name == "post"
        picked = [norms[0], norms[2], norms[3], *losses]
        assert line.split() == [name, "4", *(f"{x:.3g}" for x in picked), "finite"]
    # the warm-up does not change the model that it begins with
    assert runs["post"]["gradient_norms"] == pytest.approx(
        runs["post-warmup"]["gradient_norms"], rel=1e-3
    )
    assert (tmp_path / "deep.png").read_bytes()[1:4] == b"PNG"


@pytest.mark.slow
@pytest.mark.parametrize("example", [LANGUAGE_MODEL, DEEP], ids=lambda p: p.stem)
@pytest.mark.parametrize("arguments", [[], ["--text", "nowhere.txt"]], ids=len)
def test_a_text_is_asked_for(example, arguments):
    result = run(example, *arguments)
    assert result.returncode == 2
    assert "--text FILE must name a text file" in result.stderr
    assert "https://github.com/karpathy/char-rnn" in result.stderr


@pytest.mark.slow
def test_extrapolate_excludes_recurrent_models(text):
    result = run(LANGUAGE_MODEL, "--text", text, "--extrapolate", "--model", "gru")
    assert result.returncode == 2
    assert "--extrapolate compares positions of a Transformer" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "flags"),
    [
        (
            LANGUAGE_MODEL,
            "text byte-pairs model placement norm positions steps context logdir quick "
            "extrapolate",
        ),
        (DEEP, "text models steps logdir quick"),
    ],
    ids=["language_model", "deep"],
)
def test_help_explains_every_flag(example, flags):
    text = run(example, "--help").stdout.partition("options:")[2]
    found = re.findall(r"^  --(\S+)(?: [A-Z].*?)?(?:  +|\n +)(\S.+)$", text, re.M)
    assert {flag for flag, explained in found if len(explained) > 10} == {
        *flags.split()
    }
