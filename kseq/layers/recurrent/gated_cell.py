"""What the LSTM and the GRU cell share: the activation of the gates."""

from typing import Any

import keras

from kseq.layers.recurrent.cell import RecurrentCell


class GatedCell(RecurrentCell):
    """A cell with gates, whose activation is an argument of its own."""

    def __init__(
        self, units: int, *, recurrent_activation: Any = "sigmoid", **kwargs: Any
    ) -> None:
        super().__init__(units, **kwargs)
        self.recurrent_activation = keras.activations.get(recurrent_activation)

    @property
    def has_default_activations(self) -> bool:
        """Whether the activations are tanh and sigmoid."""
        return (
            self.activation is keras.activations.tanh
            and self.recurrent_activation is keras.activations.sigmoid
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "recurrent_activation": keras.activations.serialize(
                self.recurrent_activation
            ),
        }
