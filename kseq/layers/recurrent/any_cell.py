"""What the drivers ask of a cell, whoever wrote it."""

from typing import Any

import keras
from keras import ops

from kseq._checks import message


def check_cell(cell: Any) -> keras.Layer:
    """Returns `cell`, a list of cells as a stack, or says what is wrong with it."""
    if isinstance(cell, list | tuple):
        cell = keras.layers.StackedRNNCells(cell)
    if not isinstance(cell, keras.layers.Layer) or not hasattr(cell, "state_size"):
        raise TypeError(
            message(
                "`cell` must be a Keras layer with a `state_size`.",
                cell=type(cell).__name__,
            )
        )
    for part in getattr(cell, "cells", [cell]):
        # Keras's own cells keep a dropout mask on themselves, which a compiled
        # loop can't hold
        if hasattr(part, "reset_dropout_mask") and (
            part.dropout or part.recurrent_dropout
        ):
            raise ValueError(
                message(
                    "`cell` must not be a cell of Keras with dropout.",
                    fix=f"kseq.layers.{type(part).__name__} has the same weights.",
                    cell=type(part).__name__,
                    dropout=part.dropout,
                    recurrent_dropout=part.recurrent_dropout,
                )
            )
    return cell


def state_size(cell: keras.Layer) -> list[Any]:
    """Widths of the states, one entry a state; a stack has lists inside the list."""
    sizes = _lists(cell.state_size)
    return sizes if isinstance(sizes, list) else [sizes]


def output_size(cell: keras.Layer) -> int:
    """Width of an output: the cell's own word, or that of its first state."""
    size = getattr(cell, "output_size", None)
    return keras.tree.flatten(state_size(cell))[0] if size is None else size


def zero_states(cell: keras.Layer, batch_size: Any) -> list[Any]:
    """The states before the first step, one entry a state."""
    if not hasattr(cell, "get_initial_state"):
        return keras.tree.map_structure(
            lambda size: ops.zeros((batch_size, size), cell.compute_dtype),
            state_size(cell),
        )
    states = cell.get_initial_state(batch_size)
    return list(states) if isinstance(states, list | tuple) else [states]


def check_states(
    cell: keras.Layer, initial_state: Any, batch_size: int | None
) -> list[Any]:
    """`initial_state` with the structure of the cell's states, in its dtype.

    `batch_size` is that of the sequences, where it is known.
    """
    if not isinstance(initial_state, list | tuple):
        initial_state = [initial_state]
    flat, sizes = map(keras.tree.flatten, (initial_state, state_size(cell)))
    shapes = [tuple(getattr(state, "shape", ())) for state in flat]
    wanted = [(batch_size, size) for size in sizes]
    if len(shapes) != len(wanted) or not all(map(_fits, shapes, wanted)):
        raise ValueError(
            message(
                "`initial_state` must hold one tensor a state, of the shapes "
                f"{wanted}.",
                shapes=shapes,
            )
        )
    flat = [ops.cast(state, cell.compute_dtype) for state in flat]
    return keras.tree.pack_sequence_as(state_size(cell), flat)


def _fits(shape: tuple[int | None, ...], wanted: tuple[int | None, ...]) -> bool:
    """Whether they agree wherever both are known."""
    pairs = zip(shape, wanted, strict=False)
    return len(shape) == len(wanted) and all(None in p or p[0] == p[1] for p in pairs)


def part_config(part: keras.Layer) -> dict[str, Any]:
    """Serialized `part` of a layer, without the shapes that it was built for.

    A part that Keras builds while it loads would have weights whose paths don't
    begin with the layer's own; the layer builds its parts itself.
    """
    return _unbuilt(keras.saving.serialize_keras_object(part))


def _unbuilt(config: Any) -> Any:
    if isinstance(config, dict):
        return {k: _unbuilt(v) for k, v in config.items() if k != "build_config"}
    return [_unbuilt(item) for item in config] if isinstance(config, list) else config


def _lists(sizes: Any) -> Any:
    """`sizes` in plain lists: JAX does not know those that layers have inside."""
    return (
        [_lists(size) for size in sizes] if isinstance(sizes, list | tuple) else sizes
    )
