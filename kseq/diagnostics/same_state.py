"""Runs that begin from the same state and leave no trace in the model."""

from collections.abc import Iterator
from contextlib import contextmanager

import keras
from keras import ops


@contextmanager
def same_state(model: keras.Layer) -> Iterator[None]:
    """Puts the model's seeds, statistics and kept states back after the block.

    That is every variable that the optimizer does not move.
    """
    state = [v for v in model.variables if not v.trainable]
    for layer in model._flatten_layers():
        # a stateful recurrent layer of Keras does not list its states
        states = keras.tree.flatten(getattr(layer, "states", None))
        state += [v for v in states if isinstance(v, keras.Variable)]
    values = [ops.convert_to_numpy(v.value) for v in state]
    try:
        yield
    finally:
        for variable, value in zip(state, values, strict=True):
            variable.assign(value)
