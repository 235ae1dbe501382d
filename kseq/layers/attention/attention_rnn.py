"""The layer that runs an attention cell over a sequence."""

from typing import Any

import keras
from keras import ops

from kseq._checks import check_mask, check_rank, message
from kseq._typing import Shape, Tensor
from kseq.layers.attention.attention_cell import AttentionCell
from kseq.layers.attention.capture import no_capture, record
from kseq.layers.recurrent.any_cell import check_states, part_config
from kseq.layers.recurrent.scan_cell import scan_cell
from kseq.layers.recurrent.state_tap import tap_steps
from kseq.ops import zero_padding


@keras.saving.register_keras_serializable(package="kseq")
class AttentionRNN(keras.layers.Layer):
    """Runs an attention cell over a sequence: the decoder of Bahdanau et al.

        (output_t, w_t), states_t = cell(x_t, states_{t-1}, memory),  t = 1..T

    The memory is projected once; it and its mask are call arguments. All outputs
    are returned, since a decoder needs them. The alignment of an attention whose
    weights depend on those of earlier steps is the last of the states.

    Args:
        cell: `kseq.layers.AttentionCell`.
        return_state: bool. True returns the last states too. Defaults to `False`.

    Call arguments:
        sequences: float `(B, T, D)`, the inputs of the decoder.
        memory: float `(B, S, M)`, the outputs of an encoder.
        initial_state: list of the cell's states, each `(B, U)`, None means zeros;
            and the alignment `(B, S)`, which begins anew if it is left out.
        sequences_mask: bool `(B, T)`. True is a real step.
        memory_mask: bool `(B, S)`. True is a real entry of the memory.
        training: bool, handed to the cell and to the attention.
        return_attention_scores: bool. True returns the weights too.

    Returns:
        `(B, T, U + M)`: output and context of each step; with
        `return_attention_scores` followed by the weights `(B, T, S)`; with
        `return_state` followed by the states.

    Masking: both masks are filled from the Keras masks. A masked step copies the
        states and repeats output and weights of the step before, zeros before the
        first real one. A masked entry of the memory gets weight 0. What stands at
        masked places is never used and may be NaN. The mask of `sequences` is
        passed on.

    Raises:
        TypeError: `` `cell` must be a kseq.layers.AttentionCell... `` and
            `` `memory_mask` must be boolean... ``
        ValueError: `` `sequences` must have shape (B, T, D). ``,
            `` `initial_state` must hold one tensor a state... `` and
            `` `alignment` must hold one tensor of shape (B, S)... ``

    Example:

    >>> layer = kseq.layers.AttentionRNN(kseq.layers.AttentionCell(
    ...     kseq.layers.GRUCell(4), kseq.layers.BahdanauAttention(8)))
    >>> inputs, memory = keras.ops.ones((2, 3, 5)), keras.ops.ones((2, 7, 6))
    >>> outputs, weights = layer(inputs, memory, return_attention_scores=True)
    >>> tuple(outputs.shape), tuple(weights.shape)
    ((2, 3, 10), (2, 3, 7))

    References:
        Bahdanau, Cho & Bengio, 2015, arXiv:1409.0473, section 3.1.
    """

    def __init__(
        self, cell: AttentionCell, *, return_state: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if not isinstance(cell, AttentionCell):
            raise TypeError(
                message(
                    "`cell` must be a kseq.layers.AttentionCell.",
                    cell=type(cell).__name__,
                )
            )
        self.cell = cell
        self.return_state = return_state
        self.supports_masking = True

    def build(self, sequences_shape: Shape, memory_shape: Shape) -> None:
        check_rank("sequences", sequences_shape, (3,), "(B, T, D)")
        check_rank("memory", memory_shape, (3,), "(B, S, M)")
        batch, _, width = sequences_shape
        self.cell.build((batch, width), memory_shape)
        self.cell.built = True

    def call(
        self,
        sequences: Tensor,
        memory: Tensor,
        initial_state: Any = None,
        sequences_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        training: bool = False,
        return_attention_scores: bool = False,
    ) -> Any:
        sequences_mask = check_mask("sequences_mask", sequences_mask)
        memory_mask = check_mask("memory_mask", memory_mask)
        batch, size = ops.shape(sequences)[0], ops.shape(memory)[1]
        alignment: list[Tensor] = []
        if initial_state is None:
            states = self.cell.get_initial_state(batch)
        else:
            states, alignment = self.cell.split_states(initial_state)
            states = check_states(self.cell.cell, states, sequences.shape[0])
        alignment = self.cell.attention.first_alignment(memory, alignment)
        memory, projected = self.cell.prepare_memory(memory, memory_mask)
        output_width = self.cell.cell_output_size + memory.shape[-1]
        step, inputs = tap_steps(
            self,
            lambda inputs, states, constants: self.cell(
                inputs, states, training=training, **constants
            ),
            zero_padding(sequences, sequences_mask, "sequences_mask"),
        )
        with no_capture():
            (outputs, weights), _, states = scan_cell(
                step,
                inputs,
                [*states, *alignment],
                {"memory": memory, "projected_memory": projected}
                | ({} if memory_mask is None else {"memory_mask": memory_mask}),
                variables=self.cell.step_variables,
                seeded=self.cell,
                mask=sequences_mask,
                empty_output=(
                    ops.zeros((batch, output_width), self.compute_dtype),
                    ops.zeros((batch, size), self.cell.attention.weights_dtype),
                ),
            )
        record(self, weights)
        result = (outputs, weights) if return_attention_scores else (outputs,)
        result += tuple(states) if self.return_state else ()
        return result if len(result) > 1 else outputs

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "cell": part_config(self.cell),
            "return_state": self.return_state,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "AttentionRNN":
        """The layer that `get_config` describes."""
        cell = keras.saving.deserialize_keras_object(config["cell"])
        return cls(**{**config, "cell": cell})
