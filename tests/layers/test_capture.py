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
