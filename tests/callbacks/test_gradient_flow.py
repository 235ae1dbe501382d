"""What `GradientFlow` writes is what the diagnostics find, at the right step."""

import json

import keras
import numpy as np
import pytest
from callbacks.events import load, read_events

import kseq
from kseq.callbacks import GradientFlow
from kseq.diagnostics import gradient_by_depth, gradient_through_time

IDS = np.random.default_rng(0).integers(1, 9, (4, 5)).astype("int32")


def compiled(model):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.5), loss, jit_compile=True)
    return model


def recurrent_model():
    inputs = keras.Input((5,), dtype="int32")
    x = keras.layers.Embedding(9, 3)(inputs)
    x = kseq.layers.SimpleRNN(3, return_sequences=True, name="rnn")(x)
    x = kseq.layers.LSTM(3, return_sequences=True, name="lstm")(x)
    return compiled(keras.Model(inputs, keras.layers.Dense(9)(x)))


def fit(model, log_dir, *callbacks, epochs=2):
    return model.fit(
        IDS, IDS, batch_size=2, epochs=epochs, shuffle=False, verbose=0,
        callbacks=list(callbacks),
    ).history  # fmt: skip


def test_curves_through_time(tmp_path):
    model = recurrent_model()
    flow = GradientFlow(tmp_path, IDS[:2], IDS[:2])
    fit(model, tmp_path, flow)
    found = read_events(tmp_path / "kseq")
    names = "rnn", "lstm", "lstm[1]"
    assert set(found) == {f"through_time/{name}" for name in names}
    want = gradient_through_time(model, IDS[:2], IDS[:2])
    for name in names:
        records = found[f"through_time/{name}"]
        assert [step for step, _ in records] == [2, 4]
        norms, bound = want[name]
        rows = norms if bound is None else np.stack([norms, bound])
        np.testing.assert_allclose(records[-1][1], rows, rtol=1e-5)
        assert (name == "rnn") == (bound is not None)
    events = load(tmp_path / "kseq")
    metadata = events.SummaryMetadata("through_time/rnn")
    assert metadata.plugin_data.plugin_name == "kseq_through_time"
    content = json.loads(metadata.plugin_data.content)
    assert content == {"v": 1, "kind": "time", "label": "rnn"}


@pytest.mark.slow
def test_a_curve_by_depth(tmp_path):
    model = compiled(
        kseq.models.TransformerLM(9, num_layers=2, hidden_dim=4, num_heads=1)
    )
    fit(model, tmp_path, GradientFlow(tmp_path, IDS, IDS, every=2))
    found = read_events(tmp_path / "kseq")
    ((step, depth),) = found["through_time/depth"]
    want = gradient_by_depth(model, IDS, IDS).values()
    assert step == 4
    np.testing.assert_allclose(depth, [np.linalg.norm(n) for n in want], rtol=1e-5)


@pytest.mark.slow
def test_training_is_the_same_without_it(tmp_path):
    keras.utils.set_random_seed(1)
    plain = recurrent_model()
    keras.utils.set_random_seed(1)
    watched = recurrent_model()
    history = fit(plain, tmp_path)
    assert fit(watched, tmp_path, GradientFlow(tmp_path, IDS, IDS)) == history
    for a, b in zip(plain.get_weights(), watched.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_model_without_either_is_refused(tmp_path):
    inputs = keras.Input((5,), dtype="int32")
    dense = keras.layers.Dense(9, name="dense")
    model = compiled(keras.Model(inputs, dense(keras.layers.Embedding(9, 3)(inputs))))
    with pytest.raises(ValueError, match="must hold recurrent layers or"):
        fit(model, tmp_path, GradientFlow(tmp_path, IDS, IDS))
    fit(model, tmp_path, GradientFlow(tmp_path, IDS, IDS, layers=[dense]))
    assert set(read_events(tmp_path / "kseq")) == {"through_time/depth"}
