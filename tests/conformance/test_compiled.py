"""Compiled equals eager, forward and backward, under masks; nothing calls the host."""

import keras
import numpy as np
import pytest
from helpers import (
    assert_close,
    gradients,
    jax_value_and_gradients,
    on_jax,
    on_tensorflow,
    weighted_sum,
)
from keras import ops
from layer_cases import LAYER_CASES, cases


def flat_call(case, layer):
    """A function of the flat inputs and of the masks, and both."""
    structure, masks = case.inputs(), case.mask_arrays()
    inputs = keras.tree.flatten(structure)

    def call(*arguments):
        given = keras.tree.pack_sequence_as(structure, arguments[: len(inputs)])
        named = dict(zip(masks, arguments[len(inputs) :]))
        return layer(*given, **named, **case.options)

    return call, inputs, list(masks.values())


@pytest.fixture(scope="module")
def eager():
    """Layer, call, arguments and eager result of each case, made when asked for."""
    found = {}

    def get(case):
        if id(case) not in found:
            layer = case.built()
            call, inputs, masks = flat_call(case, layer)
            variables = layer.trainable_variables
            result = gradients(call, inputs, variables, extras=masks)
            found[id(case)] = call, inputs, masks, variables, result
        return found[id(case)]

    return get


@pytest.mark.parametrize(
    "mode", ["compiled", "forward", pytest.param("unknown", marks=on_tensorflow)]
)
@cases()
def test_equals_eager(case, mode, eager):
    call, inputs, masks, variables, want = eager(case)
    got = gradients(call, inputs, variables, mode=mode, extras=masks)
    assert_close("outputs", keras.tree.flatten(got[0]), keras.tree.flatten(want[0]))
    assert_close("gradients of inputs", got[1], want[1], gradient=True)
    assert_close("gradients of weights", got[2], want[2], gradient=True)


@cases()
def test_every_weight_has_a_gradient(case, eager):
    _, _, _, variables, (_, d_inputs, d_weights) = eager(case)
    for variable, gradient in zip(variables, d_weights, strict=True):
        assert np.isfinite(gradient).all(), variable.path
        assert gradient.any(), variable.path
    assert all(np.isfinite(g).all() for g in d_inputs)
    assert case.ids or case.constant or all(g.any() for g in d_inputs)


@on_jax
@cases()
def test_lowers_for_gpu_and_tpu(case):
    """Forward and gradient, on a machine that has neither."""
    import jax

    layer = case.built(0.1)
    call, inputs, masks = flat_call(case, layer)
    function = jax_value_and_gradients(
        lambda *args: call(*args), layer.trainable_variables, weighted_sum,
        layer.non_trainable_variables,
    )  # fmt: skip
    values = [v.value for v in layer.trainable_variables]
    arguments = [[ops.convert_to_tensor(x) for x in a] for a in (inputs, masks)]
    exported = jax.export.export(jax.jit(function), platforms=("cuda", "tpu"))(
        arguments[0], values, arguments[1]
    )
    assert exported.platforms == ("cuda", "tpu")
    assert "callback" not in exported.mlir_module()


@on_tensorflow
@pytest.mark.parametrize("layer_class", ["LSTM", "AttentionRNN"])
def test_the_hlo_holds_no_host_call(layer_class):
    """Of forward and gradient, with dropout."""
    import tensorflow as tf

    case = next(c for k, c in LAYER_CASES.items() if k.__name__ == layer_class)
    layer = case.built(0.1)
    x = [tf.constant(x) for x in case.inputs()]

    @tf.function(jit_compile=True)
    def both(*x):
        with tf.GradientTape() as tape:
            loss = weighted_sum(layer(*x, training=True, **case.options))
        return tape.gradient(loss, [v.value for v in layer.trainable_variables])

    hlo = both.experimental_get_compiler_ir(*x)(stage="hlo")
    assert "while" in hlo
    for word in ("custom-call", "outfeed", "infeed", "send", "recv"):
        assert f" {word}(" not in hlo
