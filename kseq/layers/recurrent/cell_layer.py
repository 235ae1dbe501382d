"""Base of the layers that make their own cell from its arguments."""

from typing import Any, ClassVar

from kseq._checks import message
from kseq.layers.recurrent.cell import RecurrentCell
from kseq.layers.recurrent.rnn import RNN

_LAYER_KEYS = ("activity_regularizer", "autocast", "dtype", "name", "trainable")


class CellLayer(RNN):
    """An `RNN` over a `cell_class` made from the layer's own arguments.

    The cell's name is fixed, as in Keras, so that a loaded layer has the same paths.
    """

    cell_class: ClassVar[type[RecurrentCell]]
    cell_name: ClassVar[str]

    def __init__(
        self,
        units: int,
        *,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        zero_output_for_mask: bool = False,
        trainable_initial_state: bool = False,
        **kwargs: Any,
    ) -> None:
        for key in ("unroll", "implementation", "use_cudnn"):
            if key in kwargs:
                raise TypeError(
                    message(
                        f"`{key}` says how Keras runs its loop, and is no argument of "
                        f"kseq.layers.{type(self).__name__}.",
                        fix="Leave it out: the result is the same.",
                        **{key: kwargs[key]},
                    )
                )
        layer = {key: kwargs.pop(key) for key in _LAYER_KEYS if key in kwargs}
        dtype = layer.get("dtype")
        super().__init__(
            self.cell_class(units, name=self.cell_name, dtype=dtype, **kwargs),
            return_sequences=return_sequences,
            return_state=return_state,
            go_backwards=go_backwards,
            stateful=stateful,
            zero_output_for_mask=zero_output_for_mask,
            trainable_initial_state=trainable_initial_state,
            **layer,
        )

    @property
    def units(self) -> int:
        """Width of the state and of the output."""
        return self.cell.units

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["cell"]
        cell = self.cell.get_config()
        return {**cell, **config}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "CellLayer":
        """The layer that `get_config` describes."""
        return cls(**config)
