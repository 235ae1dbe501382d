"""The arrows of CONTRIBUTING.md: which folder may import which."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "kseq"
MODULES = sorted(ROOT.rglob("*.py"))
MAY_IMPORT = {
    "backend": set(),
    "ops": {"backend"},
    "layers": {"backend", "ops"},
    "models": {"backend", "ops", "layers", "generation", "training"},
    "generation": {"backend", "ops"},
    "training": {"backend", "ops"},
    "diagnostics": {
        "backend",
        "ops",
        "layers.attention.capture",
        "layers.blocks.transformer_block",
        "layers.recurrent.simple_rnn_cell",
        "layers.recurrent.state_tap",
    },
    "callbacks": {"backend", "diagnostics"},
    "data": set(),
}


def imported(source):
    """Full dotted names, as written, at any depth of the code."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def folder(path):
    """The folder of `kseq` that a module is in; "" for those beside them."""
    parts = path.relative_to(ROOT).parts
    return parts[0] if len(parts) > 1 else ""


def test_every_folder_has_its_rule():
    assert set(MAY_IMPORT) == {folder(path) for path in MODULES} - {""}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_arrows(path):
    here = folder(path)
    for name in imported(path.read_text()):
        top, _, rest = name.partition(".")
        if top in ("tensorflow", "jax"):
            assert here == "backend", f"{name}: only kseq/backend names a backend"
        assert not name.startswith("keras.src"), f"{name} is private"
        assert top not in ("tests", "examples", "matplotlib", "keras_hub")
        if top != "kseq" or not here or rest.startswith("_"):
            continue
        allowed = {here, *MAY_IMPORT[here]}
        ok = any(rest == a or rest.startswith(f"{a}.") for a in allowed)
        assert ok, f"kseq/{here} must not import {name}"


def test_the_families_of_layers_build_on_each_other_one_way():
    for path in (ROOT / "layers" / "recurrent").glob("*.py"):
        for name in imported(path.read_text()):
            assert not name.startswith("kseq.layers.attention"), path


def test_a_forbidden_import_is_seen():
    source = "def f():\n    import jax.numpy as jnp\nfrom kseq.layers import GRU"
    assert sorted(imported(source)) == ["jax.numpy", "kseq.layers.GRU"]


def test_tables_of_contents_hold_no_code():
    for path in ROOT.rglob("__init__.py"):
        for node in ast.parse(path.read_text()).body:
            docstring = isinstance(node, ast.Expr) and isinstance(
                node.value, ast.Constant
            )
            names = isinstance(node, ast.Assign) and node.targets[0].id in (
                "__all__", "__version__"
            )  # fmt: skip
            assert docstring or names or isinstance(node, ast.ImportFrom), path
