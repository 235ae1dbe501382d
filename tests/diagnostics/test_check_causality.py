"""Planted leaks are found and named; causal models have none."""

import keras
import numpy as np
import pytest
from keras import ops

import kseq
from kseq.diagnostics import check_causality

TIME, WIDTH = 5, 4
IDS = np.random.default_rng(0).integers(1, 11, (2, TIME)).astype("int32")


def features(length=TIME):
    x = np.random.default_rng(1).normal(size=(3, length, WIDTH))
    return x.astype("float32")


def model_with(*layers):
    """`layers` between two that are causal."""
    inputs = x = keras.Input((None, WIDTH))
    x = kseq.layers.GRU(WIDTH, return_sequences=True, name="before")(x)
    for layer in layers:
        x = layer(x)
    return keras.Model(inputs, keras.layers.Dense(3, name="after")(x))


def kseq_attention(**options):
    layer = kseq.layers.MultiHeadAttention(2, 2, name="attention")
    return lambda x: layer(x, x, **options)


def keras_attention(**options):
    layer = keras.layers.MultiHeadAttention(2, 2, name="attention")
    return lambda x: layer(x, x, **options)


def shifted_mask(x):
    """Query t sees key t + 1."""
    places = np.arange(TIME)
    mask = (places[None, :] <= places[:, None] + 1)[None]
    return keras_attention(attention_mask=mask)(x)


def reversed_convolution(x):
    """Causal after a flip, that is anti-causal."""
    convolution = keras.layers.Conv1D(WIDTH, 2, padding="causal", name="convolution")
    return ops.flip(convolution(ops.flip(x, 1)), 1)


def mean_over_time(x):
    pooled = keras.layers.GlobalAveragePooling1D()(x)
    return x + keras.layers.RepeatVector(TIME, name="repeated")(pooled)


@keras.saving.register_keras_serializable(package="kseq_tests")
class Subclassed(keras.Model):
    """A loop of its own around layers, one of which looks ahead."""

    def __init__(self):
        super().__init__(name="subclassed")
        self.before = keras.layers.Dense(WIDTH, name="before")
        self.ahead = keras.layers.Conv1D(WIDTH, 3, padding="same", name="ahead")

    def call(self, x):
        x = self.before(x)
        return x + self.ahead(x)


LEAKS = {
    "no mask, of kseq": (kseq_attention(), "attention", (0, 1)),
    "no mask, of Keras": (keras_attention(), "attention", (0, 1)),
    "mask with a wrong offset": (shifted_mask, "attention", (0, 1)),
    "padding on both sides": (
        keras.layers.Conv1D(WIDTH, 3, padding="same", name="same"), "same", (0, 1)
    ),
    "both directions": (
        keras.layers.Bidirectional(
            kseq.layers.GRU(2, return_sequences=True), name="both"
        ),
        # its cell runs in a loop that can't be seen into
        "both/backward_gru",
        (0, 1),
    ),
    "reversed convolution": (reversed_convolution, "flip", (0, 1)),
    "mean over time": (mean_over_time, "repeated", (0, 1)),
    "norm over time": (
        keras.layers.UnitNormalization(axis=(1, 2), name="norm"), "norm", (0, 1)
    ),
}  # fmt: skip


@pytest.mark.parametrize(("leak", "layer", "places"), LEAKS.values(), ids=LEAKS)
def test_a_leak_is_found_and_named(leak, layer, places):
    report = check_causality(model_with(leak), features(), training=False)
    assert not report
    assert not report.ok
    assert (report.output_position, report.input_position) == places
    assert report.layer.rstrip("0123456789_") == layer
    assert report.difference > 0
    assert f"by layer `{report.layer}`" in str(report)


def test_a_leak_in_a_subclassed_model():
    model = Subclassed()
    model(features())
    report = check_causality(model, features(), training=False)
    assert report.layer == "subclassed/ahead"


def test_a_window_that_begins_later():
    """Output t sees inputs t and t + 2."""
    inputs = keras.Input((TIME, WIDTH))
    model = keras.Model(inputs, inputs[:, :-2] + inputs[:, 2:])
    with pytest.raises(ValueError, match="must have the time axis"):
        check_causality(model, features())
    ahead = ops.pad(inputs[:, 2:], ((0, 0), (0, 2), (0, 0)))
    model = keras.Model(inputs, inputs + ahead)
    report = check_causality(model, features(), training=False)
    assert (report.output_position, report.input_position) == (0, 2)


def test_batch_normalization_leaks_in_training_only():
    model = model_with(keras.layers.BatchNormalization(name="norm"))
    before = model.get_weights()
    assert check_causality(model, features(), training=False)
    report = check_causality(model, features())
    assert (report.layer, report.training) == ("norm", True)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


CAUSAL = {
    "convolution": keras.layers.Conv1D(WIDTH, 3, padding="causal"),
    "attention of kseq": kseq_attention(use_causal_mask=True),
    "attention of Keras": keras_attention(use_causal_mask=True),
    "dropout": keras.layers.Dropout(0.5, seed=1),
}


@pytest.mark.parametrize("layer", CAUSAL.values(), ids=CAUSAL)
def test_a_causal_model_passes(layer):
    report = check_causality(model_with(layer), features())
    assert report, report
    assert str(report) == "No output depends on a later input."


def test_ids():
    model = kseq.models.TransformerLM(11, num_layers=1, hidden_dim=8, num_heads=2)
    assert check_causality(model, IDS, training=False)


def test_one_of_several_inputs():
    model = kseq.models.RecurrentSeq2Seq(11, 11, embedding_dim=4, units=4)
    x = {"source_ids": IDS, "target_ids": IDS[:, ::-1].copy()}
    assert check_causality(model, x, key="target_ids", training=False)
    # every output sees the whole source
    report = check_causality(model, x, key="source_ids", training=False)
    assert (report.output_position, report.input_position) == (0, 1)
    with pytest.raises(ValueError, match="`key` must choose one of the inputs"):
        check_causality(model, x)


def test_what_can_not_be_checked():
    model = keras.Sequential([keras.Input((TIME, WIDTH)), kseq.layers.GRU(3)])
    with pytest.raises(ValueError, match="must have the time axis of the inputs"):
        check_causality(model, features())
    with pytest.raises(ValueError, match="two at least differ"):
        check_causality(model, np.ones((2, TIME), "int32"))
    dense = keras.layers.Dense(3, bias_initializer=keras.initializers.Constant(np.nan))
    model = keras.Sequential([keras.Input((TIME, WIDTH)), dense])
    with pytest.raises(ValueError, match="must be finite somewhere"):
        check_causality(model, features())


@pytest.mark.parametrize("kind", [keras.layers.LSTM, kseq.layers.LSTM])
def test_a_kept_state_is_the_same_in_every_run(kind):
    layer = kind(4, return_sequences=True, stateful=True)
    x = features()
    model = keras.Sequential([keras.Input(batch_shape=x.shape), layer])
    model.predict(x, verbose=0)
    before = [ops.convert_to_numpy(s.value) for s in layer.states]
    assert check_causality(model, x)
    for state, value in zip(layer.states, before, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(state.value), value)
