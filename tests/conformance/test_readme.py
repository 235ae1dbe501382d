"""The README tells the truth: its code runs, its table lists every layer."""

import re
from pathlib import Path

import kseq

README = Path(__file__).parents[2] / "README.md"


def test_code_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, str(README), "exec"), {})


def test_table_lists_every_layer():
    section = README.read_text().split("## Layers")[1].split("\n## ")[0]
    rows = [row.split("|")[1] for row in section.splitlines() if row.startswith("|")]
    listed = re.findall(r"`(\w+)`", " ".join(rows))
    assert sorted(listed) == sorted(kseq.layers.__all__)


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", README.read_text())
    for link in links:
        assert link.startswith("https://") or (README.parent / link).exists(), link
