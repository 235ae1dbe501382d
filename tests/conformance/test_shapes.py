"""Symbolic shapes and dtypes are the real ones; batch and time may be None."""

import keras
import pytest
from layer_cases import cases

from kseq.backend import compiled


def described(outputs):
    return [
        (tuple(y.shape), keras.backend.standardize_dtype(y.dtype))
        for y in keras.tree.flatten(outputs)
    ]


@pytest.mark.parametrize("dtype", ["float32", "float16", "mixed_bfloat16", "bfloat16"])
@cases()
def test_symbolic_equals_real(case, dtype):
    layer = case.make(0.1, dtype=dtype)
    symbolic = layer(*case.symbolic(static=True), **case.options)
    real = layer(*case.inputs(), **case.options)
    keras.tree.assert_same_structure(
        keras.tree.map_structure(lambda y: 0, symbolic),
        keras.tree.map_structure(lambda y: 0, real),
    )
    assert described(symbolic) == described(real)


@cases()
def test_a_graph_knows_the_shapes(case):
    """What is known of the inputs of a compiled function is known of its outputs."""
    layer, masks = case.built(), case.mask_arrays()
    seen = []

    def call(x, masks):
        outputs = layer(*x, **masks, **case.options)
        seen.extend(described(outputs))
        return outputs

    real = compiled(call, layer.variables)(case.inputs(), masks)
    assert seen == described(real)


@cases()
def test_batch_and_time_may_be_unknown(case):
    """What is symbolic then runs for two batches and lengths."""
    layer = case.make(0.0)
    inputs = case.symbolic(static=False)
    outputs = layer(*inputs, **case.options)
    flat = keras.tree.flatten(inputs)
    model = keras.Model(flat if len(flat) > 1 else flat[0], outputs)
    for x in (case.inputs(), [_shorter(x) for x in case.inputs()]):
        arrays = keras.tree.flatten(x)
        real = model(arrays if len(arrays) > 1 else arrays[0])
        for (want, want_dtype), (got, dtype) in zip(
            described(outputs), described(real), strict=True
        ):
            assert dtype == want_dtype
            assert len(got) == len(want)
            assert all(w in (None, g) for g, w in zip(got, want))
            assert case.bias or got[0] == arrays[0].shape[0]


def _shorter(x):
    """One row, and one step less where there are steps."""
    if isinstance(x, list):
        return [_shorter(y) for y in x]
    return x[:1, :-1] if x.ndim == 3 else x[:1]
