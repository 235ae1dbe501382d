"""The long short-term memory with a recurrent projection."""

from typing import Any

import keras
from keras import ops

from kseq._checks import check_size
from kseq._typing import Shape, Tensor
from kseq.layers.recurrent.lstm_cell import LSTMCell


@keras.saving.register_keras_serializable(package="kseq")
class ProjectedLSTMCell(LSTMCell):
    """One step of a long short-term memory with a recurrent projection, an LSTMP.

        i, f, g, o = split(x_t W + h_{t-1} U + b)
        c_t = s(f) * c_{t-1} + s(i) * a(g)
        h_t = (s(o) * a(c_t)) P

    a is `activation`, s is `recurrent_activation`. W is `kernel` `(D, 4U)`, U is
    `recurrent_kernel` `(R, 4U)`, b is `bias` `(4U,)`, columns in the order input,
    forget, cell, output; P is `projection_kernel` `(U, R)`, without a bias, and R
    is `proj_units`. The meaning is that of `proj_size` in `torch.nn.LSTM`. The
    paper also has peepholes and, in one variant, outputs that are not fed back.

    Args:
        units: int. Width U of the cell state c.
        proj_units: int. Width R of h and of the output, as a rule less than U.
        projection_initializer: name or function. Defaults to `"glorot_uniform"`.
        **kwargs: every argument of `kseq.layers.LSTMCell`.

    Call arguments:
        inputs: float `(B, D)`.
        states: list of two tensors, h `(B, R)` and c `(B, U)`.
        training: bool. True applies dropout.

    Returns:
        `(output, states)`: h `(B, R)` and the list `[h, c]`.

    Raises:
        ValueError: `` `proj_units` must be a positive integer. ``, and as
            `kseq.layers.LSTMCell`.

    Example:

    >>> cell = kseq.layers.ProjectedLSTMCell(8, 4)
    >>> output, (h, c) = cell(keras.ops.ones((2, 3)), cell.get_initial_state(2))
    >>> tuple(output.shape), tuple(c.shape)
    ((2, 4), (2, 8))

    References:
        Sak, Senior & Beaufays, 2014, "Long short-term memory based recurrent
        neural network architectures for large vocabulary speech recognition",
        arXiv:1402.1128.
    """

    def __init__(
        self,
        units: int,
        proj_units: int,
        *,
        projection_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(units, **kwargs)
        self.proj_units = check_size("proj_units", proj_units)
        self.projection_initializer = keras.initializers.get(projection_initializer)
        self.state_size = [self.proj_units, self.units]
        self.output_size = self.proj_units

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        self.projection_kernel = self.add_weight(
            shape=(self.units, self.proj_units),
            name="projection_kernel",
            initializer=self.projection_initializer,
        )

    @property
    def step_variables(self) -> list[keras.Variable]:
        """See `RecurrentCell.step_variables`."""
        return [*super().step_variables, self.projection_kernel]

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
        c = gate(f) * c + gate(i) * self.activation(g)
        hidden = gate(o) * self.activation(c)
        return [ops.matmul(hidden, self.in_step(self.projection_kernel)), c]  # (B, R)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "proj_units": self.proj_units,
            "projection_initializer": keras.initializers.serialize(
                self.projection_initializer
            ),
        }
