"""The example of gradients through time runs, and tells what it is there to tell."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "show_gradient_flow.py"


@pytest.mark.slow
def test_show_gradient_flow(tmp_path):
    result = subprocess.run(
        [sys.executable, str(EXAMPLE), "--quick", "--logdir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    table = [line.split() for line in result.stdout.splitlines()]
    assert table[0] == ["steps", "back", "11", "5", "1", "0"]
    reach = {name: float(first) / float(last) for name, first, *_, last in table[1:5]}
    # how much of the last step's gradient is left at the first
    assert reach["SimpleRNN"] < reach["GRU"] < 0.1
    assert reach["LSTM"] < 0.1
    assert 0.5 < reach["attention"] < 2
    assert (tmp_path / "gradient_flow.png").read_bytes()[1:4] == b"PNG"
