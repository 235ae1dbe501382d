"""SimpleRNN, GRU and LSTM against the layers of Keras with the same weights."""

import keras
import numpy as np
import pytest
from helpers import assert_close, gradients, set_weights_by_seed

import kseq

NAMES = ["SimpleRNN", "GRU", "LSTM"]
B, T, D, U = 2, 5, 3, 4
X = np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")
RIGHT = np.array([[True] * 5, [True] * 3 + [False] * 2])
MIXED = np.array([[False, False, True, True, True], [True, False, True, False, True]])


def pair(name, **options):
    ours = getattr(kseq.layers, name)(U, **options)
    theirs = getattr(keras.layers, name)(U, **options)
    ours.build((B, T, D))
    theirs.build((B, T, D))
    theirs.set_weights(set_weights_by_seed(ours, 1))
    return ours, theirs


@pytest.mark.parametrize(
    ("options", "mask"),
    [
        ({}, None),
        ({"go_backwards": True}, None),
        ({"use_bias": False}, RIGHT),
        ({"zero_output_for_mask": True}, MIXED),
    ],
    ids=["plain", "backward", "right", "mixed-zero-output"],
)
@pytest.mark.parametrize("name", NAMES)
def test_outputs_states_and_every_gradient(name, options, mask):
    options = {"return_sequences": True, "return_state": True, **options}
    ours, theirs = pair(name, **options)
    kwargs = {} if mask is None else {"mask": mask}

    def run(layer):
        call = lambda x: list(layer(x, **kwargs))
        return gradients(call, [X], layer.trainable_variables)

    assert_close("outputs and gradients", run(ours), run(theirs))


@pytest.mark.parametrize("name", NAMES)
def test_first_weights_and_paths_are_those_of_keras(name):
    ours, theirs = (
        getattr(layers, name)(U, kernel_initializer=keras.initializers.HeNormal(seed=3),
                              recurrent_initializer="identity", name="rnn")
        for layers in (kseq.layers, keras.layers)
    )  # fmt: skip
    ours.build((B, T, D))
    theirs.build((B, T, D))
    assert_close("weights", ours.get_weights(), theirs.get_weights())
    assert [w.name for w in ours.weights] == [w.name for w in theirs.weights]


@pytest.mark.parametrize("name", NAMES)
def test_the_layer_is_the_cell_in_an_rnn(name):
    """Every argument of the cell reaches it, and every one of the layer the layer."""
    cell = getattr(kseq.layers, name + "Cell")
    options = {
        "activation": "relu", "use_bias": False, "dropout": 0.1, "seed": 2,
        "recurrent_dropout": 0.3, "kernel_regularizer": keras.regularizers.L2(0.1),
    }  # fmt: skip
    runs = {
        "return_sequences": True, "return_state": True, "go_backwards": True,
        "zero_output_for_mask": True, "stateful": True, "name": "rnn",
        "dtype": "float16", "trainable": False,
    }  # fmt: skip
    layer = getattr(kseq.layers, name)(U, **options, **runs)
    want = cell(U, **options, dtype="float16", name=layer.cell.name)
    assert layer.cell.get_config() == want.get_config()
    config = layer.get_config()
    for key, value in runs.items():
        assert config[key] == value or key == "dtype"
    assert layer.compute_dtype == layer.cell.compute_dtype == "float16"
    assert layer.units == U
    again = type(layer).from_config(config)
    assert again.get_config() == config
    assert again.cell.dropout == 0.1


@pytest.mark.parametrize("name", NAMES)
def test_losses_of_regularizers(name):
    ours, theirs = pair(name, recurrent_regularizer=keras.regularizers.L2(0.3))
    assert len(ours.losses) == 1
    assert_close("loss", ours.losses[0], theirs.losses[0])


def test_unknown_arguments_are_refused():
    with pytest.raises((TypeError, ValueError), match="unroll"):
        kseq.layers.GRU(U, unroll=True)
    with pytest.raises(ValueError, match="`units` must be a positive integer"):
        kseq.layers.LSTM(0)
