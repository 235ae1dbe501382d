"""The gated recurrent unit."""

from typing import Any

import keras
from keras import ops

from kseq._typing import Shape, Tensor
from kseq.layers.recurrent.gated_cell import GatedCell
from kseq.ops.affine import affine
from kseq.ops.gates import Gates, GRUGates


@keras.saving.register_keras_serializable(package="kseq")
class GRUCell(GatedCell):
    """One step of a gated recurrent unit.

        z = s(x_t W_z + h U_z + b_z);  r = s(x_t W_r + h U_r + b_r)
        n = a(x_t W_n + b_n + r * (h U_n + c_n))     reset_after=True
        n = a(x_t W_n + b_n + (r * h) U_n)           reset_after=False
        h_t = z * h + (1 - z) * n                    with h = h_{t-1}

    a is `activation`, s is `recurrent_activation`. W is `kernel` `(D, 3U)`, U is
    `recurrent_kernel` `(U, 3U)`, columns in the order update z, reset r, new n.
    With `reset_after` the bias is `(2, 3U)`, the row b and the row c (z and r have
    a c too); without it is `(3U,)`. These are the weights of
    `keras.layers.GRUCell`, so `set_weights` moves both ways. `reset_after=True` is
    the form of cuDNN; False is the form of the paper. Dropout masks are shared by
    the gates, as in Keras's `implementation=2`; with `reset_after=False` the
    recurrent mask also reaches the h of the new state.

    Args:
        units: int. Width of the state and of the output.
        activation: name or function. Defaults to `"tanh"`.
        recurrent_activation: name or function. Defaults to `"sigmoid"`.
        reset_after: bool. Whether the reset gate follows the product with U.
            Defaults to `True`.
        **kwargs: `use_bias`, initializers, regularizers, constraints, `dropout`,
            `recurrent_dropout` and `seed`, as in `kseq.layers.SimpleRNNCell`.

    Call arguments:
        inputs: float `(B, D)`.
        states: list of one tensor, h `(B, U)`.
        training: bool. True applies dropout.

    Returns:
        `(output, states)`: `(B, U)` and the list of one tensor.

    Raises:
        ValueError: `` `units` must be a positive integer. `` and
            `` `dropout` must be a probability in [0, 1)... ``

    Example:

    >>> cell = kseq.layers.GRUCell(4)
    >>> output, states = cell(keras.ops.ones((2, 3)), cell.get_initial_state(2))
    >>> tuple(output.shape)
    (2, 4)

    References:
        Cho et al., 2014, "Learning phrase representations using RNN
        encoder-decoder for statistical machine translation", arXiv:1406.1078.
    """

    num_gates = 3

    def __init__(self, units: int, *, reset_after: bool = True, **kwargs: Any) -> None:
        super().__init__(units, **kwargs)
        self.reset_after = reset_after

    def bias_shape(self) -> Shape:
        """See `RecurrentCell.bias_shape`."""
        columns = 3 * self.units
        return (2, columns) if self.reset_after else (columns,)

    def input_bias(self) -> Tensor | None:
        """See `RecurrentCell.input_bias`."""
        if self.bias is None or not self.reset_after:
            return self.bias
        return self.bias[0]

    @property
    def step_variables(self) -> list[keras.Variable]:
        """See `RecurrentCell.step_variables`."""
        biased = self.use_bias and self.reset_after
        return [self.recurrent_kernel, self.bias] if biased else [self.recurrent_kernel]

    @property
    def gates(self) -> Gates | None:
        """See `RecurrentCell.gates`."""
        fast = self.reset_after and self.has_default_activations
        return GRUGates() if fast else None

    def gate_inputs(self, inputs: Tensor) -> tuple[list[Tensor], Tensor | None]:
        """See `RecurrentCell.gate_inputs`."""
        split = 2 * self.units
        kernel, bias, new_bias = self.in_step(self.kernel), None, None
        if self.bias is not None:
            b, c = ops.unstack(self.in_step(self.bias))
            # only that of the new state stays apart from the product with h
            new_bias = b[split:]
            bias = ops.concatenate([b[:split] + c[:split], c[split:]])
        gates = affine(inputs, kernel[:, :split], None)
        return [gates, affine(inputs, kernel[:, split:], new_bias)], bias

    def step(
        self, projected: Tensor, states: list[Tensor], recurrent_mask: Tensor | None
    ) -> list[Tensor]:
        """See `RecurrentCell.step`."""
        (h,) = states
        dropped = h if recurrent_mask is None else h * recurrent_mask
        x_gates, x_new = projected[:, : 2 * self.units], projected[:, 2 * self.units :]
        gate = self.recurrent_activation
        kernel = self.in_step(self.recurrent_kernel)
        if self.reset_after:
            recurrent = ops.matmul(dropped, kernel)  # (B, 3U)
            if self.bias is not None:
                recurrent = recurrent + self.in_step(self.bias)[1]
            z, r = ops.split(gate(x_gates + recurrent[:, : 2 * self.units]), 2, axis=-1)
            new = self.activation(x_new + r * recurrent[:, 2 * self.units :])
        else:
            recurrent = ops.matmul(dropped, kernel[:, : 2 * self.units])  # (B, 2U)
            z, r = ops.split(gate(x_gates + recurrent), 2, axis=-1)
            recurrent = ops.matmul(r * dropped, kernel[:, 2 * self.units :])
            new = self.activation(x_new + recurrent)
        return [z * h + (1 - z) * new]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "reset_after": self.reset_after}
