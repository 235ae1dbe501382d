"""Sums over the replicas of a data-parallel training step."""

from kseq._typing import Tensor
from kseq.backend.half import half


def sum_over_replicas(x: Tensor) -> Tensor:
    """Sum of `x` over all replicas; `x` itself where there is one.

    JAX sees the whole batch as one array (`keras.distribution`), so nothing is
    left to sum there.
    """
    return half(tensorflow=_tensorflow_sum, jax=lambda x: x)(x)


def _tensorflow_sum(x: Tensor) -> Tensor:
    import tensorflow as tf

    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if replicas == 1 or tf.distribute.in_cross_replica_context():
        return x
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, x)
