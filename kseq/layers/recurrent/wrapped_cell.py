"""What the cells around another cell share."""

from typing import Any, ClassVar

import keras

from kseq._typing import Shape
from kseq.layers.recurrent.any_cell import (
    check_cell,
    output_size,
    part_config,
    state_size,
    zero_states,
)


class WrappedCell(keras.layers.Layer):
    """Base of the cells that run `cell` and change what comes out of it.

    `changes_states` is whether that is true of the states too.
    """

    changes_states: ClassVar[bool] = False

    def __init__(self, cell: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cell = check_cell(cell)
        self.supports_masking = True  # a mask of one step goes by untouched

    @property
    def cells(self) -> list[keras.Layer]:
        """The cell inside, where a stack has its cells."""
        return [self.cell]

    @property
    def state_size(self) -> list[Any]:
        """Widths of the states: the cell's own."""
        return state_size(self.cell)

    @property
    def output_size(self) -> int:
        """Width of an output: the cell's own."""
        return output_size(self.cell)

    def build(self, input_shape: Shape) -> None:
        if not self.cell.built:
            self.cell.build(input_shape)
            self.cell.built = True

    def get_initial_state(self, batch_size: Any = None) -> list[Any]:
        """The cell's own first state."""
        return zero_states(self.cell, batch_size)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "cell": part_config(self.cell)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "WrappedCell":
        """The cell that `get_config` describes."""
        cell = keras.saving.deserialize_keras_object(config["cell"])
        return cls(**{**config, "cell": cell})
