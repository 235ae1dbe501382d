"""The associative scan of linear recurrences, with its gradient written by hand."""

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
from keras import ops

from kseq._typing import Tensor
from kseq.backend import Buffer, custom_gradient, empty, filled, loop, stacked
from kseq.ops.time_chunks import TimeChunks


class LinearStep:
    """h_t = a_t * h_{t-1} + b_t, elementwise."""

    @staticmethod
    def step(a: Tensor, b: Tensor, h: Tensor) -> Tensor:
        """The new h."""
        return a * h + b

    @staticmethod
    def gradient(a: Tensor, b: Tensor, h: Tensor, upstream: Tensor) -> list[Tensor]:
        """Those of a and b; `upstream` is the gradient of the new h."""
        del a, b
        return [upstream * h, upstream]


class ConvexStep(LinearStep):
    """h_t = a_t * h_{t-1} + (1 - a_t) * b_t, elementwise."""

    @staticmethod
    def step(a: Tensor, b: Tensor, h: Tensor) -> Tensor:
        """See `LinearStep`."""
        return a * h + (1 - a) * b

    @staticmethod
    def gradient(a: Tensor, b: Tensor, h: Tensor, upstream: Tensor) -> list[Tensor]:
        """See `LinearStep`."""
        return [upstream * (h - b), upstream * (1 - a)]


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
    chunks = TimeChunks.of(b, reverse=reverse)
    a, b = chunks.cut(a), chunks.cut(b)
    return chunks.joined(chunked_recurrence(LinearStep, a, b, state, reverse=reverse))


def chunked_recurrence(
    kind: type[LinearStep], a: Tensor, b: Tensor, state: Tensor, *, reverse: bool
) -> Tensor:
    """`linear_recurrence` of what `TimeChunks` has cut, with the step of `kind`.

    On a processor it is the memory that takes the time: each loop reads and writes
    whole rows, h takes the place of b, and the gradient of h makes room for that of
    its step.
    """
    dtype = keras.backend.result_type(b.dtype, "float32")
    run = custom_gradient(
        partial(_forward, kind, reverse), partial(_backward, kind, reverse)
    )
    return run([ops.cast(x, dtype) for x in (a, b, state)])


def _forward(
    kind: type[LinearStep], reverse: bool, inputs: list[Tensor]
) -> tuple[Tensor, Any]:
    a, b, state = inputs
    places = ops.shape(a)[0]
    read_a, read_b = _rows(a, reverse), _rows(b, reverse)

    def step(k: Tensor, h: Tensor) -> Tensor:
        return kind.step(read_a(k), read_b(k), h)

    starts, _ = _starts(read_a, step, state, places, reverse)

    def body(k: Tensor, h: Tensor, hs: Buffer) -> list[Any]:
        place = places - 1 - k if reverse else k
        h = kind.step(read_a(k), hs.read(place), h)
        return [h, hs.write(place, h)]

    _, hs = loop(places, body, [starts, filled(b)])
    hs = stacked(hs, places)
    return hs, (a, b, state, starts, hs)


def _backward(
    kind: type[LinearStep], reverse: bool, residuals: Any, d_h: Tensor
) -> list[Tensor]:
    a, b, state, starts, hs = residuals
    places = ops.shape(a)[0]
    read_a, read_d_h = _rows(a, not reverse), _rows(d_h, not reverse)

    # between the steps goes a_t * g_t, the gradient of h_{t-1}
    def step(k: Tensor, d: Tensor) -> Tensor:
        return read_a(k) * (read_d_h(k) + d)

    ends, d_state = _starts(read_a, step, ops.zeros_like(state), places, not reverse)

    # here goes g_t, which is what is written: XLA would copy the buffer if anything
    # else were made of its old row
    def body(k: Tensor, g: Tensor, gs: Buffer) -> list[Any]:
        place = k if reverse else places - 1 - k
        d = ops.where(k == 0, g, read_a(ops.maximum(k - 1, 0)) * g)
        g = gs.read(place) + d
        return [g, gs.write(place, g)]

    _, gs = loop(places, body, [ends, filled(d_h)])
    parts = [hs[1:], starts[None]] if reverse else [starts[None], hs[:-1]]
    before = ops.concatenate(parts, axis=0)
    return [*kind.gradient(a, b, before, stacked(gs, places)), d_state]


def _starts(
    read_a: Callable[[Tensor], Tensor],
    step: Callable[[Tensor, Tensor], Tensor],
    state: Tensor,
    places: Tensor,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    """What stands before each chunk, `(chunks * B, U)`, and after the last one.

    `step` takes k and what stands before the k-th step of each chunk, which it
    multiplies by `read_a(k)`.
    """

    def inside(k: Tensor, product: Tensor, h: Tensor) -> list[Tensor]:
        return [read_a(k) * product, step(k, h)]

    like = read_a(0)
    ends = loop(places, inside, [ops.ones_like(like), ops.zeros_like(like)])
    product, h = (ops.reshape(x, (-1, *ops.shape(state))) for x in ends)
    read_product, read_h = _rows(product, reverse), _rows(h, reverse)
    chunks = ops.shape(h)[0]

    def between(k: Tensor, state: Tensor, starts: Buffer) -> list[Any]:
        chunk = chunks - 1 - k if reverse else k
        starts = starts.write(chunk, state)
        return [read_product(k) * state + read_h(k), starts]

    last, starts = loop(chunks, between, [state, empty(chunks, state)])
    return ops.reshape(stacked(starts, chunks), ops.shape(like)), last


def _rows(x: Tensor, reverse: bool) -> Callable[[Tensor], Tensor]:
    """Gives the k-th row of `x`, from the last one with `reverse`."""
    rows, last = filled(x), ops.shape(x)[0] - 1
    return lambda k: rows.read(last - k if reverse else k)
