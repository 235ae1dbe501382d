"""The gradient of what flows from layer to layer, against closed forms."""

import keras
import numpy as np
import pytest
from helpers import assert_close, set_weights_by_seed, to_numpy
from keras import ops

import kseq
from kseq.backend import gradient
from kseq.diagnostics import DepthGradientProbe, gradient_by_depth

T, D = 5, 4


def data(seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(3, T, D)).astype("float32") for _ in range(2)]


def dense_model():
    layers = [
        keras.layers.Dense(D, use_bias=False, name=f"dense_{i}") for i in range(3)
    ]
    model = keras.Sequential([keras.Input((T, D)), *layers], name="model")
    set_weights_by_seed(model, 1)
    model.compile(loss="mse")
    return model, layers


def test_linear_layers_in_closed_form():
    """Of the mean of squares: dL/dx_l = 2 (x_3 - y) / n W_3^T ... W_{l+1}^T."""
    model, layers = dense_model()
    x, y = data()
    found = gradient_by_depth(model, x, y, layers=layers)
    assert list(found) == [f"model/dense_{i}" for i in range(3)]
    kernels = [np.float64(w) for w in model.get_weights()]
    g = 2 * (x @ kernels[0] @ kernels[1] @ kernels[2] - y) / y.size
    for norms, kernel in zip(reversed(found.values()), reversed(kernels), strict=True):
        assert_close("norms", norms, np.sqrt(np.sum(g**2, axis=(0, 2))))
        g = g @ kernel.T


def test_blocks_of_a_transformer():
    """The last block's is that of the final norm and the head, which stand alone."""
    model = kseq.models.TransformerEncoder(
        9, num_layers=2, hidden_dim=8, num_heads=2, dropout=0.3
    )
    rng = np.random.default_rng(0)
    ids, y = rng.integers(1, 9, (2, T)), rng.normal(size=(2, T, 8)).astype("float32")
    model.compile(loss="mse")
    found = gradient_by_depth(model, ids, y)
    assert len(found) == 2
    blocks = [model.get_layer(name) for name in found]
    inner = keras.Model(model.input, blocks[-1].output)

    def loss(stream):
        # the only layer after the last block
        y_pred = model.layers[-1](stream)
        return ops.mean(ops.square(y_pred - y))

    g = to_numpy(gradient(loss)(inner(ids)))
    *_, last = found.values()
    assert_close("norms", last, np.sqrt(np.sum(g**2, axis=(0, 2))), gradient=True)


def test_a_shared_layer_and_training():
    layer = keras.layers.Dense(D, use_bias=False, name="dense")
    inputs = keras.Input((T, D))
    model = keras.Model(inputs, layer(layer(inputs)))
    model.compile(loss="mse")
    x, y = data()
    probe = DepthGradientProbe(model, x, y, layers=[layer])
    first = probe()
    assert list(first) == ["dense", "dense#2"]
    model.set_weights([w * 2 for w in model.get_weights()])
    assert np.abs(probe()["dense"] - first["dense"]).max() > 1e-4
    assert "call" not in vars(layer)


def test_what_has_no_depth():
    model, _ = dense_model()
    x, y = data()
    with pytest.raises(ValueError, match="must be given for a model without"):
        gradient_by_depth(model, x, y)
    with pytest.raises(ValueError, match="must be called by the model"):
        gradient_by_depth(model, x, y, layers=[keras.layers.Dense(3)])
    with pytest.raises(TypeError, match=r"`layers` must be layers.*dense"):
        gradient_by_depth(model, x, y, layers=["dense"])
    last = keras.layers.GlobalAveragePooling1D()
    model = keras.Sequential([keras.Input((T, D)), last])
    model.compile(loss="mse")
    with pytest.raises(ValueError, match=r"with outputs \(B, T, D\)"):
        gradient_by_depth(model, x, y[:, 0], layers=[last])
