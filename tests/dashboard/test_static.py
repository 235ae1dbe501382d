"""The files of the page: whole, packaged, and with no other host in them."""

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "kseq_tensorboard" / "static"
FILES = sorted(STATIC.iterdir())
SCRIPTS = sorted(STATIC.glob("*.js"))
name = lambda path: path.name


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_scripts_are_valid_modules(path):
    subprocess.run(
        ["node", "--check", "--input-type=module"],
        input=path.read_bytes(),
        check=True,
        capture_output=True,
    )


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_scripts_import_what_is_there(path):
    source = path.read_text()
    pattern = r'import \{([^}]*)\} from "\./([^"]*)"'
    for names, module in re.findall(pattern, source):
        other = (STATIC / module).read_text()
        for imported in re.split(r",\s*", names.strip().rstrip(",")):
            assert re.search(
                rf"export (async )?(function|class|const) {imported}\b", other
            )
            assert len(re.findall(rf"\b{imported}\b", source)) > 1, (
                f"{imported} is idle"
            )


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_other_host_is_named(path):
    assert "//" not in re.sub(r"(?m)^\s*//.*$|\s// .*$", "", path.read_text())


def test_the_files_and_the_entry_point_are_packaged():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["options.package_data"]["kseq_tensorboard"] == "static/*"
    assert all(path.is_file() for path in FILES)
    entry_points = setup["options.entry_points"]["tensorboard_plugins"]
    assert "kseq_tensorboard.plugin:SequencesLoader" in entry_points
