"""Which layers a model calls, in what order, and what goes in and comes out."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from kseq.backend import is_concrete

Changed = Callable[[np.ndarray, np.ndarray], bool]


class LayerCall(NamedTuple):
    """One call of a layer, or of an operation in the graph of a functional model.

    Attributes:
        layer: the layer.
        inputs: every array that went in, masks too.
        outputs: every array that came out. Both leave out what is traced and has no
            value, such as the tensors in a compiled loop.
        inner: the calls that were made inside it.
    """

    layer: keras.Operation
    inputs: list[np.ndarray]
    outputs: list[np.ndarray]
    inner: list["LayerCall"]


@contextmanager
def layer_calls() -> Iterator[list[LayerCall]]:
    """Records what is called, eagerly, inside the block, in the order of its end."""
    found: list[LayerCall] = []
    open_calls = [found]
    call, call_operation = keras.Layer.__call__, keras.Operation.__call__

    def recorded(call: Any, layer: Any, args: Any, kwargs: Any) -> Any:
        inner: list[LayerCall] = []
        open_calls.append(inner)
        try:
            outputs = call(layer, *args, **kwargs)
        finally:
            open_calls.pop()
        record = LayerCall(layer, _arrays((args, kwargs)), _arrays(outputs), inner)
        open_calls[-1].append(record)
        return outputs

    def layer_call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        return recorded(call, layer, args, kwargs)

    def operation_call(operation: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(operation, keras.Layer):  # which is on its way from above
            return call_operation(operation, *args, **kwargs)
        return recorded(call_operation, operation, args, kwargs)

    keras.Layer.__call__ = layer_call
    keras.Operation.__call__ = operation_call
    try:
        yield found
    finally:
        keras.Layer.__call__ = call
        keras.Operation.__call__ = call_operation


def leaking_layer(
    calls: list[LayerCall], other: list[LayerCall], changed: Changed
) -> str | None:
    """Path of the innermost layer that changed by itself between two runs.

    It is the first, in the order in which the data flows, whose outputs `changed`
    though none of its inputs did.
    """
    for before, after in zip(calls, other, strict=False):
        if before.layer is not after.layer:  # the runs went different ways
            return None
        if _any_changed(before.inputs, after.inputs, changed):
            continue
        if _any_changed(before.outputs, after.outputs, changed):
            inside = leaking_layer(before.inner, after.inner, changed)
            return inside or path(before.layer)
    return None


def path(layer: keras.Operation) -> str:
    """Path of `layer`, or the name of what has none: it was never built."""
    return getattr(layer, "path", None) or layer.name


def all_calls(calls: list[LayerCall]) -> Iterator[LayerCall]:
    """`calls` and those inside them, each before what it calls."""
    for call in calls:
        yield call
        yield from all_calls(call.inner)


def _any_changed(
    before: list[np.ndarray], after: list[np.ndarray], changed: Changed
) -> bool:
    return any(changed(b, a) for b, a in zip(before, after, strict=True))


def _arrays(tree: Any) -> list[np.ndarray]:
    return [
        ops.convert_to_numpy(x)
        for x in keras.tree.flatten(tree)
        if ops.is_tensor(x) and is_concrete(x)
    ]
