"""The associative scan of linear recurrences, with its gradient written by hand."""

import math
from functools import partial
from typing import Any

import keras
from keras import ops

from kseq._typing import Tensor
from kseq.backend import custom_gradient, empty, loop, stacked


def linear_recurrence(
    a: Tensor, b: Tensor, state: Tensor, *, reverse: bool = False
) -> Tensor:
    """h_t = a_t * h_{t-1} + b_t elementwise, for all steps, in parallel over time.

    This is the scan of the associative product (a', b') (a, b) = (a' a, a' b + b').
    The T steps are cut into about sqrt(T) chunks. Three loops of about sqrt(T) steps
    each find the products of all chunks at once, then the states between the chunks,
    then those inside all chunks at once. The gradient of b is the same scan, run the
    other way: g_t = dh_t + a_{t+1} * g_{t+1}; that of a_t is g_t * h_{t-1}.

    Args:
        a: float `(B, T, U)`, T at least 1; it may be unknown until the scan runs.
        b: float `(B, T, U)`.
        state: float `(B, U)`, what stands before the first step.
        reverse: bool. True runs from the last step to the first. Defaults to `False`.

    Returns:
        h of every step, `(B, T, U)`, at the step that made it.

    Numerics: computed and returned in at least float32.

    Example:

    >>> a, b = keras.ops.full((1, 3, 1), 0.5), keras.ops.ones((1, 3, 1))
    >>> h = linear_recurrence(a, b, keras.ops.zeros((1, 1)))
    >>> [float(value) for value in h[0, :, 0]]
    [1.0, 1.5, 1.75]
    """
    dtype = keras.backend.result_type(b.dtype, "float32")
    run = custom_gradient(partial(_forward, reverse), partial(_backward, reverse))
    return run([ops.cast(x, dtype) for x in (a, b, state)])


def _forward(reverse: bool, inputs: list[Tensor]) -> tuple[Tensor, Any]:
    a, b, state = inputs
    h = _scan(a, b, state, reverse)
    return h, (a, state, h)


def _backward(reverse: bool, residuals: Any, d_h: Tensor) -> list[Tensor]:
    a, state, h = residuals
    first, last = (-1, 0) if reverse else (0, -1)
    a_next = _before(a, ops.zeros_like(a[:, last]), not reverse)
    d_b = _scan(a_next, d_h, ops.zeros_like(state), not reverse)
    d_a = d_b * _before(h, state, reverse)
    return [d_a, d_b, a[:, first] * d_b[:, first]]


def _scan(a: Tensor, b: Tensor, state: Tensor, reverse: bool) -> Tensor:
    batch, length, units = ops.shape(a)
    places = _sqrt(length)  # in a chunk
    chunks = -(-length // places)
    padding = (batch, chunks * places - length, units)
    a = ops.concatenate([a, ops.ones(padding, a.dtype)], axis=1)
    b = ops.concatenate([b, ops.zeros(padding, b.dtype)], axis=1)
    a = ops.reshape(a, (batch, chunks, places, units))
    b = ops.reshape(b, (batch, chunks, places, units))

    def place(k: Tensor, product: Tensor, h: Tensor) -> list[Tensor]:
        k = places - 1 - k if reverse else k
        return [a[:, :, k] * product, a[:, :, k] * h + b[:, :, k]]

    init = [ops.ones_like(a[:, :, 0]), ops.zeros_like(b[:, :, 0])]
    product, h = loop(places, place, init)  # of whole chunks, (B, chunks, U)
    ends = _in_steps(product, h, state, reverse)
    h = _in_steps(a, b, _before(ends, state, reverse), reverse)
    return ops.reshape(h, (batch, chunks * places, units))[:, :length]


def _in_steps(a: Tensor, b: Tensor, state: Tensor, reverse: bool) -> Tensor:
    """The same over the last axis but one, a step at a time."""
    axis = len(a.shape) - 2
    length = ops.shape(a)[axis]

    def body(k: Tensor, h: Tensor, states: Any) -> list[Any]:
        k = length - 1 - k if reverse else k
        h = a[..., k, :] * h + b[..., k, :]
        return [h, states.write(k, h)]

    _, states = loop(length, body, [state, empty(length, state)])
    return ops.moveaxis(stacked(states, length), 0, axis)


def _before(x: Tensor, start: Tensor, reverse: bool) -> Tensor:
    """What stands before each step of `x` `(B, T, U)`, in running order."""
    parts = [x[:, 1:], start[:, None]] if reverse else [start[:, None], x[:, :-1]]
    return ops.concatenate(parts, axis=1)


def _sqrt(length: Tensor) -> Tensor:
    """The root, rounded up: a number if `length` is one."""
    if isinstance(length, int):
        return math.isqrt(length - 1) + 1
    return ops.cast(ops.ceil(ops.sqrt(ops.cast(length, "float32"))), length.dtype)
