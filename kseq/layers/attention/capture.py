"""Hands attention weights to whoever asks, without a trace in the layer."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import keras

from kseq._typing import Tensor

_maps: ContextVar[dict[str, Tensor] | None] = ContextVar("attention_maps", default=None)


@contextmanager
def capture() -> Iterator[dict[str, Tensor]]:
    """Collects the attention weights of every layer called inside the block.

    Yields a dictionary, filled while the block runs: layer path -> weights of
    shape `(B, T, S)` or `(B, H, T, S)`. A layer called again adds its path with
    `#2`, `#3`. Layers look for it when they are traced, so a function that was
    compiled before keeps running without it: use
    `kseq.diagnostics.attention_maps(model, x)`, which traces its own.
    """
    maps: dict[str, Tensor] = {}
    token = _maps.set(maps)
    try:
        yield maps
    finally:
        _maps.reset(token)


@contextmanager
def no_capture() -> Iterator[None]:
    """Hides an active capture: a value made inside a loop must not leave it so."""
    token = _maps.set(None)
    try:
        yield
    finally:
        _maps.reset(token)


def record(layer: keras.Layer, weights: Tensor) -> None:
    """Hands over the weights of `layer` if a capture is active."""
    maps = _maps.get()
    if maps is None:
        return
    name, calls = layer.path, 1
    while name in maps:
        calls += 1
        name = f"{layer.path}#{calls}"
    maps[name] = weights
