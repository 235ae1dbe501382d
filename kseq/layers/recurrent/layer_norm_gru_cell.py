"""The gated recurrent unit with layer normalization."""

from typing import Any

import keras
from keras import ops

from kseq._typing import Shape, Tensor
from kseq.layers.recurrent.gated_cell import GatedCell


@keras.saving.register_keras_serializable(package="kseq")
class LayerNormGRUCell(GatedCell):
    """One step of a gated recurrent unit with layer normalization.

        z, r = split(s(LN(x_t W_zr; w_1) + LN(h U_zr; w_2) + b_zr))
        n = a(LN(x_t W_n; w_3) + b_n + r * (LN(h U_n; w_4) + c_n))
        h_t = z * h + (1 - z) * n                    with h = h_{t-1}
        LN(v; w) = w * (v - mean v) / sqrt(var v + epsilon)

    a is `activation`, s is `recurrent_activation`. W is `kernel` `(D, 3U)`, U is
    `recurrent_kernel` `(U, 3U)`, columns in the order update z, reset r, new n. As
    in the paper there are four norms: one over the 2U columns of z and r, and one
    over the U columns of n, each for x W and for h U. The gains w_1 and w_3 are
    `kernel_gamma`, w_2 and w_4 are `recurrent_gamma`, both `(3U,)`. The paper
    shifts all four: the two shifts of z and r only add, so that one is left, and
    the shifts are `bias` `(3U,)`, b, and `recurrent_beta` `(U,)`, c_n, which r
    scales. The paper's z is 1 - z here: as in `kseq.layers.GRUCell`, whose form
    `reset_after=True` this is without the norms, z keeps the old state.

    LN(x W) + b is computed for all steps at once, before the loop.

    Args:
        units: int. Width of the state and of the output.
        epsilon: float > 0, added to the variances. Defaults to `1e-3`.
        **kwargs: every argument of `kseq.layers.GRUCell` but `reset_after`.

    Call arguments:
        inputs: float `(B, D)`.
        states: list of one tensor, h `(B, U)`.
        training: bool. True applies dropout.

    Returns:
        `(output, states)`: `(B, U)` and the list of one tensor.

    Numerics: the norms, the gates and the sums of a step in at least float32,
        whatever the policy; the states have the dtype of the policy.

    Raises:
        ValueError: as `kseq.layers.GRUCell`.

    Example:

    >>> cell = kseq.layers.LayerNormGRUCell(4)
    >>> output, states = cell(keras.ops.ones((2, 3)), cell.get_initial_state(2))
    >>> tuple(output.shape)
    (2, 4)

    References:
        Ba, Kiros & Hinton, 2016, "Layer normalization", arXiv:1607.06450,
        supplementary material, "Order embeddings and skip-thoughts".
    """

    num_gates = 3

    def __init__(self, units: int, *, epsilon: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(units, **kwargs)
        self.epsilon = epsilon

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        columns = self.num_gates * self.units
        self.kernel_gamma = self.add_weight(
            shape=(columns,), name="kernel_gamma", initializer="ones"
        )
        self.recurrent_gamma = self.add_weight(
            shape=(columns,), name="recurrent_gamma", initializer="ones"
        )
        self.recurrent_beta = self.add_weight(
            shape=(self.units,), name="recurrent_beta", initializer="zeros"
        )

    def input_bias(self) -> Tensor | None:
        """None: the bias joins LN(x W)."""
        return None

    def project(self, inputs: Tensor, training: bool = False) -> Tensor:
        """`LN(x W) + b` for one step `(B, D)` or a sequence `(B, T, D)`."""
        parts = self._norms(super().project(inputs, training), self.kernel_gamma)
        projected = ops.concatenate(parts, axis=-1)
        return projected if self.bias is None else projected + self.bias

    @property
    def step_variables(self) -> list[keras.Variable]:
        """See `RecurrentCell.step_variables`."""
        norms = [self.recurrent_gamma, self.recurrent_beta]
        return [*super().step_variables, *norms]

    def step(
        self, projected: Tensor, states: list[Tensor], recurrent_mask: Tensor | None
    ) -> list[Tensor]:
        """See `RecurrentCell.step`."""
        (h,) = states
        dropped = h if recurrent_mask is None else h * recurrent_mask
        recurrent = ops.matmul(dropped, self.in_step(self.recurrent_kernel))  # (B, 3U)
        # the gradient of a norm magnifies what its output was rounded by
        compute = keras.backend.result_type(h.dtype, "float32")
        shift = ops.cast(self.in_step(self.recurrent_beta), compute)
        x_gates, x_new = self._parts(ops.cast(projected, compute))
        h_gates, h_new = self._norms(
            ops.cast(recurrent, compute), self.in_step(self.recurrent_gamma)
        )
        z, r = ops.split(self.recurrent_activation(x_gates + h_gates), 2, axis=-1)
        new = self.activation(x_new + r * (h_new + shift))
        return [ops.cast(z * ops.cast(h, compute) + (1 - z) * new, h.dtype)]

    def _parts(self, x: Tensor) -> list[Tensor]:
        """The columns of z and r, and those of n."""
        return ops.split(x, [2 * self.units], axis=-1)

    def _norms(self, x: Tensor, gamma: Tensor) -> list[Tensor]:
        """Each part with the norm of its own."""
        return [
            ops.layer_normalization(part, gain, epsilon=self.epsilon)
            for part, gain in zip(self._parts(x), self._parts(gamma), strict=True)
        ]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "epsilon": self.epsilon}
