"""Attention weights of a model, outside of its own compiled functions."""

import keras
import numpy as np
import pytest
from keras import ops
from tiny_model import TIME, TinyAttention, attention_weights, make_batches, make_model

import kseq
from kseq.diagnostics import AttentionProbe, attention_maps

X, Y = make_batches(2)


def reference(model, ids):
    table, kernel, *_ = model.get_weights()
    return attention_weights(table[ids], kernel)


def test_maps_by_layer_path():
    model = make_model()
    maps = attention_maps(model, X)
    assert set(maps) == {"attention"}
    assert isinstance(maps["attention"], np.ndarray)
    np.testing.assert_allclose(maps["attention"], reference(model, X), rtol=2e-5)


def test_heads_come_as_they_are():
    maps = attention_maps(make_model(heads=3), X)
    assert maps["attention"].shape == (4, 3, TIME, TIME - 1)


def test_half_precision_weights_come_as_float32():
    layer = TinyAttention(dtype="bfloat16", name="attention")
    inputs = keras.Input((TIME, 3))
    model = keras.Model(inputs, layer(inputs))
    maps = attention_maps(model, np.ones((2, TIME, 3), "float32"))
    assert maps["attention"].dtype == "float32"


def test_a_layer_called_twice_gives_both():
    layer = TinyAttention(name="attention")
    inputs = keras.Input((TIME, 3), name="x")
    model = keras.Model({"x": inputs}, layer(layer(inputs)))
    maps = attention_maps(model, {"x": np.ones((2, TIME, 3), "float32")})
    assert set(maps) == {"attention", "attention#2"}


def test_maps_come_in_the_order_of_the_calls():
    inputs = keras.Input((TIME, 3))
    x = TinyAttention(name="second")(TinyAttention(name="third")(inputs))
    model = keras.Model(inputs, TinyAttention(name="first")(x))
    maps = attention_maps(model, np.ones((2, TIME, 3), "float32"))
    assert list(maps) == ["third", "second", "first"]


def test_probe_traces_once_and_follows_training():
    traces = []

    class Counted(TinyAttention):
        def call(self, x):
            traces.append(1)
            return super().call(x)

    ids = keras.Input((TIME,), dtype="int32")
    x = keras.layers.Embedding(11, 3, name="embedding")(ids)
    model = keras.Model(ids, Counted(name="attention")(x))
    model.compile(keras.optimizers.SGD(1.0), "mse")
    probe = AttentionProbe(model)
    probe(X)
    before = len(traces)
    for _ in range(2):
        model.set_weights([w + 0.5 for w in model.get_weights()])
        np.testing.assert_allclose(
            probe(X)["attention"], reference(model, X), rtol=2e-5
        )
    assert len(traces) == before


def test_the_compiled_functions_of_the_model_stay_as_they_are():
    model = make_model()
    outputs = model.predict(X, verbose=0)
    function = model.predict_function
    attention_maps(model, X)
    assert model.predict_function is function
    np.testing.assert_array_equal(model.predict(X, verbose=0), outputs)


def test_dropout_is_off():
    inputs = keras.Input((TIME, 3))
    dropped = keras.layers.Dropout(0.5, seed=1)(inputs)
    model = keras.Model(inputs, TinyAttention(name="attention")(dropped))
    x = np.random.default_rng(0).normal(size=(2, TIME, 3)).astype("float32")
    got = attention_maps(model, x)["attention"]
    np.testing.assert_allclose(got, attention_weights(x, *model.get_weights()), 2e-5)


def test_a_model_without_attention_is_refused():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with pytest.raises(
        ValueError, match="must hold a layer that has attention weights"
    ):
        attention_maps(model, ops.ones((2, 3)))


def test_a_model_that_is_not_built_is_refused():
    model = keras.Sequential([keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="`model` must be built"):
        attention_maps(model, np.ones((2, 3)))


def test_a_kept_state_stays():
    """What a stateful layer has read of the training is not what the probe reads."""
    inputs = keras.Input(batch_shape=(2, TIME, 3))
    layer = kseq.layers.GRU(4, return_sequences=True, stateful=True)
    x = layer(inputs)
    model = keras.Model(inputs, keras.layers.MultiHeadAttention(1, 4)(x, x))
    x = np.random.default_rng(0).normal(size=(2, TIME, 3))
    model.predict(x, verbose=0)
    first, second = (attention_maps(model, x) for _ in range(2))
    for name, weights in first.items():
        np.testing.assert_array_equal(weights, second[name])
