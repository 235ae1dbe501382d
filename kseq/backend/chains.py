"""How many chains of small steps the device works on at a time."""

import os

from kseq.backend.half import half


def parallel_chains() -> int:
    """2 on a processor with more than one core, 1 on anything else.

    XLA runs independent operations of a program side by side on a processor. A step
    of a recurrence is too small to be split over the cores; two that don't depend on
    each other keep two of them busy. A GPU has enough to do with one.
    """
    on_cpu = half(tensorflow=_tensorflow_on_cpu, jax=_jax_on_cpu)()
    return 2 if on_cpu and (os.cpu_count() or 1) > 1 else 1


def _tensorflow_on_cpu() -> bool:
    import tensorflow as tf

    return all(d.device_type == "CPU" for d in tf.config.list_logical_devices())


def _jax_on_cpu() -> bool:
    import jax

    return jax.default_backend() == "cpu"
