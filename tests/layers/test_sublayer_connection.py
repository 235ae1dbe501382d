"""The residual connection with its norms, scales and two kinds of dropout."""

import itertools

import numpy as np
import pytest
from helpers import DTYPES, assert_close, assert_same, set_weights_by_seed, to_numpy
from keras import ops
from reference.blocks import connection

from kseq.layers import SublayerConnection

B, T, D = 2, 3, 5
NORMS = {"pre": 1, "post": 1, "sandwich": 2, "none": 0}
GAINS = {
    "plain": {},
    "scaled": {"residual_scale": 1.7},
    "layer_scale": {"layer_scale": 0.1},
    "rezero": {"rezero": True, "residual_scale": 0.5},
}


def draw(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("placement", "norm", "gain"),
    list(itertools.product(NORMS, ["layer", "rms"], GAINS)),
)
def test_values(placement, norm, gain, dtype):
    layer = SublayerConnection(
        placement=placement, norm=norm, dtype=dtype, **GAINS[gain]
    )
    x = draw(B, T, D).astype(dtype)
    layer.build(x.shape)
    set_weights_by_seed(layer, 1)
    weights = {w.path: to_numpy(w).astype("float64") for w in layer.weights}
    scale = [w for path, w in weights.items() if path.endswith("gain")]
    norms = [w for path, w in weights.items() if not path.endswith("gain")]
    size = 2 if norm == "layer" else 1
    want = connection(
        x.astype("float64"),
        np.sin,
        placement,
        [norms[i : i + size] for i in range(0, len(norms), size)],
        layer.residual_scale,
        *scale,
    )
    assert len(norms) == size * NORMS[placement]
    assert_close("y", layer(x, sublayer=ops.sin), want, dtype)


def test_rms_norm_of_worked_numbers():
    """x = [1, -2, 3, .5], w = [.1, .2, -.1, 0]: the mean square is 3.5625."""
    layer = SublayerConnection(norm="rms", norm_epsilon=1e-6)
    x = np.array([[[1, -2, 3, 0.5]]], "float32")
    layer.build(x.shape)
    layer.set_weights([np.array([0.1, 0.2, -0.1, 0])])
    y = to_numpy(layer(x, sublayer=lambda x: x)) - x
    assert_close("y", y, [[[0.05298129, -0.21192515, -0.15894386, 0]]])


def test_where_the_gains_start():
    x = draw(B, T, D).astype("float32")
    assert_same("y", SublayerConnection(rezero=True)(x, sublayer=ops.sin), x)
    layer = SublayerConnection(placement="none", layer_scale=0.25)
    assert_close("y", layer(x, sublayer=ops.sin), x + np.sin(x) / 4)
    assert tuple(layer.gain.shape) == (D,)


def test_what_else_the_sublayer_returns():
    x = draw(B, T, D).astype("float32")
    layer = SublayerConnection(placement="none")
    y, first, second = layer(x, sublayer=lambda x: (x, 1.0, x[:, 0]))
    assert_close("outputs", [y, first, second], [2 * x, np.array(1.0), x[:, 0]])


def test_dropout_of_elements():
    layer = SublayerConnection(placement="none", dropout=0.4, seed=1)
    y = to_numpy(
        layer(np.zeros((97, 3, 7), "float32"), sublayer=ops.ones_like, training=True)
    )
    kept = y > 0
    assert_close("kept", y[kept], np.full(kept.sum(), 1 / 0.6))
    assert abs(kept.mean() - 0.6) < 0.05
    assert 0 < kept[0].mean() < 1


def test_stochastic_depth_drops_rows():
    """Whole rows, scaled; the expectation is that of inference."""
    layer = SublayerConnection(placement="none", stochastic_depth=0.3, seed=1)
    x = np.zeros((997, 3, 2), "float32")
    y = to_numpy(layer(x, sublayer=ops.ones_like, training=True))
    kept = y[:, 0, 0] > 0
    assert_close("y", y, np.broadcast_to(kept[:, None, None] / 0.7, y.shape))
    assert abs(y.mean() - 1) < 0.05
    still = layer(x, sublayer=ops.ones_like)
    assert_same("inference", still, np.ones_like(x))


def test_errors():
    with pytest.raises(ValueError, match="`placement` must be one of 'pre', 'post'"):
        SublayerConnection(placement="before")
    with pytest.raises(ValueError, match="`norm` must be one of 'layer', 'rms'"):
        SublayerConnection(placement="none", norm="batch")
    with pytest.raises(ValueError, match="`residual_scale` must be above 0"):
        SublayerConnection(residual_scale=0)
    with pytest.raises(ValueError, match="`layer_scale` and `rezero` exclude each"):
        SublayerConnection(layer_scale=0.1, rezero=True)
    with pytest.raises(ValueError, match="`stochastic_depth` must be a probability"):
        SublayerConnection(stochastic_depth=1.0)
    x = np.zeros((B, T, D), "float32")
    for wrong in (lambda x: x[:, 0], lambda x: x[..., :1]):
        with pytest.raises(ValueError, match="The outputs of `sublayer` must have"):
            SublayerConnection()(x, sublayer=wrong)
