"""TensorBoard starts, and shows the tab, whatever else is broken around it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OTHERS = ["kseq", "keras", "tensorflow", "jax"]


def run(program, blocked=()):
    """Runs `program` in a Python that does not find the modules `blocked`."""
    block = f"import sys; sys.modules.update(dict.fromkeys({list(blocked)!r}))\n"
    return subprocess.run(
        [sys.executable, "-c", block + program],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


@pytest.mark.parametrize("blocked", OTHERS)
def test_the_plugin_imports_without(blocked):
    result = run("import kseq_tensorboard.plugin", [blocked])
    assert result.returncode == 0, result.stderr


def test_the_plugin_imports_none_of_them():
    program = f"""
import kseq_tensorboard.plugin
print(sorted(set({OTHERS!r}) & set(sys.modules)))
"""
    result = run(program)
    assert result.stdout == "[]\n", result.stderr


def test_tensorboard_starts_without_all_of_them(tmp_path):
    program = f"""
import json, urllib.request
from tensorboard import default, program
from kseq_tensorboard.plugin import SequencesLoader
server = program.TensorBoard([*default.get_static_plugins(), SequencesLoader])
server.configure(("tensorboard", "--logdir={tmp_path}", "--port=0"))
with urllib.request.urlopen(server.launch() + "data/plugins_listing") as answer:
    print(json.load(answer)["kseq_sequences"]["tab_name"])
"""
    result = run(program, OTHERS)
    assert result.stdout == "Sequences\n", result.stderr
