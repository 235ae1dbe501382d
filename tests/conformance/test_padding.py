"""What stands in the padding reaches nothing; the future does not reach the past."""

import keras
import numpy as np
import pytest
from helpers import assert_same, gradients, to_numpy
from layer_cases import T, cases

from kseq.backend import compiled


def run(case, layer, inputs, masks):
    return gradients(
        lambda *x: layer(
            *keras.tree.pack_sequence_as(inputs, x), **masks, **case.options
        ),
        keras.tree.flatten(inputs),
        layer.trainable_variables,
    )


def overwritten(case, masks, value):
    """The inputs with `value` in all padding."""
    inputs = case.inputs()
    for position, name in case.masks.items():
        inputs[position][~masks[name]] = value
    return inputs


@cases(masks=True)
def test_padding_reaches_no_output_and_no_gradient(case):
    """Bit for bit, eager; the padding's own gradient is 0."""
    layer, masks = case.built(), case.mask_arrays()
    want = run(case, layer, overwritten(case, masks, 0), masks)
    for value in (1e4, np.nan):
        got = run(case, layer, overwritten(case, masks, value), masks)
        assert_same(f"outputs with {value}", got[0], want[0])
        assert_same(f"gradients with {value}", got[1:], want[1:])
    assert all(np.isfinite(y).all() for y in keras.tree.flatten(want))
    gradients_of_inputs = keras.tree.pack_sequence_as(case.inputs(), want[1])
    for position, name in case.masks.items():
        assert not gradients_of_inputs[position][~masks[name]].any()
        assert gradients_of_inputs[position][masks[name]].any()


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
@cases(masks=True)
def test_padding_reaches_no_output_in_half_precision(case, half):
    layer, masks = case.built(dtype=half), case.mask_arrays()
    run = compiled(lambda x: layer(*x, **masks, **case.options), layer.variables)
    want, large, nan = (
        run(overwritten(case, masks, value)) for value in (0, 1e2, np.nan)
    )
    assert_same("1e2", large, want)
    assert_same("NaN", nan, want)
    assert all(np.isfinite(to_numpy(y)).all() for y in keras.tree.flatten(want))


@cases(masks=True)
def test_a_row_of_padding_is_finite(case):
    """Outputs and gradients, with NaN throughout the row."""
    layer, masks = case.built(), case.mask_arrays()
    for mask in masks.values():
        mask[1] = False
    found = run(case, layer, overwritten(case, masks, np.nan), masks)
    assert all(np.isfinite(y).all() for y in keras.tree.flatten(found))


@pytest.mark.parametrize("t", [0, 2])
@cases(causal=True)
def test_the_future_does_not_reach_the_past(case, t):
    """d y[t] / d x[u] is exactly 0 for u > t, and is not for u = t."""
    layer = case.built()
    x = case.inputs()
    _, d_inputs, _ = gradients(
        lambda *x: keras.tree.flatten(layer(*x, **case.options))[0][:, t], x, []
    )
    assert not d_inputs[0][:, t + 1 :].any()
    assert d_inputs[0][:, t].any()
    assert t + 1 < T
