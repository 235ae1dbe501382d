"""Runs one step of a cell over a sequence: masks, variables, direction."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from kseq._checks import message
from kseq._typing import Tensor
from kseq.backend import scan
from kseq.layers.recurrent.cell import RecurrentCell

Tree = Any  # nested lists, tuples and dictionaries of tensors


def scan_cell(
    step: Callable[[Tree, Tree, Tree], tuple[Tree, Tree]],
    sequences: Tree,
    states: Tree,
    constants: Tree = (),
    *,
    variables: Sequence[keras.Variable],
    seeded: keras.Layer | None = None,
    mask: Tensor | None = None,
    reset_mask: Tensor | None = None,
    reset_states: Tree = (),
    empty_output: Tree,
    reverse: bool = False,
) -> tuple[Tree, Tree, Tree]:
    """Runs `output, states = step(inputs, states, constants)` over time.

    At a masked step the states are copied and the previous output is repeated,
    `empty_output` before the first real step. This is the one place where kseq
    drives a recurrence.

    Args:
        step: function of one step's inputs `(B, ...)`.
        sequences: tree of tensors `(B, T, ...)`.
        states: tree of tensors `(B, ...)`, the first states.
        constants: tree of tensors that every step sees.
        variables: the variables that `step` reads.
        seeded: the cell whose seeds `step` draws from, or None. A cell of kseq
            draws the same masks at every step, any other cell new numbers.
        mask: bool `(B, T)`, True for a real step, or None.
        reset_mask: bool `(B, T)`, True for a step that starts anew, or None.
        reset_states: what such a step starts from, like `states`.
        empty_output: zeros `(B, ...)`, a tree shaped like an output.
        reverse: bool. True runs from the last step to the first.

    Returns:
        `(outputs, last_output, last_states)`; outputs are `(B, T, ...)` and stand
        at the step that made them.

    Raises:
        ValueError: `` A cell must not assign a weight inside the loop... ``
    """
    seeds = [] if seeded is None else _seeds(seeded)
    held = set() if seeded is None else {id(seed) for seed in _held_seeds(seeded)}

    def one_step(shared: Tree, carry: Tree, xs: Tree) -> tuple[Tree, Tree]:
        constants, values, first_seeds, reset_states = shared
        states, seed_values, previous = carry
        inputs, real, reset = xs
        if reset_mask is not None:
            states = _where(reset[0], reset_states, states)
            previous = _where(reset[0], _zeros_like(previous), previous)
        seed_values = [
            first if id(seed) in held else last
            for seed, first, last in zip(seeds, first_seeds, seed_values, strict=True)
        ]
        mapping = [
            *zip(variables, values, strict=True),
            *zip(seeds, seed_values, strict=True),
        ]
        with keras.StatelessScope(mapping) as scope:
            given = [scope.get_current_value(variable) for variable in variables]
            output, new_states = step(inputs, states, constants)
            seed_values = [scope.get_current_value(seed) for seed in seeds]
            for variable, value in zip(variables, given, strict=True):
                if scope.get_current_value(variable) is not value:
                    raise ValueError(
                        message(
                            "A cell must not assign a weight inside the loop.",
                            fix="Keep what changes from step to step in the states.",
                            weight=variable.path,
                        )
                    )
        # a cell may answer with a tuple where it was given a list
        new_states = keras.tree.pack_sequence_as(states, keras.tree.flatten(new_states))
        if mask is None:
            return (new_states, seed_values, previous), output
        new_states = _where(real[0], new_states, states)
        output = _where(real[0], output, previous[0])
        return (new_states, seed_values, [output]), output

    masks = [[] if m is None else [_time_major(m)] for m in (mask, reset_mask)]
    first_seeds = [seed.value for seed in seeds]
    carry, outputs = scan(
        one_step,
        (states, first_seeds, [] if mask is None else [empty_output]),
        (keras.tree.map_structure(_time_major, sequences), *masks),
        (
            constants,
            [variable.value for variable in variables],
            first_seeds,
            () if reset_mask is None else reset_states,
        ),
        reverse=reverse,
    )
    last_states, seed_values, _ = carry
    for seed, value in zip(seeds, seed_values, strict=True):
        seed.assign(value)
    last_output = keras.tree.map_structure(
        lambda y: y[0] if reverse else y[-1], outputs
    )
    return keras.tree.map_structure(_time_major, outputs), last_output, last_states


def _seeds(cell: keras.Layer) -> list[keras.Variable]:
    """The variables of `cell` that are no weights."""
    weights = {id(variable) for variable in cell.weights}
    return [seed for seed in cell.variables if id(seed) not in weights]


def _held_seeds(cell: keras.Layer) -> list[keras.Variable]:
    """Those of them whose masks last a whole sequence."""
    if isinstance(cell, RecurrentCell):
        return _seeds(cell)
    return [seed for part in getattr(cell, "cells", []) for seed in _held_seeds(part)]


def _time_major(x: Tensor) -> Tensor:
    """Swaps batch and time, either way."""
    return ops.swapaxes(x, 0, 1)


def _zeros_like(tree: Tree) -> Tree:
    return keras.tree.map_structure(ops.zeros_like, tree)


def _where(real: Tensor, new: Tree, old: Tree) -> Tree:
    """`new` in the rows where `real` `(B,)` is True, else `old`."""

    def choose(n: Tensor, o: Tensor) -> Tensor:
        rows = ops.reshape(real, (-1,) + (1,) * (len(n.shape) - 1))
        return ops.where(rows, n, o)

    return keras.tree.map_structure(choose, new, old)
