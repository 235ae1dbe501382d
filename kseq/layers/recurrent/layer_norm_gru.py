"""A gated recurrent unit with layer normalization over a sequence."""

import keras

from kseq.layers.recurrent.cell_layer import CellLayer
from kseq.layers.recurrent.layer_norm_gru_cell import LayerNormGRUCell


@keras.saving.register_keras_serializable(package="kseq")
class LayerNormGRU(CellLayer):
    """Runs a gated recurrent unit with layer normalization over the time axis.

    The equations are those of `kseq.layers.LayerNormGRUCell`, the masking that of
    `kseq.layers.RNN`.

    Args:
        units: int. Width of the state and of the output.
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
        **kwargs: every argument of `kseq.layers.LayerNormGRUCell`.

    Call arguments:
        sequences: float `(B, T, D)`.
        initial_state: list of the states, each `(B, U)`. None means the kept,
            the trained, or zeros.
        mask: bool `(B, T)`. True is a real step. Filled from the Keras mask.
        training: bool. True applies dropout.
        reset_mask: bool `(B, T)`. True is a step that starts from the initial states.

    Returns:
        `(B, T, U)` with `return_sequences`, else `(B, U)`; with `return_state`, a
        tuple of that and the states.

    Raises:
        ValueError, TypeError: as `kseq.layers.RNN` and
            `kseq.layers.LayerNormGRUCell`.

    Example:

    >>> layer = kseq.layers.LayerNormGRU(4, return_sequences=True)
    >>> tuple(layer(keras.ops.ones((2, 5, 3))).shape)
    (2, 5, 4)
    """

    cell_class = LayerNormGRUCell
    cell_name = "layer_norm_gru_cell"
