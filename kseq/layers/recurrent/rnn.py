"""The layer that runs a cell over a sequence."""

import inspect
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from kseq._checks import check_mask, check_rank, message
from kseq._typing import Shape, Tensor
from kseq.layers.recurrent.any_cell import (
    check_cell,
    check_states,
    output_size,
    part_config,
    state_size,
    zero_states,
)
from kseq.layers.recurrent.cell import RecurrentCell
from kseq.layers.recurrent.scan_cell import scan_cell
from kseq.ops import zero_padding


@keras.saving.register_keras_serializable(package="kseq")
class RNN(keras.layers.Layer):
    """Runs a recurrent cell over the time axis.

        output_t, states_t = cell(x_t, states_{t-1}),  t = 1..T

    The arguments are those of `keras.layers.RNN`, without `unroll`. It differs in
    what happens to padding (below), in that its mask is reversed together with the
    outputs under `go_backwards`, and in that it compiles, forward and backward, on
    TensorFlow as on JAX.

    Args:
        cell: a cell: `kseq.layers` has `SimpleRNNCell`, `GRUCell` and `LSTMCell`;
            any Keras layer with `call(inputs, states) -> (output, states)` and
            `state_size` will do, if it assigns no weight in the loop and is no cell
            of Keras with dropout; a list of cells is stacked. For a cell of kseq,
            `x W + b` is computed for all steps at once, before the loop.
        return_sequences: bool. True returns the output of every step, False the
            last one. Defaults to `False`.
        return_state: bool. True returns the last states too. Defaults to `False`.
        go_backwards: bool. True runs from the last step to the first and returns
            the outputs in that order. Defaults to `False`.
        stateful: bool. True starts each batch from the last states of the one
            before, row by row; needs a static batch size. The kept states are weights
            of the layer, not trainable. Defaults to `False`.
        zero_output_for_mask: bool. True returns zeros at masked steps, where the
            previous output would be repeated; only with `return_sequences`.
            Defaults to `False`.

    Call arguments:
        sequences: float `(B, T, D)`.
        initial_state: list of the cell's states, each `(B, U)`. None means zeros,
            or the kept states of a stateful layer.
        mask: bool `(B, T)`. True is a real step. Filled from the Keras mask.
        training: bool. True applies dropout.
        sequences_mask: what Keras fills in the place of `mask` when
            `initial_state` is given too; leave it to Keras.

    Returns:
        `(B, T, U)` with `return_sequences`, else `(B, U)`; with `return_state`, a
        tuple of that and the states.

    Masking: at a masked step the states are copied and the previous output is
        repeated, zeros before the first real step; the step's input is never
        used, so it may hold anything, NaN included. The mask is passed on with
        `return_sequences`.

    Raises:
        TypeError: `` `cell` must be a Keras layer... `` and
            `` `mask` must be boolean... ``
        ValueError: `` `sequences` must have shape (B, T, D). ``,
            `` A stateful layer needs a static batch size. ``,
            `` `initial_state` must hold one tensor a state... ``

    Example:

    >>> layer = kseq.layers.RNN(kseq.layers.GRUCell(4), return_sequences=True)
    >>> tuple(layer(keras.ops.ones((2, 5, 3))).shape)
    (2, 5, 4)
    """

    def __init__(
        self,
        cell: Any,
        *,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        zero_output_for_mask: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.cell = check_cell(cell)
        self.return_sequences = return_sequences
        self.return_state = return_state
        self.go_backwards = go_backwards
        self.stateful = stateful
        self.zero_output_for_mask = zero_output_for_mask
        self.supports_masking = True
        self.states: Any = None  # of a stateful layer, once it is built

    @property
    def state_size(self) -> list[Any]:
        """Widths of the states, one entry a state."""
        return state_size(self.cell)

    @property
    def output_size(self) -> int:
        """Width of an output."""
        return output_size(self.cell)

    def build(self, sequences_shape: Shape, initial_state_shape: Any = None) -> None:
        check_rank("sequences", sequences_shape, (3,), "(B, T, D)")
        batch, _, width = sequences_shape
        if not self.cell.built:
            self.cell.build((batch, width))
            self.cell.built = True
        self.input_spec = keras.layers.InputSpec(ndim=3, axes={-1: width})
        if self.stateful:
            if batch is None:
                raise ValueError(
                    message(
                        "A stateful layer needs a static batch size.",
                        fix="Give the model `keras.Input(batch_shape=...)`.",
                        sequences_shape=tuple(sequences_shape),
                    )
                )
            self.states = keras.tree.map_structure(
                lambda size: self.add_weight(
                    shape=(batch, size),
                    name="state",
                    initializer="zeros",
                    trainable=False,
                ),
                self.state_size,
            )

    def get_initial_state(self, batch_size: Any) -> list[Tensor]:
        """The states before the first step, one entry a state."""
        return zero_states(self.cell, batch_size)

    def reset_state(self) -> None:
        """Sets the kept states of a stateful layer to zeros."""
        for state in keras.tree.flatten(self.states or []):
            state.assign(ops.zeros_like(state.value))

    def call(
        self,
        sequences: Tensor,
        initial_state: Any = None,
        mask: Tensor | None = None,
        training: bool = False,
        sequences_mask: Tensor | None = None,
    ) -> Any:
        mask = check_mask("mask", sequences_mask if mask is None else mask)
        batch = ops.shape(sequences)[0]
        inputs = zero_padding(sequences, mask)
        states = self._first_states(initial_state, sequences)
        if isinstance(self.cell, RecurrentCell):
            inputs = self.cell.project(inputs, training)
            recurrent_mask = self.cell.recurrent_mask(batch, training)
            constants = [] if recurrent_mask is None else [recurrent_mask]
            step, variables, seeded = self._gates_step, self.cell.step_variables, None
        else:
            constants, step = [], self._cell_step(training)
            variables, seeded = self.cell.weights, self.cell
        outputs, last_output, last_states = scan_cell(
            step,
            inputs,
            states,
            constants,
            variables=variables,
            seeded=seeded,
            mask=mask,
            empty_output=ops.zeros((batch, self.output_size), self.compute_dtype),
            reverse=self.go_backwards,
        )
        if self.stateful:
            for kept, state in zip(
                keras.tree.flatten(self.states),
                keras.tree.flatten(last_states),
                strict=True,
            ):
                kept.assign(state)
        output = last_output
        if self.return_sequences:
            output = outputs
            if self.zero_output_for_mask:
                output = zero_padding(output, mask)
            if self.go_backwards:
                output = ops.flip(output, axis=1)
        return (output, *last_states) if self.return_state else output

    def _gates_step(
        self, projected: Tensor, states: list[Tensor], constants: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        states = self.cell.step(projected, states, *(constants or [None]))
        return states[0], states

    def _cell_step(self, training: bool) -> Callable[..., tuple[Tensor, Any]]:
        takes_training = "training" in inspect.signature(self.cell.call).parameters
        options = {"training": training} if takes_training else {}
        return lambda inputs, states, _: self.cell(inputs, states, **options)

    def _first_states(self, initial_state: Any, sequences: Tensor) -> list[Any]:
        if initial_state is None:
            if self.states is None:
                return self.get_initial_state(ops.shape(sequences)[0])
            initial_state = keras.tree.map_structure(lambda v: v.value, self.states)
        return check_states(self.cell, initial_state, sequences.shape[0])

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """The mask of the outputs: none for a last output or a state."""
        del inputs
        if isinstance(mask, list | tuple):
            mask = mask[0]
        if not self.return_sequences:
            mask = None
        elif mask is not None and self.go_backwards:
            mask = ops.flip(mask, axis=1)
        if self.return_state:
            return (mask, *(None for _ in keras.tree.flatten(self.state_size)))
        return mask

    def compute_output_shape(
        self, sequences_shape: Shape, initial_state_shape: Any = None
    ) -> Any:
        batch, length = sequences_shape[:2]
        output: Shape = (batch, self.output_size)
        if self.return_sequences:
            output = (batch, length, self.output_size)
        if not self.return_state:
            return output
        states = keras.tree.map_structure(lambda size: (batch, size), self.state_size)
        return (output, *states)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "cell": part_config(self.cell),
            "return_sequences": self.return_sequences,
            "return_state": self.return_state,
            "go_backwards": self.go_backwards,
            "stateful": self.stateful,
            "zero_output_for_mask": self.zero_output_for_mask,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "RNN":
        """The layer that `get_config` describes."""
        cell = keras.saving.deserialize_keras_object(config["cell"])
        return cls(**{**config, "cell": cell})
