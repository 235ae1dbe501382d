"""What the cells that train in parallel over time share."""

from typing import Any, ClassVar

import keras
from keras import ops

from kseq._checks import message
from kseq._typing import Tensor
from kseq.layers.recurrent.cell import RecurrentCell
from kseq.ops.affine import affine
from kseq.ops.linear_recurrence import LinearStep, chunked_recurrence
from kseq.ops.time_chunks import TimeChunks

_OF_THE_RECURRENT_KERNEL = (
    "activation",
    "recurrent_constraint",
    "recurrent_dropout",
    "recurrent_initializer",
    "recurrent_regularizer",
)


class LinearCell(RecurrentCell):
    """Base of the cells whose h_t is linear in h_{t-1}, elementwise.

        h_t = a_t * h_{t-1} + b_t

    or what a subclass names as its `recurrence`. a_t and b_t depend on the inputs
    alone, so that a whole sequence runs at once, in parallel over time
    (`kseq.ops.linear_recurrence`). A subclass computes them in `coefficients`, from a
    `kernel` and a `bias` with two gates of `units` columns. There is no
    `recurrent_kernel`, and what belongs to one is no argument.
    """

    num_gates = 2
    recurrence: ClassVar[type[LinearStep]] = LinearStep

    def __init__(self, units: int, **kwargs: Any) -> None:
        for key in _OF_THE_RECURRENT_KERNEL:
            if key in kwargs:
                raise TypeError(
                    message(
                        f"`{key}` is no argument of kseq.layers.{type(self).__name__}, "
                        "which has no recurrent kernel.",
                        **{key: kwargs[key]},
                    )
                )
        super().__init__(units, **kwargs)

    def add_recurrent_kernel(self, columns: int) -> None:
        """There is none."""

    @property
    def step_variables(self) -> list[keras.Variable]:
        """See `RecurrentCell.step_variables`."""
        return []

    def gates_of(self, inputs: Tensor) -> list[Tensor]:
        """The two parts of `x W + b` in at least float32."""
        kernels = ops.split(self.in_step(self.kernel), 2, axis=-1)
        biases: list[Any] = [None, None]
        if self.bias is not None:
            biases = ops.split(self.in_step(self.bias), 2)
        dtype = keras.backend.result_type(self.compute_dtype, "float32")
        return [
            ops.cast(self.gate(inputs, kernel, bias), dtype)
            for kernel, bias in zip(kernels, biases, strict=True)
        ]

    def gate(self, inputs: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
        """One gate's `x W + b`."""
        return affine(inputs, kernel, bias)

    def coefficients(
        self, inputs: Tensor, starts: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The a and b of one step or a sequence, in at least float32.

        `starts` is bool, one value a step, or None. Where it is True, h_{t-1} will
        not count: a will be 0.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must implement `coefficients`."
        )

    def project(self, inputs: Tensor, training: bool = False) -> Tensor:
        """The a and b side by side, `(B, 2U)` or `(B, T, 2U)`."""
        parts = self.coefficients(self.drop_inputs(inputs, training))
        return ops.concatenate(parts, axis=-1)

    def step(
        self, projected: Tensor, states: list[Tensor], recurrent_mask: Tensor | None
    ) -> list[Tensor]:
        """See `RecurrentCell.step`."""
        (h,) = states
        a, b = ops.split(projected, 2, axis=-1)
        return [ops.cast(self.recurrence.step(a, b, ops.cast(h, a.dtype)), h.dtype)]

    def run(
        self,
        inputs: Tensor,
        states: list[Tensor],
        *,
        mask: Tensor | None = None,
        reset_mask: Tensor | None = None,
        reverse: bool = False,
        training: bool = False,
    ) -> tuple[Tensor, list[Tensor]] | None:
        """See `RecurrentCell.run`."""
        if not self._says_the_same("run"):
            return None
        (state,) = states
        # x is the smallest array to cut, and all that is made of it is cut then
        chunks = TimeChunks.of(inputs, reverse=reverse)
        inputs = chunks.cut(self.drop_inputs(inputs, training))
        real, starts = (
            m if m is None else chunks.cut(m[..., None]) for m in (mask, reset_mask)
        )
        a, b = self.coefficients(inputs, starts)
        if real is not None:
            a = ops.where(real, a, ops.ones_like(a))
            b = ops.where(real, b, ops.zeros_like(b))
        if starts is not None:
            a = ops.where(starts, ops.zeros_like(a), a)
        h = chunked_recurrence(self.recurrence, a, b, state, reverse=reverse)
        h = chunks.joined(ops.cast(h, state.dtype))
        return h, [h[:, 0 if reverse else -1]]

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        return {k: v for k, v in config.items() if k not in _OF_THE_RECURRENT_KERNEL}
