"""The norms are those of the gradients that train, however the step is compiled.

The oracle takes no gradient: SGD of rate 1 changes each weight by its gradient.
"""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from callbacks.events import load, read_events
from tiny_model import make_batches, make_model

from kseq.callbacks import GradientNorms

BATCH, STEPS = 2, 7
LAYERS = ["attention", "dense", "embedding"]
TAGS = {"gradient_norm/global", *(f"gradient_norm/{name}" for name in LAYERS)}
# all layers at once, for the dashboard
VECTOR = "gradient_norm"


def updates(model, x, y):
    """Norms of the change of the weights in each step, by tag."""
    norms = []
    for start in range(0, len(x), BATCH):
        before = [w.numpy() for w in model.trainable_weights]
        model.train_on_batch(x[start : start + BATCH], y[start : start + BATCH])
        changes = {name: 0.0 for name in LAYERS}
        for weight, old in zip(model.trainable_weights, before, strict=True):
            change = (weight.numpy() - old).astype("float64")
            changes[weight.path.split("/")[0]] += np.sum(change**2)
        row = {f"gradient_norm/{name}": s**0.5 for name, s in changes.items()}
        row["gradient_norm/global"] = sum(changes.values()) ** 0.5
        norms.append(row)
    return norms


def train(model, x, y, callbacks, **options):
    options = {"batch_size": BATCH, "shuffle": False, "verbose": 0, **options}
    return model.fit(x, y, callbacks=callbacks, **options)


def assert_norms(events, want, steps=None):
    steps = steps or range(1, len(want) + 1)
    for tag in TAGS:
        got_steps, got = zip(*events[tag], strict=True)
        assert got_steps == tuple(steps), tag
        wanted = [row[tag] for row in want]
        # weights of size 1 hold their change to about 1e-7
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6, err_msg=tag)


@pytest.fixture(scope="module")
def want():
    return updates(make_model(), *make_batches(STEPS))


@pytest.mark.parametrize(
    "options",
    [
        {"jit_compile": True},
        {"jit_compile": False},
        {"run_eagerly": True, "jit_compile": False},
        {"jit_compile": True, "steps_per_execution": 4},
        {"jit_compile": False, "steps_per_execution": 4},
    ],
    ids=lambda options: " ".join(f"{k}={v}" for k, v in options.items()),
)
def test_norms_equal_the_updates_of_sgd(options, want, tmp_path):
    model = make_model(**options)
    history = train(model, *make_batches(STEPS), [GradientNorms(tmp_path)])
    events = read_events(tmp_path / "kseq")
    assert set(events) == {*TAGS, VECTOR}
    assert_norms(events, want)
    assert set(history.history) == {"loss"}


def test_the_dashboard_gets_all_layers_in_one_record(want, tmp_path):
    train(make_model(), *make_batches(STEPS), [GradientNorms(tmp_path)])
    events = load(tmp_path / "kseq")
    [content] = events.PluginTagToContent("kseq_gradients").values()
    layers = json.loads(content)["layers"]
    # as the data flows
    assert layers == ["embedding", "attention", "dense"]
    steps, got = zip(*read_events(tmp_path / "kseq")[VECTOR])
    assert steps == tuple(range(1, STEPS + 1))
    wanted = [[row[f"gradient_norm/{name}"] for name in layers] for row in want]
    np.testing.assert_allclose(np.stack(got), wanted, rtol=1e-4, atol=1e-6)


def test_norms_are_taken_before_clipping(want, tmp_path):
    model = make_model(optimizer=keras.optimizers.SGD(1.0, global_clipnorm=1e-3))
    x, y = make_batches(STEPS)
    train(model, x[:BATCH], y[:BATCH], [GradientNorms(tmp_path)])
    assert want[0]["gradient_norm/global"] > 1e-2
    assert_norms(read_events(tmp_path / "kseq"), want[:1])


def test_norms_of_each_micro_batch_under_accumulation(tmp_path):
    x, y = make_batches(2)
    want = [
        updates(make_model(), x[start : start + BATCH], y[start : start + BATCH])[0]
        for start in (0, BATCH)
    ]
    optimizer = keras.optimizers.SGD(1.0, gradient_accumulation_steps=2)
    train(make_model(optimizer=optimizer), x, y, [GradientNorms(tmp_path)])
    # the first micro-batch comes after no update, the second completes one
    assert_norms(read_events(tmp_path / "kseq"), want, [0, 1])


def test_loss_scale_is_removed_and_skipped_steps_are_marked(want, tmp_path):
    # gradients times 1000 times 2^127 overflow float32 in the first steps; each
    # such step halves the scale
    optimizer = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(1e-3), initial_scale=2.0**127
    )
    model = make_model(optimizer=optimizer, loss_weights=1000.0)
    x, y = make_batches(STEPS)
    train(model, x[:BATCH], y[:BATCH], [GradientNorms(tmp_path)], epochs=12)
    events = read_events(tmp_path / "kseq")
    assert set(events) == {*TAGS, VECTOR, "gradient_norm/skipped"}
    skipped = [value for _, value in events["gradient_norm/skipped"]]
    first = skipped.index(0.0)
    assert first > 0
    assert skipped == [1.0] * first + [0.0] * (12 - first)
    steps, norms = zip(*events["gradient_norm/global"], strict=True)
    assert steps == (0,) * first + tuple(range(1, 13 - first))
    assert not np.isfinite(norms[0])
    wanted = 1000 * want[0]["gradient_norm/global"]
    np.testing.assert_allclose(norms[first], wanted, rtol=1e-4)


def test_fixed_loss_scale_is_removed(want, tmp_path):
    # without an embedding: Keras cannot unscale its sparse gradient on TensorFlow
    plain = keras.optimizers.SGD(1.0)
    scaled = keras.optimizers.SGD(1.0, loss_scale_factor=1024.0)
    norms = []
    for optimizer in (plain, scaled):
        directory = tmp_path / str(optimizer.loss_scale_factor)
        model = make_model(optimizer=optimizer, embedding_trainable=False)
        train(model, *make_batches(2), [GradientNorms(directory)])
        norms.append(read_events(directory / "kseq")["gradient_norm/dense"])
    np.testing.assert_allclose(norms[0], norms[1], rtol=1e-5)


def test_second_fit_goes_on_counting(want, tmp_path):
    model = make_model()
    x, y = make_batches(STEPS)
    half = 4 * BATCH
    callback = GradientNorms(tmp_path)
    train(model, x[:half], y[:half], [callback])
    train(model, x[half:], y[half:], [callback])
    assert_norms(read_events(tmp_path / "kseq"), want)


def test_restored_checkpoint_goes_on_counting(want, tmp_path):
    x, y = make_batches(STEPS)
    half = 4 * BATCH
    model = make_model()
    train(model, x[:half], y[:half], [GradientNorms(tmp_path / "first")])
    model.save(tmp_path / "model.keras")
    restored = keras.saving.load_model(tmp_path / "model.keras")
    train(restored, x[half:], y[half:], [GradientNorms(tmp_path / "second")])
    assert_norms(read_events(tmp_path / "second/kseq"), want[4:], [5, 6, 7])


def test_every_thins_by_step(tmp_path):
    train(make_model(), *make_batches(STEPS), [GradientNorms(tmp_path, every=3)])
    events = read_events(tmp_path / "kseq")
    assert [step for step, _ in events["gradient_norm/dense"]] == [3, 6]


def test_long_epochs_are_read_before_the_records_run_out(monkeypatch, tmp_path):
    monkeypatch.setattr("kseq.callbacks.gradient_norms._READ_EVERY", 2)
    model = make_model(steps_per_execution=2)
    train(model, *make_batches(13), [GradientNorms(tmp_path)])
    events = read_events(tmp_path / "kseq")
    steps = [step for step, _ in events["gradient_norm/global"]]
    assert steps == list(range(1, 14))


@pytest.mark.parametrize("steps_per_execution", [1, 4])
def test_training_is_the_same_with_and_without(steps_per_execution, tmp_path):
    def run(callbacks):
        model = make_model(
            optimizer=keras.optimizers.Adam(0.01, name="adam"),
            steps_per_execution=steps_per_execution,
        )
        history = train(model, *make_batches(STEPS), callbacks, epochs=2)
        return model, history

    model, history = run([GradientNorms(tmp_path)])
    plain, plain_history = run([])
    assert history.history == plain_history.history
    for got, want in zip(model.weights, plain.weights, strict=True):
        np.testing.assert_array_equal(got.numpy(), want.numpy())
    state, plain_state = model.optimizer.variables, plain.optimizer.variables
    assert [v.path for v in state] == [v.path for v in plain_state]
    for got, want in zip(state, plain_state, strict=True):
        np.testing.assert_array_equal(got.numpy(), want.numpy())


def hooks(model):
    """The methods that were replaced on the model or its optimizer."""
    names = {"apply", "stateless_apply", "train_step", "_kseq_optimizer_tap"}
    return names & {*vars(model), *vars(model.optimizer)}


class LookAndSave(keras.callbacks.Callback):
    def __init__(self, path):
        super().__init__()
        self.path = path

    def on_epoch_end(self, epoch, logs=None):
        self.hooks = hooks(self.model)
        self.model.save(self.path)


def test_saved_files_and_the_model_keep_no_trace(tmp_path):
    model = make_model(optimizer=keras.optimizers.Adam(0.01, name="adam"))
    look = LookAndSave(tmp_path / "during.keras")
    x, y = make_batches(3)
    train(model, x, y, [GradientNorms(tmp_path), look])
    assert look.hooks
    assert not hooks(model)
    restored = keras.saving.load_model(tmp_path / "during.keras")
    assert int(restored.optimizer.iterations) == 3
    for got, want in zip(
        restored.optimizer.variables, model.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(got.numpy(), want.numpy())
    assert set(train(model, x, y, []).history) == {"loss"}


class Interrupt(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 2:
            raise KeyboardInterrupt


def test_an_interrupted_fit_leaves_nothing_that_the_next_cannot_undo(want, tmp_path):
    model = make_model()
    x, y = make_batches(STEPS)
    with pytest.raises(KeyboardInterrupt):
        train(model, x, y, [GradientNorms(tmp_path / "first"), Interrupt()])
    assert hooks(model)
    rest = slice(2 * BATCH, None)
    train(model, x[rest], y[rest], [GradientNorms(tmp_path / "second")])
    assert_norms(read_events(tmp_path / "second/kseq"), want[2:], [3, 4, 5, 6, 7])
    assert not hooks(model)


def test_training_goes_on_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").touch()
    model = make_model()
    with pytest.warns(UserWarning, match="Nothing more is logged"):
        train(model, *make_batches(3), [GradientNorms(tmp_path / "file")], epochs=2)
    assert int(model.optimizer.iterations) == 6


@pytest.mark.slow
@pytest.mark.parametrize("error", ["KeyboardInterrupt", "ValueError"])
def test_a_program_that_ends_in_an_error_leaves_its_records(error, tmp_path):
    program = f"""
import keras
from tiny_model import make_batches, make_model
from kseq.callbacks import GradientNorms
class Stop(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 3:
            raise {error}
x, y = make_batches(5)
callbacks = [GradientNorms({str(tmp_path)!r}), Stop()]
make_model().fit(x, y, batch_size=2, verbose=0, callbacks=callbacks)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    assert result.stderr.strip().endswith(error)
    events = read_events(tmp_path / "kseq")
    assert [step for step, _ in events["gradient_norm/global"]] == [1, 2, 3]


def test_slow_steps_are_read_before_the_epoch_ends(monkeypatch, tmp_path):
    monkeypatch.setattr("kseq.callbacks.gradient_norms._READ_AFTER", 0.0)
    seen = []

    class Look(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 3:
                seen.append(read_events(tmp_path / "kseq"))

    train(make_model(), *make_batches(4), [GradientNorms(tmp_path), Look()])
    assert [step for step, _ in seen[0]["gradient_norm/global"]] == [1, 2, 3]


def test_two_in_one_fit_are_refused(tmp_path):
    callbacks = [GradientNorms(tmp_path / "a"), GradientNorms(tmp_path / "b")]
    with pytest.raises(RuntimeError, match=r"got two\. Pass one GradientNorms"):
        train(make_model(), *make_batches(1), callbacks)


def test_a_model_that_is_not_built_is_refused(tmp_path):
    model = keras.Sequential([keras.layers.Dense(2)])
    callback = GradientNorms(tmp_path)
    callback.set_model(model)
    with pytest.raises(ValueError, match="`model` must be built"):
        callback.on_train_begin()


def test_every_must_be_positive(tmp_path):
    with pytest.raises(ValueError, match="`every` must be a positive integer"):
        GradientNorms(tmp_path, every=0)


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="JAX alone")
def test_both_callbacks_run_on_jax_without_tensorflow(tmp_path):
    program = f"""
import sys
sys.modules["tensorflow"] = None
from tiny_model import make_batches, make_model
from kseq.callbacks import AttentionMaps, GradientNorms
x, y = make_batches(3)
callbacks = [GradientNorms({str(tmp_path)!r}), AttentionMaps({str(tmp_path)!r}, x[:2])]
make_model().fit(x, y, batch_size=2, verbose=0, callbacks=callbacks)
"""
    path = os.pathsep.join(sys.path)
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    events = read_events(tmp_path / "kseq")
    maps = {"attention/attention/1", "attention/attention/2"}
    assert {*TAGS, VECTOR, *maps, "attention_weights/attention"} == set(events)
