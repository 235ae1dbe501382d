"""The minimal gated recurrent unit."""

import keras
from keras import ops

from kseq._typing import Tensor
from kseq.backend import custom_gradient
from kseq.layers.recurrent.linear_cell import LinearCell
from kseq.ops.linear_recurrence import ConvexStep


@keras.saving.register_keras_serializable(package="kseq")
class MinGRUCell(LinearCell):
    """One step of a minimal gated recurrent unit.

        z = s(x_t W_z + b_z)
        h_t = (1 - z) * h_{t-1} + z * g(x_t W_h + b_h)
        g(v) = v + 1/2 for v >= 0, s(v) for v < 0

    s is the sigmoid. W is `kernel` `(D, 2U)` and b is `bias` `(2U,)`, columns in the
    order gate z, candidate h. g, which is positive, is the candidate of the paper's
    form in log space. Neither depends on h, so that `kseq.layers.RNN` runs a whole
    sequence at once, in parallel over time; there is no recurrent kernel, no
    recurrent dropout and no `activation`.

    Args:
        units: int. Width of the state and of the output.
        **kwargs: `use_bias`, initializers, regularizers and constraints of kernel and
            bias, `dropout` and `seed`, as in `kseq.layers.SimpleRNNCell`.

    Call arguments:
        inputs: float `(B, D)`.
        states: list of one tensor, h `(B, U)`.
        training: bool. True applies dropout.

    Returns:
        `(output, states)`: `(B, U)` and the list of one tensor.

    Numerics: gates, candidate and h in at least float32, whatever the policy; the
        h of a sequence is rounded where it leaves it, that of the cell alone at
        every step.

    Raises:
        TypeError: `` `recurrent_dropout` is no argument of ... ``
        ValueError: `` `units` must be a positive integer. `` and
            `` `dropout` must be a probability in [0, 1)... ``

    Example:

    >>> cell = kseq.layers.MinGRUCell(4)
    >>> output, states = cell(keras.ops.ones((2, 3)), cell.get_initial_state(2))
    >>> tuple(output.shape)
    (2, 4)

    References:
        Feng et al., 2024, "Were RNNs all we needed?", arXiv:2410.01201.
    """

    recurrence = ConvexStep

    def coefficients(
        self, inputs: Tensor, starts: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """See `LinearCell.coefficients`."""
        k, v = self.gates_of(inputs)
        keep = ops.sigmoid(-k)  # 1 - z
        candidate = custom_gradient(_candidate, _candidate_gradient)(v)
        if starts is not None:
            # z counts there all the same
            candidate = ops.where(starts, (1 - keep) * candidate, candidate)
        return keep, candidate


def _candidate(v: Tensor) -> tuple[Tensor, Tensor]:
    g = ops.where(v >= 0, v + 0.5, ops.sigmoid(v))
    return g, g


def _candidate_gradient(g: Tensor, upstream: Tensor) -> Tensor:
    """From g alone: v and its sigmoid would be two more arrays to read.

    Where v is below 0 by less than a rounding error, the slope is that of v >= 0.
    """
    return ops.where(g < 0.5, upstream * g * (1 - g), upstream)
