"""What is exported is sorted, documented and, where it is saved, registered."""

import dataclasses
import inspect
import re

import keras
import pytest

import kseq

FOLDERS = [getattr(kseq, name) for name in kseq.__all__]
PUBLIC = {
    f"{folder.__name__}.{name}": getattr(folder, name)
    for folder in FOLDERS
    for name in folder.__all__
}
CLASSES = {name: c for name, c in PUBLIC.items() if isinstance(c, type)}
FUNCTIONS = {name: f for name, f in PUBLIC.items() if inspect.isfunction(f)}
SAVED = (
    keras.Layer,
    keras.Loss,
    keras.Metric,
    keras.optimizers.schedules.LearningRateSchedule,
)


def ids(found):
    return pytest.mark.parametrize("public", found.values(), ids=found)


@pytest.mark.parametrize("folder", [kseq, *FOLDERS], ids=lambda f: f.__name__)
def test_all_is_sorted(folder):
    """Constants, then classes, then functions, as ruff sorts them."""

    def key(name):
        return 0 if name.isupper() and len(name) > 1 else 1 + name[0].islower(), name

    assert folder.__all__ == sorted(folder.__all__, key=key)
    assert inspect.getdoc(folder)


def test_every_public_name_has_one_home():
    names = [name.rpartition(".")[2] for name in PUBLIC]
    assert len(names) == len(set(names))


@ids({name: c for name, c in CLASSES.items() if issubclass(c, SAVED)})
def test_what_is_saved_is_registered(public):
    registered = keras.saving.get_registered_name(public)
    assert registered == f"kseq>{public.__name__}"
    assert keras.saving.get_registered_object(registered) is public


def parameters(function):
    """Those that kseq adds: a name and a dtype are Keras's, as is what it inherits."""
    if not function.__module__.startswith("kseq"):
        return []
    found = inspect.signature(function).parameters
    return [n for n in found if n not in ("self", "args", "kwargs", "name", "dtype")]


@ids(CLASSES)
def test_classes_are_documented(public):
    text = public.__doc__
    assert text
    # the fields of a record are named and typed where they stand
    record = issubclass(public, tuple) or dataclasses.is_dataclass(public)
    own = [] if record else parameters(public.__init__)
    assert not own or "Args:" in text
    for name in own:
        assert re.search(rf"\b{name}\b", text), f"{name} is not documented"
    if issubclass(public, keras.Layer):
        assert "Call arguments" in text
        assert re.search(r"\bReturns\b", text)
        assert ">>>" in text, "an example that runs"


@ids(FUNCTIONS)
def test_functions_are_documented(public):
    text = public.__doc__
    assert text
    for name in parameters(public):
        assert re.search(rf"\b{name}\b", text), f"{name} is not documented"
    if "Args:" in text and inspect.signature(public).return_annotation is not None:
        assert re.search(r"\b(Returns|Yields):", text)


@ids(PUBLIC)
def test_signatures_have_types(public):
    function = public.__init__ if isinstance(public, type) else public
    if not inspect.isfunction(function) or not function.__module__.startswith("kseq"):
        return
    for name, parameter in inspect.signature(function).parameters.items():
        if name != "self":
            assert parameter.annotation is not inspect.Parameter.empty, name
