"""The long short-term memory whose gates see the cell state."""

from typing import Any

import keras
from keras import ops

from kseq._typing import Shape, Tensor
from kseq.layers.recurrent.lstm_cell import LSTMCell


@keras.saving.register_keras_serializable(package="kseq")
class PeepholeLSTMCell(LSTMCell):
    """One step of a long short-term memory with peephole connections.

        i, f, g, o = split(x_t W + h_{t-1} U + b)
        c_t = s(f + p_f * c_{t-1}) * c_{t-1} + s(i + p_i * c_{t-1}) * a(g)
        h_t = s(o + p_o * c_t) * a(c_t)

    a is `activation`, s is `recurrent_activation`. W is `kernel` `(D, 4U)`, U is
    `recurrent_kernel` `(U, 4U)`, b is `bias` `(4U,)`, columns in the order input,
    forget, cell, output. The peepholes p_i, p_f, p_o, each `(U,)`, are
    `input_peephole`, `forget_peephole` and `output_peephole`: a gate sees the
    state of its own unit only. The output gate sees the new state, the others see
    the old one. With zeros for peepholes this is `kseq.layers.LSTMCell`.

    Args:
        units: int. Width of the states and of the output.
        peephole_initializer: name or function. Defaults to `"zeros"`: learning
            starts from an LSTM without peepholes.
        **kwargs: every argument of `kseq.layers.LSTMCell`.

    Call arguments:
        inputs: float `(B, D)`.
        states: list of two tensors, h and c, each `(B, U)`.
        training: bool. True applies dropout.

    Returns:
        `(output, states)`: h `(B, U)` and the list `[h, c]`.

    Raises:
        ValueError: as `kseq.layers.LSTMCell`.

    Example:

    >>> cell = kseq.layers.PeepholeLSTMCell(4)
    >>> output, states = cell(keras.ops.ones((2, 3)), cell.get_initial_state(2))
    >>> tuple(output.shape), len(states)
    ((2, 4), 2)

    References:
        Gers & Schmidhuber, 2000, "Recurrent nets that time and count", IJCNN;
        Gers, Schraudolph & Schmidhuber, 2002, "Learning precise timing with LSTM
        recurrent networks", JMLR 3.
    """

    def __init__(
        self, units: int, *, peephole_initializer: Any = "zeros", **kwargs: Any
    ) -> None:
        super().__init__(units, **kwargs)
        self.peephole_initializer = keras.initializers.get(peephole_initializer)

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        self.input_peephole, self.forget_peephole, self.output_peephole = (
            self.add_weight(
                shape=(self.units,),
                name=f"{gate}_peephole",
                initializer=self.peephole_initializer.clone(),
            )
            for gate in ("input", "forget", "output")
        )

    @property
    def step_variables(self) -> list[keras.Variable]:
        """See `RecurrentCell.step_variables`."""
        peepholes = [self.input_peephole, self.forget_peephole, self.output_peephole]
        return [*super().step_variables, *peepholes]

    def step(
        self, projected: Tensor, states: list[Tensor], recurrent_mask: Tensor | None
    ) -> list[Tensor]:
        """See `RecurrentCell.step`."""
        h, c = states
        if recurrent_mask is not None:
            h = h * recurrent_mask
        recurrent = ops.matmul(h, self.in_step(self.recurrent_kernel))
        gates = projected + recurrent  # (B, 4U)
        i, f, g, o = ops.split(gates, 4, axis=-1)
        gate = self.recurrent_activation
        i = gate(i + self.in_step(self.input_peephole) * c)
        f = gate(f + self.in_step(self.forget_peephole) * c)
        c = f * c + i * self.activation(g)
        o = gate(o + self.in_step(self.output_peephole) * c)
        return [o * self.activation(c), c]

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "peephole_initializer": keras.initializers.serialize(
                self.peephole_initializer
            ),
        }
