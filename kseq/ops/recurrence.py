"""A recurrence over a whole sequence, with its gradient written by hand."""

from functools import partial
from typing import Any, NamedTuple

from keras import ops

from kseq._typing import Tensor
from kseq.backend import Buffer, custom_gradient, empty, filled, loop, stacked
from kseq.ops.gates import Gates


class Lane(NamedTuple):
    """What one recurrence runs over.

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
    bias: Tensor | None = None
    recurrent_mask: Tensor | None = None
    mask: Tensor | None = None
    reset_mask: Tensor | None = None


def recurrence(
    gates: Gates, lanes: list[Lane], *, reverse: bool = False
) -> list[tuple[Tensor, list[Tensor]]]:
    """Runs `gates` over time: only `h U` and elementwise work are in the loop.

        kept_t, states_t = gates.step(x_t W, (m * h_{t-1}) U + b, states_{t-1})

    The gradient is a second loop, from the last step to the first, that finds the
    gradient d_t of `(m * h_{t-1}) U + b`. The weights stay out of it:
    dU = sum_t (m * h_{t-1})^T d_t is one product over all steps, and db one sum.

    The lanes do not depend on each other and share the loop, so that a processor
    with more than one core works on all of them at a time.

    Args:
        gates: the elementwise part of the cell.
        lanes: the tensors, as `Lane` says; T is the same for all.
        reverse: bool. True runs from the last step to the first.

    Returns:
        For each lane h of every step, `(T, B, U)`, and the last states.
    """
    run = custom_gradient(
        partial(_forward, gates, reverse), partial(_backward, gates, reverse)
    )
    return run(lanes)


def _forward(gates: Gates, reverse: bool, lanes: list[Lane]) -> tuple[Any, Any]:
    length = ops.shape(lanes[0].projected[0])[0]
    steps = [_forward_step(gates, reverse, length, lane) for lane in lanes]
    init = [
        [
            lane.states,
            empty(length, lane.states[0]),
            [empty(length, state) for state in lane.states[1:]],
            [filled(slot) for slot in lane.projected]
            + [empty(length, lane.states[0])] * gates.extra_slots,
        ]
        for lane in lanes
    ]
    results, residuals = [], []
    for lane, run in zip(lanes, _side_by_side(length, steps, init), strict=True):
        last, outputs, before, slots = run
        outputs = stacked(outputs, length)
        before = [stacked(buffer, length) for buffer in before]
        slots = [stacked(buffer, length) for buffer in slots]
        results.append((outputs, last))
        residuals.append((lane, outputs, before, slots))
    return results, residuals


def _forward_step(gates: Gates, reverse: bool, length: Tensor, lane: Lane) -> Any:
    mask, reset_mask = _rows(lane.mask), _rows(lane.reset_mask)

    def step(
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
        recurrent = ops.matmul(_dropped(states[0], lane.recurrent_mask), lane.kernel)
        if lane.bias is not None:
            recurrent = recurrent + lane.bias
        inputs = [slot.read(t) for slot in slots[: len(lane.projected)]]
        kept, new = gates.step(inputs, recurrent, states)
        if mask is not None:
            new = _where(mask.read(t), new, states)
        return [new, outputs.write(t, new[0]), before, _write(slots, t, kept)]

    return step


def _backward(gates: Gates, reverse: bool, residuals: Any, upstream: Any) -> list[Lane]:
    length = ops.shape(residuals[0][1])[0]
    last = 0 if reverse else length - 1
    steps, init, hs = [], [], []
    for (lane, outputs, before, slots), (d_outputs, d_last) in zip(
        residuals, upstream, strict=True
    ):
        h = _before(outputs, lane.states[0], reverse)
        if lane.reset_mask is not None:
            (h,) = _cleared(lane.reset_mask[..., None], [h])
        hs.append(_dropped(h, lane.recurrent_mask))
        before = [filled(values) for values in (h, *before)]
        slots = [filled(values) for values in slots]
        steps.append(
            _backward_step(gates, reverse, length, lane, before, filled(d_outputs))
        )
        init.append([list(d_last), [slot.read(last) for slot in slots], slots])
    runs = _side_by_side(length, steps, init)
    gradients = []
    for (lane, *_), h, (d_states, _, slots) in zip(residuals, hs, runs, strict=True):
        d_slots = [stacked(slot, length) for slot in slots]
        d_recurrent = [_flat(d_slots[i]) for i in gates.recurrent_slots]
        h = ops.transpose(_flat(h))
        d_kernel = ops.concatenate([ops.matmul(h, d) for d in d_recurrent], axis=-1)
        d_bias = ops.concatenate([ops.sum(d, axis=0) for d in d_recurrent], axis=-1)
        d_projected = d_slots[: len(lane.projected)]
        d_bias = None if lane.bias is None else d_bias
        gradients.append(Lane(d_projected, d_states, d_kernel, d_bias))
    return gradients


def _backward_step(
    gates: Gates,
    reverse: bool,
    length: Tensor,
    lane: Lane,
    before: list[Buffer],
    d_outputs: Buffer,
) -> Any:
    mask, reset_mask = _rows(lane.mask), _rows(lane.reset_mask)
    transposed = ops.transpose(lane.kernel)

    def step(
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
        d_before[0] = d_before[0] + _dropped(d_h, lane.recurrent_mask)
        if reset_mask is not None:
            d_before = _cleared(reset_mask.read(t), d_before)
        slots = _write(slots, t, d_slots)
        # what the next step needs is read from the new buffers: reading the old
        # ones would have XLA copy them
        following = ops.minimum(k + 1, length - 1)
        following = following if reverse else length - 1 - following
        return [d_before, [slot.read(following) for slot in slots], slots]

    return step


def _side_by_side(length: Tensor, steps: list[Any], init: list[Any]) -> list[Any]:
    """One loop that takes a step of every lane."""

    def body(k: Tensor, *states: Any) -> list[Any]:
        return [step(k, *state) for step, state in zip(steps, states, strict=True)]

    return loop(length, body, init)


def _before(outputs: Tensor, first: Tensor, reverse: bool) -> Tensor:
    """What stands before each step of `outputs` `(T, B, U)`, in running order."""
    parts = [outputs[1:], first[None]] if reverse else [first[None], outputs[:-1]]
    return ops.concatenate(parts, axis=0)


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
