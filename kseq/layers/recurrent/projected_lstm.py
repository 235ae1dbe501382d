"""A long short-term memory with a recurrent projection over a sequence."""

from typing import Any

import keras

from kseq.layers.recurrent.cell_layer import CellLayer
from kseq.layers.recurrent.projected_lstm_cell import ProjectedLSTMCell


@keras.saving.register_keras_serializable(package="kseq")
class ProjectedLSTM(CellLayer):
    """Runs a long short-term memory with a recurrent projection over the time axis.

    The equations are those of `kseq.layers.ProjectedLSTMCell`, the masking that of
    `kseq.layers.RNN`.

    Args:
        units: int. Width U of the cell state c.
        proj_units: int. Width R of h and of the output.
        return_sequences: bool. True returns the output of every step, False the
            last one. Defaults to `False`.
        return_state: bool. True returns the last states too. Defaults to `False`.
        go_backwards: bool. True runs from the last step to the first and returns
            the outputs in that order. Defaults to `False`.
        stateful: bool. True starts each batch from the last states of the one
            before; needs a static batch size. Defaults to `False`.
        trainable_initial_state: bool. True trains the first states. Defaults to
            `False`.
        zero_output_for_mask: bool. True returns zeros at masked steps. Defaults to
            `False`.
        **kwargs: every argument of `kseq.layers.ProjectedLSTMCell`.

    Call arguments:
        sequences: float `(B, T, D)`.
        initial_state: list of the states, h `(B, R)` and c `(B, U)`. None means zeros.
        mask: bool `(B, T)`. True is a real step. Filled from the Keras mask.
        training: bool. True applies dropout.
        reset_mask: bool `(B, T)`. True is a step that starts from the initial states.

    Returns:
        `(B, T, R)` with `return_sequences`, else `(B, R)`; with `return_state`, a
        tuple of that and the states.

    Raises:
        ValueError, TypeError: as `kseq.layers.RNN` and
            `kseq.layers.ProjectedLSTMCell`.

    Example:

    >>> layer = kseq.layers.ProjectedLSTM(8, 4, return_sequences=True)
    >>> tuple(layer(keras.ops.ones((2, 5, 3))).shape)
    (2, 5, 4)
    """

    cell_class = ProjectedLSTMCell
    cell_name = "projected_lstm_cell"

    def __init__(self, units: int, proj_units: int, **kwargs: Any) -> None:
        super().__init__(units, proj_units=proj_units, **kwargs)

    @property
    def units(self) -> int:
        """Width of the cell state; that of the output is `output_size`."""
        return self.cell.units
