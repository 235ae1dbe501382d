"""The long short-term memory cell."""

from typing import Any

import keras
from keras import ops

from kseq._typing import Shape, Tensor
from kseq.layers.recurrent.gated_cell import GatedCell
from kseq.ops.gates import Gates, LSTMGates


@keras.saving.register_keras_serializable(package="kseq")
class LSTMCell(GatedCell):
    """One step of a long short-term memory.

        i, f, g, o = split(x_t W + h_{t-1} U + b)
        c_t = s(f) * c_{t-1} + s(i) * a(g)
        h_t = s(o) * a(c_t)

    a is `activation`, s is `recurrent_activation`. W is `kernel` `(D, 4U)`, U is
    `recurrent_kernel` `(U, 4U)`, b is `bias` `(4U,)`, columns in the order input,
    forget, cell, output: the weights of `keras.layers.LSTMCell`, so `set_weights`
    moves both ways. Dropout masks are shared by the four gates, as in Keras's
    `implementation=2`.

    Args:
        units: int. Width of the states and of the output.
        activation: name or function. Defaults to `"tanh"`.
        recurrent_activation: name or function. Defaults to `"sigmoid"`.
        unit_forget_bias: bool. True adds 1 to the forget gate's first bias
            (Jozefowicz et al., 2015). Defaults to `True`.
        **kwargs: `use_bias`, initializers, regularizers, constraints, `dropout`,
            `recurrent_dropout` and `seed`, as in `kseq.layers.SimpleRNNCell`.

    Call arguments:
        inputs: float `(B, D)`.
        states: list of two tensors, h and c, each `(B, U)`.
        training: bool. True applies dropout.

    Returns:
        `(output, states)`: h `(B, U)` and the list `[h, c]`.

    Raises:
        ValueError: `` `units` must be a positive integer. `` and
            `` `dropout` must be a probability in [0, 1)... ``

    Example:

    >>> cell = kseq.layers.LSTMCell(4)
    >>> output, states = cell(keras.ops.ones((2, 3)), cell.get_initial_state(2))
    >>> tuple(output.shape), len(states)
    ((2, 4), 2)

    References:
        Hochreiter & Schmidhuber, 1997, "Long short-term memory", Neural
        Computation 9; Gers et al., 2000, for the forget gate.
    """

    num_gates = 4

    def __init__(
        self, units: int, *, unit_forget_bias: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(units, **kwargs)
        self.unit_forget_bias = unit_forget_bias
        self.state_size = [self.units, self.units]

    def initial_bias(self, shape: Shape, dtype: Any = None) -> Tensor:
        """See `RecurrentCell.initial_bias`."""
        bias = self.bias_initializer(shape, dtype=dtype)
        if not self.unit_forget_bias:
            return bias
        i, _, g, o = ops.split(bias, 4)
        return ops.concatenate([i, ops.ones((self.units,), dtype=dtype), g, o])

    @property
    def gates(self) -> Gates | None:
        """See `RecurrentCell.gates`."""
        return LSTMGates() if self.has_default_activations else None

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
        return [gate(o) * self.activation(c), c]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "unit_forget_bias": self.unit_forget_bias}
