"""A recurrence over a whole sequence, with its gradient written by hand."""

from functools import partial
from typing import Any, NamedTuple

from keras import ops

from kseq._typing import Tensor
from kseq.backend import Buffer, custom_gradient, empty, filled, loop, stacked
from kseq.ops.gates import Gates


class RecurrenceInputs(NamedTuple):
    """What a recurrence runs over.

    Attributes:
        projected: list of `(T, B, n)`, the slots that the inputs fill: x W.
        states: list of `(B, U)`, the first states; the first of them is h.
        kernel: U, `(U, G)`.
        bias: b, `(G,)`, or None.
        recurrent_mask: m, `(B, U)`, the dropout mask of h, or None.
        mask: bool `(T, B)` or None. At a False step the states are copied.
        reset_mask: bool `(T, B)` or None. True zeros the states before the step.
    """

    projected: list[Tensor]
    states: list[Tensor]
    kernel: Tensor
    bias: Tensor | None
    recurrent_mask: Tensor | None = None
    mask: Tensor | None = None
    reset_mask: Tensor | None = None


def recurrence(
    gates: Gates, inputs: RecurrenceInputs, *, reverse: bool = False
) -> tuple[Tensor, list[Tensor]]:
    """Runs `gates` over time: only `h U` and elementwise work are in the loop.

        kept_t, states_t = gates.step(x_t W, (m * h_{t-1}) U + b, states_{t-1})

    The gradient is a second loop, from the last step to the first, that finds the
    gradient d_t of `(m * h_{t-1}) U + b`. The weights stay out of it:
    dU = sum_t (m * h_{t-1})^T d_t is one product over all steps, and db one sum.

    Args:
        gates: the elementwise part of the cell.
        inputs: the tensors, as `RecurrenceInputs` says.
        reverse: bool. True runs from the last step to the first.

    Returns:
        h of every step, `(T, B, U)`, and the last states.
    """
    run = custom_gradient(
        partial(_forward, gates, reverse), partial(_backward, gates, reverse)
    )
    return run(inputs)


def _forward(gates: Gates, reverse: bool, inputs: RecurrenceInputs) -> tuple[Any, Any]:
    length = ops.shape(inputs.projected[0])[0]
    mask, reset_mask = _rows(inputs.mask), _rows(inputs.reset_mask)
    given = len(inputs.projected)

    def body(
        k: Tensor,
        states: list[Tensor],
        outputs: Buffer,
        before: list[Buffer],
        slots: list[Buffer],
    ) -> list[Any]:
        t = length - 1 - k if reverse else k
        if reset_mask is not None:
            states = _cleared(reset_mask.read(t), states)
        before = _write(before, t, states[1:])
        h = _dropped(states[0], inputs.recurrent_mask)
        recurrent = ops.matmul(h, inputs.kernel)
        if inputs.bias is not None:
            recurrent = recurrent + inputs.bias
        kept, new = gates.step([s.read(t) for s in slots[:given]], recurrent, states)
        if mask is not None:
            new = _where(mask.read(t), new, states)
        return [new, outputs.write(t, new[0]), before, _write(slots, t, kept)]

    states = inputs.states
    last, outputs, before, slots = loop(
        length,
        body,
        [
            states,
            empty(length, states[0]),
            [empty(length, state) for state in states[1:]],
            [filled(slot) for slot in inputs.projected]
            + [empty(length, states[0])] * gates.extra_slots,
        ],
    )
    outputs = stacked(outputs, length)
    before = [stacked(buffer, length) for buffer in before]
    slots = [stacked(buffer, length) for buffer in slots]
    return (outputs, last), (inputs, outputs, before, slots)


def _backward(
    gates: Gates, reverse: bool, residuals: Any, upstream: Any
) -> RecurrenceInputs:
    inputs, outputs, before, slots = residuals
    d_outputs, d_last = upstream
    length = ops.shape(outputs)[0]
    mask, reset_mask = _rows(inputs.mask), _rows(inputs.reset_mask)
    transposed = ops.transpose(inputs.kernel)
    first = inputs.states[0][None]
    h = [outputs[1:], first] if reverse else [first, outputs[:-1]]
    h = ops.concatenate(h, axis=0)  # before each step
    if inputs.reset_mask is not None:
        (h,) = _cleared(inputs.reset_mask[..., None], [h])
    before = [filled(values) for values in (h, *before)]
    d_outputs = filled(d_outputs)

    def body(
        k: Tensor, d_states: list[Tensor], kept: list[Tensor], slots: list[Buffer]
    ) -> list[Any]:
        t = k if reverse else length - 1 - k
        d_states = [d_states[0] + d_outputs.read(t), *d_states[1:]]
        states = [buffer.read(t) for buffer in before]
        d_slots, d_before = gates.gradient(kept, states, d_states)
        if mask is not None:
            real = mask.read(t)
            d_slots = _cleared(ops.logical_not(real), d_slots)
            d_before = _where(real, d_before, d_states)
        d_recurrent = [d_slots[i] for i in gates.recurrent_slots]
        d_h = ops.matmul(ops.concatenate(d_recurrent, axis=-1), transposed)
        d_before[0] = d_before[0] + _dropped(d_h, inputs.recurrent_mask)
        if reset_mask is not None:
            d_before = _cleared(reset_mask.read(t), d_before)
        slots = _write(slots, t, d_slots)
        # what the next step needs is read from the new buffers: reading the old
        # ones would have XLA copy them
        following = ops.minimum(k + 1, length - 1)
        following = following if reverse else length - 1 - following
        return [d_before, [slot.read(following) for slot in slots], slots]

    slots = [filled(values) for values in slots]
    last = 0 if reverse else length - 1
    d_states, _, slots = loop(
        length, body, [list(d_last), [slot.read(last) for slot in slots], slots]
    )
    d_slots = [stacked(slot, length) for slot in slots]
    h = ops.transpose(_flat(_dropped(h, inputs.recurrent_mask)))
    d_recurrent = [_flat(d_slots[i]) for i in gates.recurrent_slots]
    d_kernel = ops.concatenate([ops.matmul(h, d) for d in d_recurrent], axis=-1)
    d_bias = ops.concatenate([ops.sum(d, axis=0) for d in d_recurrent], axis=-1)
    return RecurrenceInputs(
        d_slots[: len(inputs.projected)],
        d_states,
        d_kernel,
        None if inputs.bias is None else d_bias,
    )


def _rows(mask: Tensor | None) -> Buffer | None:
    """`mask` `(T, B)` as a buffer of `(B, 1)`."""
    return None if mask is None else filled(mask[..., None])


def _write(buffers: list[Buffer], t: Tensor, values: list[Tensor]) -> list[Buffer]:
    return [b.write(t, v) for b, v in zip(buffers, values, strict=True)]


def _where(rows: Tensor, new: list[Tensor], old: list[Tensor]) -> list[Tensor]:
    return [ops.where(rows, n, o) for n, o in zip(new, old, strict=True)]


def _cleared(rows: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    """`tensors` with zeros in `rows`."""
    return [ops.where(rows, ops.zeros_like(x), x) for x in tensors]


def _dropped(h: Tensor, recurrent_mask: Tensor | None) -> Tensor:
    return h if recurrent_mask is None else h * recurrent_mask


def _flat(x: Tensor) -> Tensor:
    return ops.reshape(x, (-1, x.shape[-1]))  # (T B, n)
