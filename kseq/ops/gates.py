"""The elementwise parts of the simple recurrent network, the GRU and the LSTM."""

from typing import Protocol

import numpy as np
from keras import ops

from kseq._typing import Tensor


class Gates(Protocol):
    """The elementwise part of a recurrent cell, and its gradient.

    A step has slots, tensors `(B, n)`. The inputs fill the first ones; `step` may
    put into them what `gradient` will need, and `extra_slots` more hold what has
    no input to overwrite. `gradient` then puts into each the gradient of what it
    held at first. Those of `recurrent_slots`, side by side, are that of `h U + b`.
    """

    extra_slots: int
    recurrent_slots: tuple[int, ...]

    def step(
        self, inputs: list[Tensor], recurrent: Tensor, states: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Returns what the slots keep, and the new states."""
        ...

    def gradient(
        self, kept: list[Tensor], states: list[Tensor], upstream: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Returns the gradients of the slots, and of the old states but for `h U`.

        `upstream` is the gradient of the new states.
        """
        ...


class SimpleGates:
    """h_t = tanh(x_t W + h_{t-1} U + b)."""

    extra_slots = 0
    recurrent_slots: tuple[int, ...] = (0,)

    def step(
        self, inputs: list[Tensor], recurrent: Tensor, states: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """See `Gates`."""
        del states
        h = ops.tanh(inputs[0] + recurrent)
        return [h], [h]

    def gradient(
        self, kept: list[Tensor], states: list[Tensor], upstream: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """See `Gates`."""
        (h,), (d_h,) = kept, upstream
        return [d_h * (1 - h * h)], [ops.zeros_like(states[0])]


class GRUGates:
    """z, r = s(x W + h U);  n = tanh(x W_n + r * (h U_n));  h_t = z h + (1 - z) n.

    The slots are (z, r), which takes x W, n, which takes x W_n, and h U_n.
    """

    extra_slots = 1
    recurrent_slots: tuple[int, ...] = (0, 2)

    def step(
        self, inputs: list[Tensor], recurrent: Tensor, states: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """See `Gates`."""
        (x_gates, x_new), (h,) = inputs, states
        units = h.shape[-1]
        h_gates, h_new = recurrent[:, : 2 * units], recurrent[:, 2 * units :]
        gates = _sigmoid(x_gates + h_gates)
        z, r = ops.split(gates, 2, axis=-1)
        new = ops.tanh(x_new + r * h_new)
        return [gates, new, h_new], [new + z * (h - new)]

    def gradient(
        self, kept: list[Tensor], states: list[Tensor], upstream: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """See `Gates`."""
        (gates, new, h_new), (h,), (d_h,) = kept, states, upstream
        z, r = ops.split(gates, 2, axis=-1)
        d_z = d_h * (h - new) * z * (1 - z)
        d_new = d_h * (1 - z) * (1 - new * new)
        d_r = d_new * h_new * r * (1 - r)
        d_gates = ops.concatenate([d_z, d_r], axis=-1)
        return [d_gates, d_new, d_new * r], [d_h * z]


class LSTMGates:
    """c_t = f c + i g;  h_t = o tanh(c_t).

    i, f, o = s(.) and g = tanh(.) of the quarters of x W + h U + b.
    """

    extra_slots = 0
    recurrent_slots: tuple[int, ...] = (0,)

    def step(
        self, inputs: list[Tensor], recurrent: Tensor, states: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """See `Gates`."""
        _, c = states
        # one tanh over all gates, since s(x) = tanh(x / 2) / 2 + 1 / 2
        scale = np.repeat([0.5, 0.5, 1.0, 0.5], c.shape[-1])
        scale = ops.convert_to_tensor(scale, c.dtype)
        gates = scale * ops.tanh(scale * (inputs[0] + recurrent)) + (1 - scale)
        i, f, g, o = ops.split(gates, 4, axis=-1)
        c = f * c + i * g
        return [gates], [o * ops.tanh(c), c]

    def gradient(
        self, kept: list[Tensor], states: list[Tensor], upstream: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """See `Gates`."""
        (gates,), (h, c), (d_h, d_c) = kept, states, upstream
        i, f, g, o = ops.split(gates, 4, axis=-1)
        t = ops.tanh(f * c + i * g)
        d_c = d_c + d_h * o * (1 - t * t)
        d_gates = [
            d_c * g * i * (1 - i),
            d_c * c * f * (1 - f),
            d_c * i * (1 - g * g),
            d_h * t * o * (1 - o),
        ]
        return [ops.concatenate(d_gates, axis=-1)], [ops.zeros_like(h), d_c * f]


def _sigmoid(x: Tensor) -> Tensor:
    return 0.5 * ops.tanh(0.5 * x) + 0.5
