"""The examples in the docstrings run, and print what they say."""

import doctest
import importlib
import pkgutil

import keras
import numpy as np
import pytest

import kseq

MODULES = [m.name for m in pkgutil.walk_packages(kseq.__path__, "kseq.")]
FINDER = doctest.DocTestFinder(exclude_empty=True)


def examples():
    """Each docstring with an example, once, in the module that defines it."""
    for name in MODULES:
        module = importlib.import_module(name)
        for test in FINDER.find(module, name):
            if test.examples:
                yield pytest.param(test, id=test.name)


@pytest.mark.parametrize("test", list(examples()))
def test_example(test):
    test.globs |= {"kseq": kseq, "keras": keras, "np": np}  # beside its module's own
    result = doctest.DocTestRunner().run(test, clear_globs=False)
    assert result.attempted
    assert not result.failed, test.name


def test_a_wrong_example_is_seen(capsys):
    test = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    assert doctest.DocTestRunner().run(test).failed == 1
    assert "Expected" in capsys.readouterr().out
