"""A layer of kseq or Keras, compiled: its outputs, and the gradients of its weights."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras


class Peer(NamedTuple):
    """`forward()` returns the outputs, `step()` what `gradients` turns to Keras's."""

    forward: Callable[[], Any]
    step: Callable[[], Any]
    gradients: Callable[[Any], list[Any]] = lambda found: found


def layer_peer(layer, x, factors, tensors=None, *, jit=True, **options):
    """A built layer; the loss is `sum(factors * layer(x, **tensors, **options))`."""
    tensors = tensors or {}
    if keras.backend.backend() == "jax":
        return _jax_peer(layer, x, factors, tensors, options)
    return _tensorflow_peer(layer, x, factors, tensors, jit, options)


def _tensorflow_peer(layer, x, factors, tensors, jit, options):
    import tensorflow as tf

    weights = [w.value for w in layer.trainable_weights]

    def forward(x, tensors):
        return layer(x, **tensors, **options)

    def step(x, factors, tensors):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(forward(x, tensors) * factors)
        return tape.gradient(loss, weights)

    x, factors, tensors = tf.nest.map_structure(tf.constant, (x, factors, tensors))
    run = tf.function(forward, jit_compile=jit, autograph=False)
    run_step = tf.function(step, jit_compile=jit, autograph=False)
    return Peer(lambda: run(x, tensors), lambda: run_step(x, factors, tensors))


def _jax_peer(layer, x, factors, tensors, options):
    import jax

    def forward(weights, others, x, tensors):
        return layer.stateless_call(weights, others, x, **tensors, **options)[0]

    def loss(weights, others, x, factors, tensors):
        return jax.numpy.sum(forward(weights, others, x, tensors) * factors)

    x, factors, tensors = jax.tree.map(jax.numpy.asarray, (x, factors, tensors))
    weights = [w.value for w in layer.trainable_variables]
    others = [w.value for w in layer.non_trainable_variables]
    run, run_step = jax.jit(forward), jax.jit(jax.value_and_grad(loss))
    return Peer(
        lambda: jax.block_until_ready(run(weights, others, x, tensors)),
        lambda: jax.block_until_ready(run_step(weights, others, x, factors, tensors)),
        lambda found: found[1],
    )
