"""A part of a layer whose activations are computed again in the backward pass."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from kseq._typing import Tensor
from kseq.backend.custom_gradient import custom_gradient
from kseq.backend.half import half

Tree = Any  # nested lists, tuples and dictionaries of tensors


def remat(layer: keras.layers.Layer, function: Callable[..., Tensor]) -> Any:
    """`function` of tensors, of whose work only the inputs are kept for the gradient.

    The result and its gradient are those of `function`, dropout included: the second
    computation starts from the seeds of the first, and what both assign (seeds, the
    statistics of a norm) is assigned once. `keras.remat` runs `function` again as it
    is: on TensorFlow it draws other dropout, and on JAX no variable may be assigned.
    The gradient has no gradient of its own.

    Args:
        layer: whose variables `function` reads and assigns, and who is given the
            losses that are added in it. It must be built.
        function: maps tensors, or trees of them, to one tensor. All that it reads is
            to be given: a tensor that it holds otherwise has no gradient, and may not
            be one of a compiled function of JAX.
    """

    def run(x: Tensor, **tensors: Tree) -> Tensor:
        variables = layer.variables

        def pure(inputs: Tree) -> Tree:
            (x, tensors), values = inputs
            scope = keras.StatelessScope(
                zip(variables, values, strict=True), collect_losses=True
            )
            before = [scope.get_current_value(v) for v in variables]
            with scope:
                y = function(x, **tensors)
            after = [scope.get_current_value(v) for v in variables]
            assigned = {
                i: new
                for i, (old, new) in enumerate(zip(before, after, strict=True))
                if new is not old
            }
            return y, assigned, scope.losses

        inputs = (x, tensors), _stored(variables)
        y, assigned, losses = _recomputed(pure)(inputs)
        for i, value in assigned.items():
            variables[i].assign(value)
        for loss in losses:
            layer.add_loss(loss)
        return y

    return run


def _stored(variables: list[keras.Variable]) -> list[Tensor]:
    """The values as they are stored: a layer of mixed precision would cast them."""
    read = half(tensorflow=_tensorflow_read, jax=_same)

    class Stored(keras.layers.Layer):
        def call(self, unused: Tensor) -> list[Tensor]:
            del unused
            return [read(v.value) for v in variables]

    return Stored(autocast=False)(ops.zeros(()))


def _recomputed(function: Callable[[Tree], Tree]) -> Callable[[Tree], Tree]:
    """`function`, computed again for its gradient."""
    stopped = half(tensorflow=_tensorflow_stopped, jax=_same)
    vjp = half(tensorflow=_tensorflow_vjp, jax=_jax_vjp)

    def forward(inputs: Tree) -> tuple[Tree, Tree]:
        return function(stopped(inputs)), inputs

    def backward(inputs: Tree, upstream: Tree) -> Tree:
        tensors, values = inputs
        inputs = _after(tensors, upstream[0]), values
        flat = keras.tree.flatten(inputs)
        places = [i for i, x in enumerate(flat) if _is_float(x)]

        def of_floats(*floats: Tensor) -> list[Tensor]:
            given = list(flat)
            for i, x in zip(places, floats, strict=True):
                given[i] = x
            outputs = function(keras.tree.pack_sequence_as(inputs, given))
            return keras.tree.flatten(outputs)

        floats = [flat[i] for i in places]
        found = vjp(of_floats, floats, keras.tree.flatten(upstream))
        gradients: list[Any] = [None] * len(flat)
        for i, gradient in zip(places, found, strict=True):
            gradients[i] = gradient
        return keras.tree.pack_sequence_as(inputs, gradients)

    return custom_gradient(forward, backward)


def _is_float(x: Tensor) -> bool:
    return "float" in keras.backend.standardize_dtype(x.dtype)


def _after(tensors: Tree, upstream: Tensor) -> Tree:
    """`tensors`, which a compiler must wait with until it has `upstream`.

    Otherwise it finds the same work done twice and keeps the activations after all,
    as XLA does on a CPU with `jax.checkpoint`.
    """
    probe = ops.sum(ops.reshape(upstream, (-1,))[:1])
    known = ops.equal(probe, probe)  # False for NaN only
    return keras.tree.map_structure(
        lambda x: ops.where(known, x, ops.cast(probe, x.dtype)), tensors
    )


def _tensorflow_read(variable: Tensor) -> Tensor:
    """What it holds now: `ops.convert_to_tensor` gives the variable itself."""
    import tensorflow as tf

    return tf.convert_to_tensor(variable)


def _tensorflow_stopped(inputs: Tree) -> Tree:
    """No tape follows them, so that none keeps what is computed of them."""
    import tensorflow as tf

    return tf.nest.map_structure(tf.stop_gradient, inputs)


def _same(inputs: Tree) -> Tree:
    return inputs


def _tensorflow_vjp(
    function: Callable[..., list[Tensor]], inputs: list[Tensor], upstream: list[Tensor]
) -> list[Tensor]:
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = function(*inputs)
    places = [i for i, y in enumerate(outputs) if _is_float(y)]
    return tape.gradient(
        [outputs[i] for i in places],
        inputs,
        output_gradients=[upstream[i] for i in places],
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )


def _jax_vjp(
    function: Callable[..., list[Tensor]], inputs: list[Tensor], upstream: list[Tensor]
) -> tuple[Tensor, ...]:
    import jax

    return jax.vjp(function, *inputs)[1](upstream)
