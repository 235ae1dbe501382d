"""The feed-forward layer against a float64 reference."""

import keras
import numpy as np
import pytest
from helpers import (
    DTYPES,
    assert_close,
    gradients,
    set_weights_by_seed,
    to_numpy,
)
from reference.blocks import GATED, PLAIN, feed_forward
from reference.differences import numeric_gradients

from kseq.layers import FeedForward

B, T, D, F = 2, 3, 4, 5


def draw(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape)


def arrays(layer):
    return [to_numpy(w).astype("float64") for w in layer.weights]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", [*PLAIN, *GATED])
def test_values(activation, dtype):
    layer = FeedForward(F, activation=activation, dtype=dtype)
    x = 2 * draw(B, T, D).astype(dtype)
    layer.build(x.shape)
    set_weights_by_seed(layer, 1)
    want = feed_forward(x.astype("float64"), activation, *arrays(layer))
    assert_close("y", layer(x), want, dtype)


@pytest.mark.parametrize("activation", ["gelu", "geglu_tanh", "swiglu"])
def test_gradients(activation):
    """Those of the reference, by differences."""
    layer, x = FeedForward(F, activation=activation), draw(B, T, D).astype("float32")
    layer.build(x.shape)
    set_weights_by_seed(layer, 1)
    upstream = draw(B, T, D, seed=2)

    def loss(y):
        return keras.ops.sum(y * upstream.astype("float32"))

    _, d_x, d_weights = gradients(layer, [x], layer.trainable_variables, loss=loss)
    want = numeric_gradients(
        lambda x, *w: (feed_forward(x, activation, *w) * upstream).sum(),
        [x, *arrays(layer)],
    )
    assert_close("gradients", [*d_x, *d_weights], want, gradient=True)


def test_dropout_is_before_the_second_product():
    layer = FeedForward(101, dropout=0.4, use_bias=False, seed=1)
    layer.build((B, T, 101))
    assert [tuple(w.shape) for w in layer.weights] == [(101, 101), (101, 101)]
    layer.set_weights([np.eye(101), np.eye(101)])
    y = to_numpy(layer(np.ones((7, T, 101), "float32"), training=True))
    kept = y > 0
    assert_close("kept", y[kept], np.full(kept.sum(), 1 / 0.6))
    assert abs(kept.mean() - 0.6) < 0.05


def test_initializers_are_used_for_each_kernel_anew():
    layer = FeedForward(D, kernel_initializer="random_normal", bias_initializer="ones")
    layer.build((B, T, D))
    first, bias, second, _ = arrays(layer)
    assert (first != second).any()
    assert (bias == 1).all()


def test_errors():
    with pytest.raises(ValueError, match="`activation` must be one of 'relu', 'gelu'"):
        FeedForward(F, activation="GeGLU")
    with pytest.raises(ValueError, match="`intermediate_dim` must be a positive"):
        FeedForward(0)
    with pytest.raises(ValueError, match="`rate` must be a probability"):
        FeedForward(F, dropout=1.0)
    with pytest.raises(TypeError, match="`mask` must be boolean"):
        FeedForward(F)(draw(B, T, D), mask=np.ones((B, T)))
