"""Config, `.keras` in this process, in a fresh one and on the other backend."""

import copy
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from helpers import assert_close, assert_same, to_numpy
from layer_cases import LAYER_CASES, cases

ROOT = Path(__file__).parents[2]
LOAD = """
import os, sys, warnings
import keras, numpy as np
warnings.simplefilter("error", UserWarning)  # what Keras warns with
import kseq
folder = sys.argv[1]
arrays = np.load(os.path.join(folder, "inputs.npz"))
outputs = {}
for name in sorted({key.split("/")[0] for key in arrays}):
    model = keras.saving.load_model(os.path.join(folder, name + ".keras"))
    x = [arrays[key] for key in arrays if key.split("/")[0] == name]
    y = keras.tree.flatten(model(x if len(x) > 1 else x[0]))
    outputs |= {f"{name}/{i}": keras.ops.convert_to_numpy(v) for i, v in enumerate(y)}
np.savez(os.path.join(folder, "outputs.npz"), **outputs)
"""


def model_of(case, **options):
    """A functional model of one layer, and its flat inputs."""
    layer = case.built(**options)
    symbolic = case.symbolic(static=False)
    flat = keras.tree.flatten(symbolic)
    outputs = layer(*symbolic, **case.options)
    model = keras.Model(flat if len(flat) > 1 else flat[0], outputs)
    x = keras.tree.flatten(case.inputs())
    return model, x if len(x) > 1 else x[0]


@cases()
def test_config_round_trip(case):
    layer = case.make(0.25, name="other", dtype="mixed_bfloat16")
    config = layer.get_config()
    # a copy: StackedRNNCells.from_config takes things out of what it is given
    again = type(layer).from_config(copy.deepcopy(config))
    assert again.get_config() == config
    assert again.name == "other"
    assert again.dtype_policy.name == "mixed_bfloat16"
    # through JSON, as it is saved
    serialized = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    assert serialized["registered_name"] == f"kseq>{type(layer).__name__}"
    again = keras.saving.deserialize_keras_object(serialized)
    assert again.get_config() == config


@cases()
def test_a_loaded_model_is_the_same(case, tmp_path):
    model, x = model_of(case, rate=0.25)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert_same("outputs", again(x), model(x))
    assert [w.path for w in again.weights] == [w.path for w in model.weights]
    assert_same("weights", again.get_weights(), model.get_weights())


def loaded_elsewhere(folder, backend):
    """Saves every case, loads all in one process of `backend`; both outputs."""
    inputs, want = {}, {}
    for layer_class, case in LAYER_CASES.items():
        name = layer_class.__name__
        model, x = model_of(case)
        model.save(folder / f"{name}.keras")
        flat = keras.tree.flatten(x)
        inputs |= {f"{name}/{i}": array for i, array in enumerate(flat)}
        want[name] = [to_numpy(y) for y in keras.tree.flatten(model(x))]
    np.savez(folder / "inputs.npz", **inputs)
    result = subprocess.run(
        [sys.executable, "-c", LOAD, str(folder)],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    found = np.load(folder / "outputs.npz")
    got = {
        name: [found[f"{name}/{i}"] for i in range(len(ys))]
        for name, ys in want.items()
    }
    return got, want


def test_all_load_in_a_fresh_process(tmp_path):
    """Without `custom_objects` and without a warning."""
    got, want = loaded_elsewhere(tmp_path, keras.backend.backend())
    assert_close("outputs", got, want)


@pytest.mark.slow
def test_all_load_on_the_other_backend(tmp_path):
    other = {"tensorflow": "jax", "jax": "tensorflow"}[keras.backend.backend()]
    if importlib.util.find_spec(other) is None:
        pytest.skip(f"{other} is not installed")
    got, want = loaded_elsewhere(tmp_path, other)
    assert_close("outputs", got, want)
