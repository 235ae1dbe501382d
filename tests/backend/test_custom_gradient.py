"""The gradient is the one that was written, in every mode."""

import numpy as np
import pytest
from helpers import assert_close, gradients, on_tensorflow
from keras import ops

from kseq.backend import custom_gradient

MODES = ["eager", "compiled", "forward", pytest.param("unknown", marks=on_tensorflow)]


def forward(inputs):
    product = inputs["x"] * inputs["w"]
    return (product, [2 * inputs["x"]]), (inputs, product)


def backward(residuals, upstream):
    """Of x: 10 times as much, to tell it from the true one; w gets the product."""
    inputs, product = residuals
    d_product, (d_twice,) = upstream
    x = 10 * (d_product * inputs["w"] + 2 * d_twice)
    return {"x": x, "w": product, "none": None, "count": None}


@pytest.mark.parametrize("mode", MODES)
def test_trees_integers_and_nothing(mode):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 2, 3, 5)).astype("float32")
    count = np.arange(3)

    def run(x, w, count):
        inputs = {"x": x, "w": w, "none": None, "count": count}
        return custom_gradient(forward, backward)(inputs)

    outputs, (d_x, d_w), _ = gradients(
        run, [x, w], [], extras=[count], mode=mode,
        loss=lambda y: ops.sum(3 * y[0] + 7 * y[1][0]),
    )  # fmt: skip
    assert_close("outputs", outputs, [x * w, [2 * x]])
    assert_close("gradients", [d_x, d_w], [10 * (3 * w + 14), x * w], gradient=True)
