"""What is installed is what stands in the source tree."""

import configparser
from pathlib import Path

import kseq

ROOT = Path(__file__).parents[2]


def test_every_folder_of_modules_is_a_package():
    for module in (ROOT / "kseq").rglob("*.py"):
        assert (module.parent / "__init__.py").is_file(), module


def test_version():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["metadata"]["version"] == kseq.__version__
