"""A recurrent cell with a residual connection around it."""

from typing import Any

import keras

from kseq._checks import check_floating, message
from kseq._typing import Shape, Tensor
from kseq.layers.recurrent.wrapped_cell import WrappedCell


@keras.saving.register_keras_serializable(package="kseq")
class ResidualCell(WrappedCell):
    """A cell that adds its inputs to its output.

        y_t, states_t = cell(x_t, states_{t-1});  output_t = x_t + y_t

    The states are the cell's own. It makes deep stacks trainable:
    `RNN([LSTMCell(64), ResidualCell(LSTMCell(64)), ...])` is the encoder of Wu et
    al., whose first layer has no residual connection. For a connection around a
    whole layer, such as a bidirectional one, see `kseq.layers.Residual`.

    Args:
        cell: a recurrent cell, as `kseq.layers.RNN` takes it, whose outputs are as
            wide as its inputs.

    Call arguments:
        inputs: float `(B, U)`.
        states: the cell's states.
        training: bool, handed to the cell.

    Returns:
        `(output, states)`: `(B, U)` and the cell's states.

    Raises:
        TypeError: `` `cell` must be a Keras layer... ``
        ValueError: `` The inputs of a residual cell must be as wide as its
            outputs... ``

    Example:

    >>> cells = [kseq.layers.LSTMCell(4),
    ...          kseq.layers.ResidualCell(kseq.layers.LSTMCell(4))]
    >>> tuple(kseq.layers.RNN(cells)(keras.ops.ones((2, 5, 3))).shape)
    (2, 4)

    References:
        Wu et al., 2016, "Google's neural machine translation system",
        arXiv:1609.08144, section 3.1; He et al., 2016, arXiv:1512.03385.
    """

    def build(self, input_shape: Shape) -> None:
        if input_shape[-1] not in (None, self.output_size):
            raise ValueError(
                message(
                    "The inputs of a residual cell must be as wide as its outputs.",
                    fix="Leave the connection out where the width changes.",
                    input_shape=tuple(input_shape),
                    output_size=self.output_size,
                )
            )
        super().build(input_shape)

    def call(
        self, inputs: Tensor, states: Any, training: bool = False
    ) -> tuple[Tensor, Any]:
        check_floating("inputs", inputs)
        output, states = self.cell(inputs, states, training=training)
        return inputs + output, states
