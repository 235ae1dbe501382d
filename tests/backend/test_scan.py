"""The compiled scan, against a NumPy loop, central differences and hand-worked BPTT."""

import keras
import numpy as np
import pytest
from keras import ops

from kseq.backend import scan

TENSORFLOW = keras.backend.backend() == "tensorflow"
T, B, D, U = 7, 3, 2, 5
MODES = [("eager", T), ("compiled", T), ("forward compiled", T)]
if TENSORFLOW:  # JAX compiles anew for each length
    MODES += [("compiled", None), ("forward compiled", None)]


def step(constants, carry, x):
    """A masked recurrence with integers in the carry, a bool and a float input."""
    (h, count), (inputs, real) = carry, x
    new = ops.tanh(
        ops.matmul(inputs, constants["kernel"]) + ops.matmul(h, constants["recurrent"])
    )
    h = ops.where(real, new, h)
    return (h, count + 1), [h * h, count]


def loop(inputs, real, kernel, recurrent, h, reverse):
    """The same in float64 NumPy: the loss, the outputs and the last carry."""
    outputs = np.zeros((T, B, U))
    for t in reversed(range(T)) if reverse else range(T):
        h = np.where(real[t], np.tanh(inputs[t] @ kernel + h @ recurrent), h)
        outputs[t] = h * h
    return np.sum(np.sin(outputs)) + np.sum(h), outputs, h


def arrays(seed):
    rng = np.random.default_rng(seed)
    shapes = [(T, B, D), (D, U), (U, U), (B, U)]
    inputs, kernel, recurrent, h = (rng.normal(size=shape) for shape in shapes)
    return inputs, kernel, recurrent, h, rng.random((T, B, 1)) > 0.3


def run(mode, real, reverse, values, length=T):
    """Outputs, last h, counts and the gradients of the loss, in one of the modes."""

    def forward(inputs, kernel, recurrent, h):
        (last, _), (outputs, counts) = scan(
            step,
            (h, ops.convert_to_tensor(0)),
            (inputs, ops.convert_to_tensor(real)),
            {"kernel": kernel, "recurrent": recurrent},
            reverse=reverse,
        )
        return outputs, last, counts

    def loss(outputs, last):
        return ops.sum(ops.sin(outputs)) + ops.sum(last)

    values = [ops.convert_to_tensor(v, "float32") for v in values]
    if TENSORFLOW:
        import tensorflow as tf

        signature = [
            tf.TensorSpec([length, None, *v.shape[2:]] if v.ndim == 3 else v.shape)
            for v in values
        ]

        def compiled(function):
            return tf.function(
                function, jit_compile=True, input_signature=signature, autograph=False
            )

        if mode == "forward compiled":
            forward = compiled(forward)

        def everything(*values):
            with tf.GradientTape() as tape:
                tape.watch(values)
                outputs, last, counts = forward(*values)
                total = loss(outputs, last)
            return outputs, last, counts, tape.gradient(total, values)

        if mode == "compiled":
            everything = compiled(everything)
        result = everything(*values)
    else:
        import jax

        if mode == "forward compiled":
            forward = jax.jit(forward)

        def everything(*values):
            def both(*values):
                outputs, last, counts = forward(*values)
                return loss(outputs, last), (outputs, last, counts)

            gradients, rest = jax.grad(both, argnums=(0, 1, 2, 3), has_aux=True)(
                *values
            )
            return *rest, gradients

        result = (jax.jit(everything) if mode == "compiled" else everything)(*values)
    return keras.tree.map_structure(ops.convert_to_numpy, result)


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize(("mode", "length"), MODES)
def test_scan_equals_a_loop_and_its_central_differences(mode, length, reverse):
    *values, real = arrays(seed=0)
    outputs, last, counts, gradients = run(mode, real, reverse, values, length)
    inputs, kernel, recurrent, h = values
    _, want, want_last = loop(inputs, real, kernel, recurrent, h, reverse)
    np.testing.assert_allclose(outputs, want, atol=2e-5)
    np.testing.assert_allclose(last, want_last, atol=2e-5)
    steps = np.arange(T)
    np.testing.assert_array_equal(counts, steps[::-1] if reverse else steps)
    for index, gradient in enumerate(gradients):
        difference = np.zeros_like(values[index])
        for place in np.ndindex(difference.shape):
            moved = [v.copy() for v in values]
            losses = []
            for sign in (1, -1):
                moved[index][place] = values[index][place] + sign * 1e-6
                inputs, kernel, recurrent, h = moved
                losses.append(loop(inputs, real, kernel, recurrent, h, reverse)[0])
            difference[place] = (losses[0] - losses[1]) / 2e-6
        np.testing.assert_allclose(gradient, difference, atol=1e-4)


def test_backpropagation_through_time_has_the_hand_worked_gradient():
    """h_t = tanh(.9 h + .5 x), x = 1, -1, .5, 2: states and dL/dh_t by hand."""
    states = [0.4621171573, -0.0838968817, 0.1727431422, 0.8195576978]
    # dL/dh_1 times the slope at h_1 gives dL/dx_1 = .5 (1 - h_1^2) dL/dh_1
    d_h1 = 0.2305724030
    x = ops.reshape(ops.convert_to_tensor([1.0, -1.0, 0.5, 2.0]), (4, 1))

    def last(x):
        carry, ys = scan(
            lambda _, h, x: (ops.tanh(0.9 * h + 0.5 * x),) * 2, ops.zeros((1,)), x
        )
        return carry[0], ys

    np.testing.assert_allclose(
        ops.convert_to_numpy(last(x)[1])[:, 0], states, atol=1e-6
    )
    if TENSORFLOW:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(x)
            value = tf.function(lambda x: last(x)[0], jit_compile=True)(x)
        gradient = tape.gradient(value, x)
    else:
        import jax

        gradient = jax.jit(jax.grad(lambda x: last(x)[0]))(x)
    want = 0.5 * (1 - states[0] ** 2) * d_h1
    np.testing.assert_allclose(float(gradient[0, 0]), want, atol=1e-6)


def test_sizes_that_do_not_agree_are_refused():
    with pytest.raises(ValueError, match="same first size, at least 1"):
        scan(
            lambda c, h, x: (h, h),
            ops.zeros((1,)),
            [ops.ones((2, 1)), ops.ones((3, 1))],
        )
    with pytest.raises(ValueError, match="at least 1"):
        scan(lambda c, h, x: (h, h), ops.zeros((1,)), ops.ones((0, 1)))
