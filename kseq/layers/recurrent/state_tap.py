"""Zeros that a recurrence adds to its states, to differentiate by."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import keras
from keras import ops

from kseq._typing import Tensor

Tree = Any  # nested lists, tuples and dictionaries of tensors


class _Taps(NamedTuple):
    given: Mapping[str, Tensor]
    added: dict[str, Tensor]


_active: ContextVar[_Taps | None] = ContextVar("state_taps", default=None)


@contextmanager
def state_taps(zeros: Mapping[str, Tensor] | None = None) -> Iterator[dict[str, Any]]:
    """Adds zeros to every state that a recurrent layer makes inside the block.

        s_t = f(x_t, s_{t-1}) + z_t,  z_t = 0,  so  dL/ds_t = dL/dz_t

    s_t is what the output and the next step see. (A gradient with respect to the
    outputs of the layer lacks what goes through the next steps.) Layers look for it
    when they are traced, and then go a step at a time.

    Args:
        zeros: what to add, by name. What is missing is made.

    Yields:
        A dictionary, filled while the block runs: name -> what was added, `(B, T, U)`.
        A layer's first state, h, has the name of the layer's path, the next ones add
        `[1]`, `[2]`; each cell of a stack has its own path. A layer called again adds
        `#2`, `#3`.
    """
    added: dict[str, Tensor] = {}
    token = _active.set(_Taps(zeros or {}, added))
    try:
        yield added
    finally:
        _active.reset(token)


def tapping() -> bool:
    """Whether zeros are to be added."""
    return _active.get() is not None


def tap_steps(
    layer: keras.Layer, step: Callable[..., Tree], sequences: Tensor
) -> tuple[Callable[..., Tree], Tree]:
    """`step` and its `sequences` `(B, T, D)`, with zeros where they are to be added.

    `step` must call `layer.cell`.
    """
    taps = _active.get()
    if taps is None:
        return step, sequences
    cells = list(_state_makers(layer.cell))
    rows = tuple(ops.shape(sequences)[:2])
    zeros: list[list[Tensor]] = []
    for cell in cells:
        path = layer.path if len(cells) == 1 else cell.path
        path = _unused(path, taps.added)
        zeros.append([])
        for i, size in enumerate(keras.tree.flatten(cell.state_size)):
            name = f"{path}[{i}]" if i else path
            tap = taps.given.get(name)
            if tap is None:
                tap = ops.zeros((*rows, size), cell.compute_dtype)
            taps.added[name] = tap
            zeros[-1].append(tap)

    def tapped(inputs: Tree, states: Tree, constants: Tree) -> tuple[Tree, Tree]:
        inputs, zeros = inputs
        with ExitStack() as stack:
            for cell, added in zip(cells, zeros, strict=True):
                stack.enter_context(_adding(cell, added))
            return step(inputs, states, constants)

    return tapped, (sequences, zeros)


def _state_makers(cell: keras.Layer) -> Iterator[keras.Layer]:
    """The cells in `cell` whose new states go to the next step as they are."""
    parts = getattr(cell, "cells", None)
    if parts is None or getattr(cell, "changes_states", False):
        yield cell
    else:
        for part in parts:
            yield from _state_makers(part)


@contextmanager
def _adding(cell: keras.Layer, added: list[Tensor]) -> Iterator[None]:
    """Has `cell` return its states, and an output that is one of them, with more."""
    call = cell.call

    def adding(*args: Any, **kwargs: Any) -> tuple[Tensor, Tree]:
        output, states = call(*args, **kwargs)
        flat = keras.tree.flatten(states)
        new = [s + ops.cast(a, s.dtype) for s, a in zip(flat, added, strict=True)]
        outputs = [n for n, s in zip(new, flat, strict=True) if s is output]
        states = keras.tree.pack_sequence_as(states, new)
        return (outputs[0] if outputs else output), states

    cell.call = adding
    try:
        yield
    finally:
        del cell.call


def _unused(path: str, taken: Mapping[str, Any]) -> str:
    name, calls = path, 1
    while name in taken:
        calls += 1
        name = f"{path}#{calls}"
    return name
