"""capture and record: maps of every layer, also from inside a loop."""

import keras
import numpy as np
import pytest
from helpers import assert_close, assert_same
from layers.attention_decoders import B, D, M, S, T, data, make_cell

import kseq
from kseq.backend import compiled
from kseq.layers.attention.capture import capture, no_capture, record


def make():
    layer = kseq.layers.AttentionRNN(make_cell("gru"), name="decoder")
    layer.build((B, T, D), (B, S, M))
    return layer


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
def test_the_map_of_a_loop(jit):
    """Once, as `(B, T, S)`: what the steps record inside the loop stays there."""
    layer = make()
    x, memory, _ = data("gru")
    want = layer(x, memory, return_attention_scores=True)

    def call(x, memory):
        with capture() as maps:
            outputs = layer(x, memory)
        return outputs, dict(maps)

    outputs, maps = (compiled(call, layer.variables) if jit else call)(x, memory)
    assert list(maps) == ["decoder"]
    assert_close("weights", maps["decoder"], want[1])
    assert_close("outputs", outputs, want[0])


def test_outputs_are_the_same_with_and_without():
    layer = make()
    x, memory, _ = data("gru")
    with capture():
        captured = layer(x, memory)
    assert_same("outputs", captured, layer(x, memory))


def test_a_layer_called_again_is_numbered():
    attention = kseq.layers.LuongAttention("dot", name="luong")
    x = np.ones((2, 3, 4), "float32")
    with capture() as maps:
        attention(x, x)
        attention(x[:, :1], x)
        attention(x, x[:, :2])
    shapes = {name: tuple(w.shape) for name, w in maps.items()}
    assert shapes == {"luong": (2, 3, 3), "luong#2": (2, 1, 3), "luong#3": (2, 3, 2)}


def test_an_inner_capture_hides_the_outer():
    layer = keras.layers.Dense(1, name="layer")
    layer.build((1, 1))
    with capture() as outer:
        with capture() as inner:
            record(layer, 1)
        with no_capture():
            record(layer, 2)
        record(layer, 3)
    record(layer, 4)
    assert inner == {"layer": 1}
    assert outer == {"layer": 3}


def test_an_error_inside_ends_the_capture():
    layer = keras.layers.Dense(1, name="layer")
    layer.build((1, 1))
    with pytest.raises(KeyError), capture() as maps:
        raise KeyError
    record(layer, 1)
    assert maps == {}


def keras_model():
    """One of each attention layer of Keras, one of which is asked for its weights."""
    x = keras.Input((T, 6))
    y = keras.layers.MultiHeadAttention(2, 3, name="multi_head")(
        x, x, use_causal_mask=True
    )
    y = keras.layers.Attention(name="dot")([y, x])
    y, weights = keras.layers.GroupQueryAttention(3, 4, 2, name="grouped")(
        y, y, return_attention_scores=True
    )
    y = keras.layers.AdditiveAttention(name="additive")([y, y])
    return keras.Model(x, [y, weights])


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
def test_the_layers_of_keras(jit):
    """Weights that sum to 1 from each; outputs as before; no trace in the classes."""
    model = keras_model()
    x = np.random.default_rng(0).normal(size=(B, T, 6)).astype("float32")
    want = model(x)

    def call(x):
        with capture() as maps:
            outputs = model(x)
        return outputs, dict(maps)

    outputs, maps = (compiled(call, model.variables) if jit else call)(x)
    shapes = {name: tuple(weights.shape) for name, weights in maps.items()}
    assert shapes == {
        "multi_head": (B, 2, T, T),
        "dot": (B, T, T),
        "grouped": (B, 4, T, T),
        "additive": (B, T, T),
    }
    for name, weights in maps.items():
        assert_close(name, np.sum(weights, -1), np.ones(shapes[name][:-1]))
    assert_close("grouped", maps["grouped"], want[1])
    assert not np.triu(np.asarray(maps["multi_head"]), 1).any()
    assert_close("outputs", outputs, want)
    assert "__call__" not in vars(keras.layers.MultiHeadAttention)


def test_statistics_of_weights():
    """Of `AttentionRNN` and of a layer of Keras: numbers in the place of maps."""
    layer = make()
    x, memory, _ = data("gru")
    _, weights = layer(x, memory, return_attention_scores=True)
    weights = np.asarray(weights).astype("float64")
    with capture(statistics=True) as found:
        layer(x, memory)
        keras.layers.Attention(name="dot")([memory, memory])
    assert list(found) == ["decoder", "dot"]
    distance = np.abs(np.arange(T)[:, None] - np.arange(S))
    want = {
        "entropy": -(weights * np.log(weights)).sum(-1),
        "max_weight": weights.max(-1),
        "first_key": weights[..., 0],
        "mean_distance": (weights * distance).sum(-1),
    }
    assert_close("statistics", found["decoder"], want)
    assert found["dot"]["entropy"].shape == (B, S)
