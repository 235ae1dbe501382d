"""The long short-term memory with layer normalization."""

from typing import Any

import keras
from keras import ops

from kseq._typing import Shape, Tensor
from kseq.layers.recurrent.lstm_cell import LSTMCell


@keras.saving.register_keras_serializable(package="kseq")
class LayerNormLSTMCell(LSTMCell):
    """One step of a long short-term memory with layer normalization.

        i, f, g, o = split(LN(x_t W; w_x) + LN(h_{t-1} U; w_h) + b)
        c_t = s(f) * c_{t-1} + s(i) * a(g)
        h_t = s(o) * a(LN(c_t; w_c) + b_c)
        LN(v; w) = w * (v - mean v) / sqrt(var v + epsilon)

    a is `activation`, s is `recurrent_activation`. W is `kernel` `(D, 4U)`, U is
    `recurrent_kernel` `(U, 4U)`, b is `bias` `(4U,)`, columns in the order input,
    forget, cell, output. The first two norms are over all 4U columns together, as
    in the paper; their gains are `kernel_gamma` and `recurrent_gamma` `(4U,)`. The
    paper shifts each of them too: both shifts only add to b, and are left out. The
    gain and the shift of c are `state_gamma` and `state_beta` `(U,)`. What is
    carried is c as it is; tensorflow_addons carries its normalized value.

    LN(x W) + b is computed for all steps at once; the loop has the other two norms.

    Args:
        units: int. Width of the states and of the output.
        epsilon: float > 0, added to the variances. Defaults to `1e-3`.
        **kwargs: every argument of `kseq.layers.LSTMCell`.

    Call arguments:
        inputs: float `(B, D)`.
        states: list of two tensors, h and c, each `(B, U)`.
        training: bool. True applies dropout.

    Returns:
        `(output, states)`: h `(B, U)` and the list `[h, c]`.

    Numerics: the norms, the gates and the sums of a step in at least float32,
        whatever the policy; the states have the dtype of the policy.

    Raises:
        ValueError: as `kseq.layers.LSTMCell`.

    Example:

    >>> cell = kseq.layers.LayerNormLSTMCell(4)
    >>> output, states = cell(keras.ops.ones((2, 3)), cell.get_initial_state(2))
    >>> tuple(output.shape), len(states)
    ((2, 4), 2)

    References:
        Ba, Kiros & Hinton, 2016, "Layer normalization", arXiv:1607.06450,
        supplementary material, "Teaching machines to read and comprehend".
    """

    def __init__(self, units: int, *, epsilon: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(units, **kwargs)
        self.epsilon = epsilon

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        columns = self.num_gates * self.units
        self.kernel_gamma = self._gain("kernel_gamma", columns)
        self.recurrent_gamma = self._gain("recurrent_gamma", columns)
        self.state_gamma = self._gain("state_gamma", self.units)
        self.state_beta = self.add_weight(
            shape=(self.units,), name="state_beta", initializer="zeros"
        )

    def _gain(self, name: str, size: int) -> keras.Variable:
        return self.add_weight(shape=(size,), name=name, initializer="ones")

    def input_bias(self) -> Tensor | None:
        """None: the bias joins LN(x W)."""
        return None

    def project(self, inputs: Tensor, training: bool = False) -> Tensor:
        """`LN(x W) + b` for one step `(B, D)` or a sequence `(B, T, D)`."""
        projected = ops.layer_normalization(
            super().project(inputs, training), self.kernel_gamma, epsilon=self.epsilon
        )
        return projected if self.bias is None else projected + self.bias

    @property
    def step_variables(self) -> list[keras.Variable]:
        """See `RecurrentCell.step_variables`."""
        norms = [self.recurrent_gamma, self.state_gamma, self.state_beta]
        return [*super().step_variables, *norms]

    def step(
        self, projected: Tensor, states: list[Tensor], recurrent_mask: Tensor | None
    ) -> list[Tensor]:
        """See `RecurrentCell.step`."""
        h, c = states
        if recurrent_mask is not None:
            h = h * recurrent_mask
        recurrent = ops.matmul(h, self.in_step(self.recurrent_kernel))  # (B, 4U)
        # the gradient of a norm magnifies what its output was rounded by
        compute = keras.backend.result_type(h.dtype, "float32")
        normalized = ops.layer_normalization(
            ops.cast(recurrent, compute),
            self.in_step(self.recurrent_gamma),
            epsilon=self.epsilon,
        )
        gates = ops.cast(projected, compute) + normalized
        i, f, g, o = ops.split(gates, 4, axis=-1)
        gate = self.recurrent_activation
        c = gate(f) * ops.cast(c, compute) + gate(i) * self.activation(g)
        shown = ops.layer_normalization(
            c,
            self.in_step(self.state_gamma),
            self.in_step(self.state_beta),
            epsilon=self.epsilon,
        )
        new = [gate(o) * self.activation(shown), c]
        return [ops.cast(state, h.dtype) for state in new]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "epsilon": self.epsilon}
