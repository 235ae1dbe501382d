"""A function whose gradient is written by hand."""

from collections.abc import Callable
from typing import Any

from kseq.backend.half import half

Tree = Any  # nested lists, tuples and dictionaries of tensors


def custom_gradient(
    forward: Callable[[Tree], tuple[Tree, Tree]],
    backward: Callable[[Tree, Tree], Tree],
) -> Callable[[Tree], Tree]:
    """Returns `forward` without its residuals, with `backward` as its gradient.

    Args:
        forward: maps a tree of tensors, some of which may be None, to a tree of
            floating-point tensors and a tree of residuals for the gradient.
        backward: maps the residuals and the gradients of the outputs to those of
            the inputs, a tree like the inputs with None where there is none.

    The gradient has no gradient of its own.
    """
    make = half(tensorflow=_tensorflow_custom_gradient, jax=_jax_custom_gradient)
    return make(forward, backward)


def _tensorflow_custom_gradient(
    forward: Callable[[Tree], tuple[Tree, Tree]],
    backward: Callable[[Tree, Tree], Tree],
) -> Callable[[Tree], Tree]:
    import tensorflow as tf

    def call(inputs: Tree) -> Tree:
        leaves = tf.nest.flatten(inputs)
        present = [i for i, leaf in enumerate(leaves) if leaf is not None]
        structure = []  # of the outputs

        @tf.custom_gradient
        def run(*tensors: Any) -> tuple[list[Any], Callable[..., list[Any]]]:
            given = dict(zip(present, tensors, strict=True))
            tree = [given.get(i) for i in range(len(leaves))]
            outputs, residuals = forward(tf.nest.pack_sequence_as(inputs, tree))
            structure.append(outputs)

            def gradient(*upstream: Any) -> list[Any]:
                upstream = tf.nest.pack_sequence_as(outputs, upstream)
                gradients = tf.nest.flatten(backward(residuals, upstream))
                found = [gradients[i] for i in present]
                # a residual is no output of the gradient's own graph
                return [None if g is None else tf.identity(g) for g in found]

            return tf.nest.flatten(outputs), gradient

        outputs = run(*(leaves[i] for i in present))
        return tf.nest.pack_sequence_as(structure[0], tf.nest.flatten(outputs))

    return tf.autograph.experimental.do_not_convert(call)


def _jax_custom_gradient(
    forward: Callable[[Tree], tuple[Tree, Tree]],
    backward: Callable[[Tree, Tree], Tree],
) -> Callable[[Tree], Tree]:
    import jax

    run = jax.custom_vjp(lambda inputs: forward(inputs)[0])
    run.defvjp(forward, lambda *args: (backward(*args),))
    return run
