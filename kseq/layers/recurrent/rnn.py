"""The layer that runs a cell over a sequence."""

import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
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
from kseq.layers.recurrent.state_tap import tap_steps, tapping
from kseq.ops import check_mask_shape, started, zero_padding


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
        trainable_initial_state: bool. True trains the first states, one vector for
            all rows, zeros at first. Defaults to `False`.

    Call arguments:
        sequences: float `(B, T, D)`.
        initial_state: list of the cell's states, each `(B, U)`. None means zeros,
            or the kept states of a stateful layer.
        mask: bool `(B, T)`. True is a real step. Filled from the Keras mask.
        training: bool. True applies dropout.
        reset_mask: bool `(B, T)`. True is a step that starts from the initial states,
            whatever came before: the first of a segment in a packed row
            (`kseq.ops.segment_starts`), or of a new sequence in a stream.
        sequences_mask: what Keras fills in the place of `mask` when
            `initial_state` is given too; leave it to Keras.

    Returns:
        `(B, T, U)` with `return_sequences`, else `(B, U)`; with `return_state`, a
        tuple of that and the states.

    Masking: at a masked step the states are copied and the previous output is
        repeated, zeros before the first real step; the step's input is never
        used, so it may hold anything, NaN included. The mask is passed on with
        `return_sequences`.

    Gradient: that of the cells of kseq is written by hand where they run all steps at
        once. JAX has no forward mode (`jax.jvp`) through such a gradient.

    Raises:
        TypeError: `` `cell` must be a Keras layer... `` and
            `` `mask` must be boolean... ``
        ValueError: `` `sequences` must have shape (B, T, D). ``,
            `` A stateful layer starts from the states that it kept... ``,
            `` A stateful layer needs a static batch size. ``,
            `` A stateful layer takes batches of the size it was built for. ``,
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
        trainable_initial_state: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if stateful and trainable_initial_state:
            raise ValueError(
                message(
                    "A stateful layer starts from the states that it kept, not from "
                    "trained ones.",
                    stateful=stateful,
                    trainable_initial_state=trainable_initial_state,
                )
            )
        self.cell = check_cell(cell)
        self.return_sequences = return_sequences
        self.return_state = return_state
        self.go_backwards = go_backwards
        self.stateful = stateful
        self.zero_output_for_mask = zero_output_for_mask
        self.trainable_initial_state = trainable_initial_state
        self.supports_masking = True
        self.initial_states: Any = None  # trained ones, once the layer is built
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
        if self.trainable_initial_state:
            self.initial_states = keras.tree.map_structure(
                lambda size: self.add_weight(
                    shape=(size,), name="initial_state", initializer="zeros"
                ),
                self.state_size,
            )
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
        zeros = zero_states(self.cell, batch_size)
        if self.initial_states is None:
            return zeros
        trained = keras.tree.flatten(self.initial_states)
        states = [
            rows + ops.cast(state.value, rows.dtype)
            for rows, state in zip(keras.tree.flatten(zeros), trained, strict=True)
        ]
        return keras.tree.pack_sequence_as(zeros, states)

    def reset_state(self, rows: Any = None) -> None:
        """Sets the kept states of a stateful layer to zeros.

        `rows` is bool `(B,)`, True for the rows to reset; None resets all.
        """
        for state in keras.tree.flatten(self.states or []):
            value = state.value
            chosen = np.ones(value.shape[:1], bool) if rows is None else np.array(rows)
            if chosen.dtype != bool or chosen.shape != value.shape[:1]:
                raise ValueError(
                    message(
                        f"`rows` must be boolean, of shape {tuple(value.shape[:1])}.",
                        rows=rows,
                    )
                )
            state.assign(ops.where(chosen[:, None], ops.zeros_like(value), value))

    def call(
        self,
        sequences: Tensor,
        initial_state: Any = None,
        mask: Tensor | None = None,
        training: bool = False,
        reset_mask: Tensor | None = None,
        sequences_mask: Tensor | None = None,
    ) -> Any:
        mask = check_mask("mask", sequences_mask if mask is None else mask)
        reset_mask = check_mask("reset_mask", reset_mask)
        check_mask_shape("reset_mask", reset_mask, sequences)
        if sequences.shape[1] == 0:
            raise ValueError(
                message(
                    "`sequences` must have at least one step.",
                    shape=tuple(sequences.shape),
                )
            )
        inputs = zero_padding(sequences, mask)
        states = self._first_states(initial_state, sequences)
        masks = {"mask": mask, "reset_mask": reset_mask}
        run = self._all_at_once(inputs, states, training, **masks)
        if run is None:
            run = self._step_by_step(inputs, states, training, **masks)
        outputs, last_output, last_states = run
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

    @property
    def _takes_steps(self) -> bool:
        """Whether the cell goes by its `step`, and not by its call."""
        cell = self.cell
        if tapping():
            return False
        return isinstance(cell, RecurrentCell) and not cell.has_own_call

    def _all_at_once(
        self,
        inputs: Tensor,
        states: list[Tensor],
        training: bool,
        *,
        mask: Tensor | None,
        reset_mask: Tensor | None,
    ) -> tuple[Tensor, Tensor, list[Tensor]] | None:
        """What `scan_cell` returns, of a cell that runs a sequence by itself."""
        if not self._takes_steps or (
            self.trainable_initial_state and reset_mask is not None
        ):
            return None
        run = self.cell.run(
            inputs,
            states,
            mask=mask,
            reset_mask=reset_mask,
            reverse=self.go_backwards,
            training=training,
        )
        if run is None:
            return None
        outputs, last_states = run
        last_output = last_states[0]
        if mask is not None:
            # the states before the first real step are no outputs
            real = mask if reset_mask is None else ops.logical_or(mask, reset_mask)
            outputs = zero_padding(outputs, started(real, self.go_backwards))
            some = ops.any(real, axis=1, keepdims=True)
            last_output = ops.where(some, last_output, ops.zeros_like(last_output))
        return outputs, last_output, last_states

    def _step_by_step(
        self,
        inputs: Tensor,
        states: list[Any],
        training: bool,
        *,
        mask: Tensor | None,
        reset_mask: Tensor | None,
    ) -> tuple[Tensor, Tensor, list[Any]]:
        batch = ops.shape(inputs)[0]
        if self._takes_steps:
            inputs = self.cell.project(inputs, training)
            recurrent_mask = self.cell.recurrent_mask(batch, training)
            constants = [] if recurrent_mask is None else [recurrent_mask]
            step, variables, seeded = self._gates_step, self.cell.step_variables, None
        else:
            constants, step = [], self._cell_step(training)
            variables, seeded = self.cell.weights, self.cell
        step, sequences = tap_steps(self, step, inputs)
        return scan_cell(
            step,
            sequences,
            states,
            constants,
            variables=variables,
            seeded=seeded,
            mask=mask,
            reset_mask=reset_mask,
            reset_states=self.get_initial_state(batch),
            empty_output=ops.zeros((batch, self.output_size), self.compute_dtype),
            reverse=self.go_backwards,
        )

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
            rows = keras.tree.flatten(initial_state)[0].shape[0]
            if sequences.shape[0] not in (None, rows):
                raise ValueError(
                    message(
                        "A stateful layer takes batches of the size it was built for.",
                        built_for=rows,
                        received=sequences.shape[0],
                    )
                )
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
            "trainable_initial_state": self.trainable_initial_state,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "RNN":
        """The layer that `get_config` describes."""
        cell = keras.saving.deserialize_keras_object(config["cell"])
        return cls(**{**config, "cell": cell})
