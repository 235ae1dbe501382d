"""The simple recurrent cell of Elman."""

import keras
from keras import ops

from kseq._typing import Tensor
from kseq.layers.recurrent.cell import RecurrentCell
from kseq.ops.gates import Gates, SimpleGates


@keras.saving.register_keras_serializable(package="kseq")
class SimpleRNNCell(RecurrentCell):
    """One step of a simple (Elman) recurrent network.

        h_t = activation(x_t W + h_{t-1} U + b)

    W is `kernel` `(D, U)`, U is `recurrent_kernel` `(U, U)`, b is `bias` `(U,)`:
    the weights of `keras.layers.SimpleRNNCell`, so `set_weights` moves both ways.

    Args:
        units: int. Width of the state and of the output.
        activation: name or function. Defaults to `"tanh"`.
        use_bias: bool. Defaults to `True`.
        kernel_initializer: initializer of W. Defaults to `"glorot_uniform"`.
        recurrent_initializer: initializer of U. Defaults to `"orthogonal"`.
        bias_initializer: initializer of b. Defaults to `"zeros"`.
        kernel_regularizer: regularizer of W. Defaults to `None`; in the same way
            `recurrent_regularizer` and `bias_regularizer`.
        kernel_constraint: constraint of W. Defaults to `None`; in the same way
            `recurrent_constraint` and `bias_constraint`.
        dropout: probability in [0, 1) that an input feature is dropped, for the
            whole sequence. Defaults to `0.0`.
        recurrent_dropout: the same for the previous output, inside `h U` only.
            Defaults to `0.0`.
        seed: int, the seed of the dropout masks. Defaults to `None`.

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

    >>> cell = kseq.layers.SimpleRNNCell(4)
    >>> output, states = cell(keras.ops.ones((2, 3)), cell.get_initial_state(2))
    >>> tuple(output.shape)
    (2, 4)

    References:
        Elman, 1990, "Finding structure in time", Cognitive Science 14.
    """

    num_gates = 1

    @property
    def gates(self) -> Gates | None:
        """See `RecurrentCell.gates`."""
        return SimpleGates() if self.activation is keras.activations.tanh else None

    def step(
        self, projected: Tensor, states: list[Tensor], recurrent_mask: Tensor | None
    ) -> list[Tensor]:
        """See `RecurrentCell.step`."""
        (h,) = states
        if recurrent_mask is not None:
            h = h * recurrent_mask
        recurrent = ops.matmul(h, self.in_step(self.recurrent_kernel))
        return [self.activation(projected + recurrent)]
