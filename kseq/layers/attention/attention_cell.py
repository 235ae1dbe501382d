"""A recurrent cell that looks at a memory before each step."""

from typing import Any

import keras
from keras import ops

from kseq._checks import check_mask, message
from kseq._typing import Shape, Tensor
from kseq.layers.attention.base import MemoryAttention
from kseq.layers.recurrent.any_cell import (
    check_cell,
    output_size,
    part_config,
    state_size,
    zero_states,
)
from kseq.ops import zero_padding


@keras.saving.register_keras_serializable(package="kseq")
class AttentionCell(keras.layers.Layer):
    """One step of a recurrent decoder with attention, in Bahdanau's order.

        w_t, c_t = attention(query=h_{t-1}, value=memory)
        h_t, states_t = cell([x_t; c_t], states_{t-1})
        output_t = [h_t; c_t]

    h_{t-1} is the first of the cell's states. The memory and its mask are call
    arguments, and the weights are an output like any other. The states are the cell's
    own, and after them, where the weights depend on those of earlier steps, the
    attention's alignment `(B, S)`. (`tfa.seq2seq.AttentionWrapper` fed the context of
    the step before and attended after the cell.)

    Args:
        cell: a recurrent cell or a list of them, as `kseq.layers.RNN` takes it.
        attention: `kseq.layers.BahdanauAttention`, `LuongAttention`, `LocalAttention`,
            `MonotonicAttention`, `LocationSensitiveAttention` or `CoverageAttention`.

    Call arguments:
        inputs: float `(B, D)`.
        states: list of the cell's states, each `(B, U)`, and the alignment `(B, S)`
            of an attention that has one; left out, it begins anew.
        memory: float `(B, S, M)`.
        memory_mask: bool `(B, S)`. True is a real entry of the memory.
        projected_memory: float; it and `memory` are then what `prepare_memory`
            returned, for many steps over one memory. None prepares here.
        training: bool, handed to the cell and to the attention.

    Returns:
        `((output, weights), states)`: `(B, U + M)`, `(B, S)` and the new states.

    Masking: a masked entry of the memory gets weight 0 and may hold anything.

    Numerics: the alignment is carried in at least float32.

    Raises:
        TypeError: `` `attention` must be an attention over a memory... `` and
            `` `memory_mask` must be boolean... ``
        ValueError: `` `alignment` must hold one tensor of shape (B, S)... ``

    Example:

    >>> cell = kseq.layers.AttentionCell(
    ...     kseq.layers.GRUCell(4), kseq.layers.BahdanauAttention(8))
    >>> memory = keras.ops.ones((2, 5, 6))
    >>> (output, weights), states = cell(
    ...     keras.ops.ones((2, 3)), cell.get_initial_state(2), memory)
    >>> tuple(output.shape), tuple(weights.shape)
    ((2, 10), (2, 5))

    References:
        Bahdanau, Cho & Bengio, 2015, arXiv:1409.0473, section 3.1.
    """

    def __init__(self, cell: Any, attention: MemoryAttention, **kwargs: Any) -> None:
        # Keras would round the alignment to the compute dtype on its way in
        super().__init__(autocast=False, **kwargs)
        if not isinstance(attention, MemoryAttention):
            raise TypeError(
                message(
                    "`attention` must be an attention over a memory, such as "
                    "kseq.layers.BahdanauAttention.",
                    attention=type(attention).__name__,
                )
            )
        self.cell = check_cell(cell)
        self.attention = attention
        self.supports_masking = True  # a mask of one step goes by untouched

    @property
    def state_size(self) -> Any:
        """Widths of the states: the cell's own; an alignment is as wide as a memory."""
        return state_size(self.cell)

    @property
    def cells(self) -> list[keras.Layer]:
        """The cell inside, where a stack has its cells."""
        return [self.cell]

    @property
    def cell_output_size(self) -> int:
        """Width U of the cell's part of the output; the context is the rest."""
        return output_size(self.cell)

    @property
    def step_variables(self) -> list[keras.Variable]:
        """The weights that a step over a prepared memory reads."""
        return [*self.cell.weights, *self.attention.step_variables]

    @property
    def query_width(self) -> int:
        """Width of the first state, which is the query."""
        return keras.tree.flatten(self.state_size)[0]

    def build(self, inputs_shape: Shape, memory_shape: Shape) -> None:
        batch = inputs_shape[0]
        if not self.attention.built:
            self.attention.build((batch, 1, self.query_width), memory_shape)
            self.attention.built = True
        if not self.cell.built:
            widths = [shape[-1] for shape in (inputs_shape, memory_shape)]
            known = [width for width in widths if width is not None]
            self.cell.build((batch, sum(known) if known == widths else None))
            self.cell.built = True

    def get_initial_state(self, batch_size: Any = None) -> Any:
        """The cell's own first states; a call begins the alignment."""
        return zero_states(self.cell, batch_size)

    def split_states(self, states: Any) -> tuple[list[Any], list[Tensor]]:
        """The cell's own states, and the alignment after them, if it is there."""
        states, own = _listed(states), len(self.state_size)
        return states[:own], states[own:]

    def prepare_memory(
        self, memory: Tensor, memory_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The memory with zeros for padding, and its projection.

        What every step over one memory shares: pass both to the call.
        """
        memory = zero_padding(memory, memory_mask, "memory_mask")
        return memory, self.attention.project_memory(memory)

    def call(
        self,
        inputs: Tensor,
        states: Any,
        memory: Tensor,
        memory_mask: Tensor | None = None,
        projected_memory: Tensor | None = None,
        training: bool = False,
    ) -> tuple[tuple[Tensor, Tensor], Any]:
        memory_mask = check_mask("memory_mask", memory_mask)
        if projected_memory is None:
            memory, projected_memory = self.prepare_memory(memory, memory_mask)
        # as a mask over pairs: the padding of the memory is zeros already
        pair_mask = None if memory_mask is None else ops.expand_dims(memory_mask, 1)
        states, alignment = self.split_states(states)
        alignment = self.attention.first_alignment(memory, alignment)
        query = ops.expand_dims(keras.tree.flatten(states)[0], 1)  # (B, 1, U)
        context, weights = self.attention(
            query,
            memory,
            attention_mask=pair_mask,
            projected_value=projected_memory,
            return_attention_scores=True,
            alignment=alignment,
            training=training,
        )
        context, weights = context[:, 0], weights[:, 0]  # (B, M), (B, S)
        inputs = ops.cast(inputs, self.compute_dtype)
        inputs = ops.concatenate([inputs, context], axis=-1)
        output, states = self.cell(inputs, states, training=training)
        states = _listed(states) + self.attention.next_alignment(alignment, weights)
        return (ops.concatenate([output, context], axis=-1), weights), states

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "cell": part_config(self.cell),
            "attention": part_config(self.attention),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "AttentionCell":
        """The cell that `get_config` describes."""
        parts = {
            key: keras.saving.deserialize_keras_object(config[key])
            for key in ("cell", "attention")
        }
        return cls(**{**config, **parts})


def _listed(states: Any) -> list[Any]:
    return list(states) if isinstance(states, list | tuple) else [states]
