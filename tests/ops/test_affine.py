"""x W + b against NumPy, with the gradients by central differences."""

import numpy as np
import pytest
from helpers import assert_close, cotangent, gradients
from reference.differences import numeric_gradients

from kseq.ops.affine import affine


@pytest.mark.parametrize("shape", [(5, 3), (2, 5, 3)], ids=["rows", "sequence"])
@pytest.mark.parametrize("use_bias", [True, False], ids=["bias", "no-bias"])
def test_values_and_gradients(shape, use_bias):
    rng = np.random.default_rng(0)
    shapes = [shape, (3, 7), (7,)] if use_bias else [shape, (3, 7)]
    values = [rng.normal(size=s).astype("float32") for s in shapes]

    def want(x, kernel, bias=0.0):
        return np.einsum("...i,ij->...j", x, kernel) + bias

    def loss(*values):
        y = want(*values)
        return (y * cotangent(y, 0)).sum()

    call = affine if use_bias else lambda x, kernel: affine(x, kernel, None)
    y, found, _ = gradients(call, values, [])
    assert_close("y", y, want(*values))
    assert_close("gradients", found, numeric_gradients(loss, values), gradient=True)
