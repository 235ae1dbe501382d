"""The RMS norm: a hand-worked case, the reference, and the Keras mask."""

import keras
import numpy as np
import pytest
from helpers import assert_close, gradients
from reference.blocks import rms_norm

from kseq.layers import Embedding, RMSNormalization
from kseq.training import MaskedCrossentropy


def test_a_hand_worked_case():
    """Equation 4: x = [1, -2, 3, .5] has a mean square of 3.5625."""
    layer = RMSNormalization(epsilon=1e-6)
    layer.build((1, 4))
    layer.set_weights([np.array([0.1, 0.2, -0.1, 0])])
    want = [[0.05298129, -0.21192515, -0.15894386, 0]]
    assert_close("y", layer(np.array([[1.0, -2, 3, 0.5]])), want)


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_values(mode):
    rng = np.random.default_rng(0)
    x, scale = rng.normal(size=(2, 5, 3)) * 0.1, rng.normal(size=3)
    layer = RMSNormalization(epsilon=0.01)
    layer.build(x.shape)
    layer.set_weights([scale])
    y, _, _ = gradients(layer, [x.astype("float32")], layer.weights, mode=mode)
    assert_close("y", y, rms_norm(x, scale, 0.01))


def test_the_mask_is_passed_on():
    """Keras's own layer loses it; a metric counts what the mask lets it."""
    ids = np.array([[5, 6, 0], [7, 0, 0]])
    x = Embedding(9, 4, mask_zero=True)(ids)
    weights = MaskedCrossentropy(pad_id=None).token_weights(ids, RMSNormalization()(x))
    assert_close("weights", weights, (ids != 0).astype("float32"))


def test_half_precision_is_computed_in_float32():
    """300 squared overflows in float16, and 1e-4 squared is 0 there."""
    x = np.array([[300.0, -300.0], [1e-4, 1e-4]])
    y = RMSNormalization(dtype="float16", epsilon=1e-12)(x)
    want = [[1.0, -1.0], [1.0, 1.0]]
    assert_close("y", y, want, "float16")


def test_keras_reads_its_config():
    layer = RMSNormalization(axis=-1, epsilon=0.5)
    again = keras.layers.deserialize(keras.layers.serialize(layer))
    assert type(again) is RMSNormalization
    assert again.epsilon == 0.5
