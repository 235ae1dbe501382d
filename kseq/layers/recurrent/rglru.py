"""A real-gated linear recurrent unit over a sequence."""

import keras

from kseq.layers.recurrent.cell_layer import CellLayer
from kseq.layers.recurrent.rglru_cell import RGLRUCell


@keras.saving.register_keras_serializable(package="kseq")
class RGLRU(CellLayer):
    """Runs a real-gated linear recurrent unit (RG-LRU) over the time axis.

    The equations are those of `kseq.layers.RGLRUCell`, the masking that of
    `kseq.layers.RNN`. All steps run at once, in parallel over time.

    Args:
        units: int. Width of the inputs, of the state and of the output.
        return_sequences: bool. True returns the output of every step, False the
            last one. Defaults to `False`.
        return_state: bool. True returns the last states too. Defaults to `False`.
        go_backwards: bool. True runs from the last step to the first and returns
            the outputs in that order. Defaults to `False`.
        stateful: bool. True starts each batch from the last states of the one
            before; needs a static batch size. Defaults to `False`.
        zero_output_for_mask: bool. True returns zeros at masked steps. Defaults to
            `False`.
        trainable_initial_state: bool. True trains the first states, one vector for
            all rows, zeros at first. Defaults to `False`.
        **kwargs: every argument of `kseq.layers.RGLRUCell`.

    Call arguments:
        sequences: float `(B, T, U)`.
        initial_state: list of the states, each `(B, U)`. None means the kept,
            the trained, or zeros.
        mask: bool `(B, T)`. True is a real step. Filled from the Keras mask.
        training: bool. True applies dropout.
        reset_mask: bool `(B, T)`. True is a step that starts from the initial states.

    Returns:
        `(B, T, U)` with `return_sequences`, else `(B, U)`; with `return_state`, a
        tuple of that and the states.

    Raises:
        ValueError, TypeError: as `kseq.layers.RNN` and `kseq.layers.RGLRUCell`.

    Example:

    >>> layer = kseq.layers.RGLRU(4, return_sequences=True)
    >>> tuple(layer(keras.ops.ones((2, 5, 4))).shape)
    (2, 5, 4)
    """

    cell_class = RGLRUCell
    cell_name = "rglru_cell"
