"""Hands attention weights to whoever asks, without a trace in the layer."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import keras

from kseq._typing import Tensor
from kseq.ops.weight_statistics import weight_statistics


class _Capture(NamedTuple):
    found: dict[str, Any]
    statistics: bool


_active: ContextVar[_Capture | None] = ContextVar("attention_capture", default=None)

# they return their weights when asked, so they are asked while a capture is active
_KERAS_LAYERS = (
    keras.layers.AdditiveAttention,
    keras.layers.Attention,
    keras.layers.GroupQueryAttention,
    keras.layers.MultiHeadAttention,
)


@contextmanager
def capture(*, statistics: bool = False) -> Iterator[dict[str, Any]]:
    """Collects the attention weights of every layer called inside the block.

    It sees the attention layers of kseq, and `MultiHeadAttention`,
    `GroupQueryAttention`, `Attention` and `AdditiveAttention` of Keras. Layers look
    for it when they are traced: a function that was compiled before keeps running
    without it, and what one finds while it is traced it must return, for the values
    mean nothing outside. `kseq.diagnostics.attention_maps(model, x)` does all this.
    Outputs are the same with and without it, up to the rounding between two paths.

    Args:
        statistics: bool. True collects what `kseq.ops.attention_statistics` says of
            the weights in their place: for long sequences, whose weights are never
            held. Defaults to `False`.

    Yields:
        A dictionary, filled while the block runs: layer path -> weights `(B, T, S)`
        or `(B, H, T, S)`, or the dictionary of statistics, each `(B, T)` or
        `(B, H, T)`. A layer called again adds its path with `#2`, `#3`.

    Example:

    >>> layer = kseq.layers.MultiHeadAttention(2, 4)
    >>> x = keras.ops.ones((1, 3, 8))
    >>> with kseq.diagnostics.capture() as maps:
    ...     y = layer(x, x)
    >>> [tuple(weights.shape) for weights in maps.values()]
    [(1, 2, 3, 3)]
    """
    found: dict[str, Any] = {}
    token = _active.set(_Capture(found, statistics))
    try:
        with _asking_keras():
            yield found
    finally:
        _active.reset(token)


@contextmanager
def no_capture() -> Iterator[None]:
    """Hides an active capture: a value made inside a loop must not leave it so."""
    token = _active.set(None)
    try:
        yield
    finally:
        _active.reset(token)


def wanted() -> str | None:
    """What an active capture collects: `"weights"`, `"statistics"`; else None."""
    active = _active.get()
    if active is None:
        return None
    return "statistics" if active.statistics else "weights"


def record(layer: keras.Layer, weights: Tensor) -> None:
    """Hands over the weights of `layer`, or what they say, to an active capture."""
    if wanted() == "weights":
        record_as(layer, weights)
    elif wanted() == "statistics":
        record_as(layer, weight_statistics(weights))


def record_as(layer: keras.Layer, found: Any) -> None:
    """Hands over what was found in `layer` to an active capture."""
    active = _active.get()
    if active is None:
        return
    name, calls = layer.path, 1
    while name in active.found:
        calls += 1
        name = f"{layer.path}#{calls}"
    active.found[name] = found


@contextmanager
def _asking_keras() -> Iterator[None]:
    """Has the layers of Keras return their weights to `record`, for a while.

    A class takes its `__call__` from `keras.Layer`; for a while it has its own.
    """
    ours = [kind for kind in _KERAS_LAYERS if "__call__" not in vars(kind)]
    for kind in ours:
        kind.__call__ = _asking(kind.__call__)
    try:
        yield
    finally:
        for kind in ours:
            del kind.__call__


def _asking(call: Callable[..., Any]) -> Callable[..., Any]:
    def asking(layer: keras.Layer, *args: Any, **kwargs: Any) -> Any:
        signature = inspect.signature(layer.call)
        if not wanted() or "return_attention_scores" not in signature.parameters:
            return call(layer, *args, **kwargs)
        given = signature.bind(*args, **kwargs).arguments
        asked = given.get("return_attention_scores", False)
        given["return_attention_scores"] = True
        outputs, weights = call(layer, **given)
        record(layer, weights)
        return (outputs, weights) if asked else outputs

    return asking
