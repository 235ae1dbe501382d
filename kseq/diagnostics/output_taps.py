"""Zeros that layers add to their outputs, to differentiate by."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import keras
from keras import ops

from kseq._typing import Tensor
from kseq.diagnostics.layer_calls import path


@contextmanager
def output_taps(
    layers: Sequence[keras.Layer], zeros: Mapping[str, Tensor] | None = None
) -> Iterator[dict[str, Tensor]]:
    """Adds zeros to the outputs of `layers` inside the block, the first of several.

    Args:
        layers: layers that the model calls.
        zeros: what to add, by name. What is missing is made.

    Yields:
        A dictionary, filled while the block runs: name -> what was added. The name is
        the layer's path, with `#2`, `#3` for a layer called again.
    """
    added: dict[str, Tensor] = {}
    with ExitStack() as stack:
        for layer in layers:
            stack.enter_context(_adding(layer, zeros or {}, added))
        yield added


@contextmanager
def _adding(
    layer: keras.Layer, zeros: Mapping[str, Tensor], added: dict[str, Tensor]
) -> Iterator[None]:
    call = layer.call

    def adding(*args: Any, **kwargs: Any) -> Any:
        outputs = call(*args, **kwargs)
        first, *rest = outputs if isinstance(outputs, tuple) else (outputs,)
        name, calls = path(layer), 1
        while name in added:
            calls += 1
            name = f"{path(layer)}#{calls}"
        added[name] = zeros[name] if name in zeros else ops.zeros_like(first)
        first = first + added[name]
        return (first, *rest) if isinstance(outputs, tuple) else first

    layer.call = adding
    try:
        yield
    finally:
        del layer.call
