"""All builders in `fit` under XLA, saved, loaded here, elsewhere and on the other
backend; and trained without their logits.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from helpers import assert_close, assert_same, gradients, to_numpy
from keras import ops
from models.small_models import (
    PAIR,
    ROWS,
    SOURCES,
    N,
    encoder,
    language_model,
    recurrent,
    seq2seq,
    spread,
)

import kseq
from kseq.layers import PositionEmbedding, RotaryEmbedding
from kseq.training import MaskedCrossentropy, TokenAccuracy, VocabularyTrainer

ROOT = Path(__file__).parents[2]
TARGETS = np.where(ROWS, np.roll(ROWS, -1, axis=1), 0)


def with_yarn(**options):
    rotary = RotaryEmbedding(scaling=kseq.ops.YaRNScaling(2, 64))
    gated = {"activation": "swiglu", "norm": "rms", "use_bias": False}
    return language_model(positions=rotary, **gated, **options)


BUILDERS = {
    "TransformerLM": with_yarn,
    "Remat": lambda **options: language_model(
        remat=True, positions=PositionEmbedding(7), tie_embeddings=False, **options
    ),
    "TransformerSeq2Seq": lambda **options: seq2seq(
        source_vocabulary_size=N, share_embeddings=True, placement="post", **options
    ),
    "Tagger": lambda **options: encoder(positions="t5", **options).tagger(N),
    "RecurrentLM": lambda **options: recurrent(tie_embeddings=True, **options),
}


def recurrent_seq2seq():
    return spread(kseq.models.RecurrentSeq2Seq(11, N, 6, 8))


def inputs(name):
    return PAIR if "Seq2Seq" in name else ROWS


def compiled(model):
    model.compile(
        keras.optimizers.Adam(0.03),
        MaskedCrossentropy(),
        metrics=[TokenAccuracy()],
        jit_compile=True,
    )
    return model


def fit(model, name, epochs=1, length=None):
    x = inputs(name)
    cut = slice(None, length)
    if isinstance(x, dict):
        x = {key: ids[:, cut] for key, ids in x.items()}
    else:
        x = x[:, cut]
    history = model.fit(x, TARGETS[:, cut], batch_size=3, epochs=epochs, verbose=0)
    return history.history["loss"]


@pytest.mark.parametrize("name", BUILDERS)
def test_a_loaded_model_is_the_same(name, tmp_path):
    model = BUILDERS[name]()
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    if name != "Tagger":  # a plain functional model, with the shapes of its layers
        assert again.get_config() == model.get_config()
    assert [w.path for w in again.weights] == [w.path for w in model.weights]
    assert_same("logits", again(inputs(name)), model(inputs(name)))


@pytest.fixture(scope="module", params=BUILDERS)
def trained(request):
    """A model after some steps, and how often its program was traced."""
    model, traces = BUILDERS[request.param](), []
    layer = next(
        layer
        for layer in model.layers
        if isinstance(layer, keras.layers.LayerNormalization | kseq.layers.RNN)
        or type(layer).__name__.endswith("Block")
    )
    call = layer.call
    layer.call = lambda *args, **kwargs: traces.append(1) or call(*args, **kwargs)
    losses = fit(compiled(model), request.param, epochs=12)
    del layer.call  # it would be saved with the layer
    return request.param, model, losses, len(traces)


@pytest.mark.slow
def test_fit_learns_and_traces_once(trained):
    _, _, losses, traces = trained
    assert losses[-1] < 0.7 * losses[0]
    assert traces <= 2  # JAX runs it once more to see its shapes


@pytest.mark.slow
def test_kernels_are_drawn_as_asked():
    """Each by itself, in every block of every builder; configs keep the initializer."""
    options = {"kernel_initializer": keras.initializers.RandomNormal(stddev=0.02)}
    sizes = {"num_layers": 2, "hidden_dim": 64, "num_heads": 4}
    for model in (
        kseq.models.TransformerLM(11, **sizes, **options),
        kseq.models.TransformerEncoder(11, **sizes, **options),
        kseq.models.TransformerSeq2Seq(11, 11, **sizes, **options),
    ):
        kernels = [w for w in model.weights if "kernel" in w.path]
        assert len(kernels) == len({to_numpy(w).flat[0] for w in kernels}) >= 12
        for kernel in kernels:
            assert abs(to_numpy(kernel).std() - 0.02) < 0.002, kernel.path
        again = type(model).from_config(model.get_config())
        assert again.kernel_initializer.stddev == 0.02


def test_a_trained_model_loads_and_goes_on(trained, tmp_path):
    """With its optimizer: the next steps are those of the model that was saved."""
    name, model, *_ = trained
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert_same("logits", again(inputs(name)), model(inputs(name)))
    if name == "TransformerSeq2Seq":
        ids = model.generate(SOURCES, max_length=5).token_ids
        np.testing.assert_array_equal(
            again.generate(SOURCES, max_length=5).token_ids, ids
        )
    assert int(again.optimizer.iterations) == int(model.optimizer.iterations)
    assert_close("losses", fit(again, name, epochs=2), fit(model, name, epochs=2))


LOAD = """
import os, sys, warnings
import keras, numpy as np
warnings.simplefilter("error", UserWarning)  # what Keras warns with
import kseq
folder = sys.argv[1]
given = np.load(os.path.join(folder, "inputs.npz"))
pair = {"source_ids": given["source_ids"], "target_ids": given["target_ids"]}
found = {}
for file in sorted(os.listdir(folder)):
    if not file.endswith(".keras"):
        continue
    name = file.split(".")[0]
    model = keras.saving.load_model(os.path.join(folder, file))
    x = pair if "Seq2Seq" in name else pair["target_ids"]
    found[name] = keras.ops.convert_to_numpy(model(x))
    if "Seq2Seq" in name:
        found[name + " ids"] = model.generate(x["source_ids"], max_length=5).token_ids
    elif hasattr(model, "generate"):
        found[name + " ids"] = model.generate(x, 3).token_ids
    if getattr(model, "optimizer", None) is not None:
        model.fit(x, given["targets"], verbose=0)
np.savez(os.path.join(folder, "outputs.npz"), **found)
"""


def loaded_elsewhere(folder, backend):
    """Saves compiled models, loads all in one process, where one is trained further."""
    np.savez(folder / "inputs.npz", targets=TARGETS, **PAIR)
    want = {}
    builders = {**BUILDERS, "RecurrentSeq2Seq": recurrent_seq2seq}
    for name, build in builders.items():
        model = build()
        if name == "TransformerLM":
            # Keras loads no optimizer that had not yet seen its variables
            compiled(model).optimizer.build(model.trainable_variables)
        model.save(folder / f"{name}.keras")
        want[name] = to_numpy(model(inputs(name)))
        if "Seq2Seq" in name:
            want[f"{name} ids"] = model.generate(SOURCES, max_length=5).token_ids
        elif hasattr(model, "generate"):
            want[f"{name} ids"] = model.generate(ROWS, 3).token_ids
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
    for name, value in want.items():
        if name.endswith(" ids"):
            np.testing.assert_array_equal(found[name], value, err_msg=name)
            continue
        real = ROWS != 0
        np.testing.assert_allclose(
            found[name][real], value[real], rtol=2e-5, atol=2e-5, err_msg=name
        )


@pytest.mark.slow
def test_all_load_in_a_fresh_process(tmp_path):
    """Without `custom_objects` and without a warning; and one goes on training."""
    loaded_elsewhere(tmp_path, keras.backend.backend())


@pytest.mark.slow
def test_all_load_on_the_other_backend(tmp_path):
    other = {"tensorflow": "jax", "jax": "tensorflow"}[keras.backend.backend()]
    if importlib.util.find_spec(other) is None:
        pytest.skip(f"{other} is not installed")
    loaded_elsewhere(tmp_path, other)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["TransformerLM", "TransformerSeq2Seq"])
def test_half_precision_trains(name):
    """In mixed_bfloat16, with dropout: the loss stays finite and falls."""
    model = compiled(BUILDERS[name](dtype="mixed_bfloat16", dropout=0.1))
    losses = fit(model, name, epochs=15)
    assert np.isfinite(losses).all()
    assert losses[-1] < 0.7 * losses[0]
    assert {w.dtype for w in model.trainable_variables} == {"float32"}


@pytest.mark.slow
def test_a_new_length_is_a_new_program_and_an_old_one_is_not():
    model, traces = BUILDERS["TransformerLM"](), []
    call = model.blocks[0].call
    model.blocks[0].call = lambda *a, **k: traces.append(1) or call(*a, **k)
    compiled(model)
    counts = []
    for length in (5, 4, 5, 4):
        fit(model, "TransformerLM", length=length)
        counts.append(len(traces))
    assert counts[0] < counts[1] == counts[2] == counts[3]


@pytest.mark.parametrize(
    "build",
    [
        language_model,
        lambda: language_model(tie_embeddings=False, placement="post"),
        seq2seq,
        recurrent,
    ],
    ids=["tied", "untied", "seq2seq", "recurrent"],
)
def test_trunk_and_head_train_without_logits(build):
    """The loss of `VocabularyTrainer` and its gradients are those of the model."""
    model = build()
    x = PAIR if isinstance(model.input, dict) else ROWS
    trainer = VocabularyTrainer(model.trunk, model.head, chunk_size=3)
    variables = model.trainable_variables
    assert {id(v) for v in trainer.trainable_variables} == {id(v) for v in variables}
    loss = MaskedCrossentropy()
    targets = ops.convert_to_tensor(TARGETS)
    want = gradients(lambda: loss(targets, model(x)), [], variables)
    got = gradients(
        lambda: trainer.compute_loss(y=targets, y_pred=trainer(x)), [], variables
    )
    assert_close("loss", got[0], want[0])
    assert_close("gradients", got[2], want[2], gradient=True)


def test_the_trunk_has_the_weights_and_inputs_of_the_model():
    model = language_model(tie_embeddings=False)
    trunk = model.trunk
    hidden = trunk(ROWS)
    assert hidden.shape == (*ROWS.shape, model.hidden_dim)
    assert_same("logits", model.logits(hidden), model(ROWS))
    assert len(trunk.weights) == len(model.weights) - 1
