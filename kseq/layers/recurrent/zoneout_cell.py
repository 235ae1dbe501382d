"""A recurrent cell with zoneout."""

from collections.abc import Sequence
from numbers import Real
from typing import Any

import keras
from keras import ops

from kseq._checks import message
from kseq._typing import Tensor
from kseq.layers.recurrent.wrapped_cell import WrappedCell
from kseq.ops.dropout import dropout


@keras.saving.register_keras_serializable(package="kseq")
class ZoneoutCell(WrappedCell):
    """A cell whose units keep their old state now and then, with zoneout.

        s_t = d_t * s_{t-1} + (1 - d_t) * n_t,  d_t ~ Bernoulli(p)     training
        s_t =   p * s_{t-1} + (1 -   p) * n_t                          inference

    n_t is what `cell` makes of the state s_{t-1}, p is the `zoneout` of that state.
    Each unit of each state has a d_t of its own, drawn anew at every step. (A
    dropout mask inside `cell`, if it is one of kseq, lasts a sequence.)

    An output that is one of the new states, the same tensor, is zoned out with it:
    the h of every cell of kseq and of Keras. Any other output is what the cell made
    of its inputs and is passed on, and only the states are zoned out; so write
    `ResidualCell(ZoneoutCell(cell, p))`, and give each cell of a stack its own.

    Args:
        cell: a recurrent cell, as `kseq.layers.RNN` takes it.
        zoneout: probability in [0, 1) that a unit keeps its old value: one for all
            states, or a list of one for each state, such as `[p_h, p_c]` for an
            LSTM.
        seed: int. Defaults to `None`, a random seed.

    Call arguments:
        inputs: float `(B, D)`.
        states: the cell's states.
        training: bool. True draws d_t; also handed to the cell.

    Returns:
        `(output, states)`, as the cell does.

    Raises:
        TypeError: `` `cell` must be a Keras layer... ``
        ValueError: `` `zoneout` must be a probability in [0, 1)... ``

    Example:

    >>> cell = kseq.layers.ZoneoutCell(kseq.layers.LSTMCell(4), [0.1, 0.2])
    >>> layer = kseq.layers.RNN(cell, return_sequences=True)
    >>> tuple(layer(keras.ops.ones((2, 5, 3)), training=True).shape)
    (2, 5, 4)

    References:
        Krueger et al., 2017, "Zoneout: regularizing RNNs by randomly preserving
        hidden activations", arXiv:1606.01305.
    """

    changes_states = True

    def __init__(
        self,
        cell: Any,
        zoneout: float | Sequence[float],
        *,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(cell, **kwargs)
        count = len(keras.tree.flatten(self.state_size))
        rates: Any = zoneout
        if not isinstance(zoneout, list | tuple):
            rates = [zoneout] * count
        if len(rates) != count or not all(map(_is_rate, rates)):
            raise ValueError(
                message(
                    "`zoneout` must be a probability in [0, 1), the share of units "
                    f"that keep their state, or a list of {count} of them, one for "
                    "each state.",
                    zoneout=zoneout,
                )
            )
        self.zoneout = [float(rate) for rate in rates]
        self.seed = seed
        if any(self.zoneout):
            self.seed_generator = keras.random.SeedGenerator(seed)

    def call(
        self, inputs: Tensor, states: Any, training: bool = False
    ) -> tuple[Tensor, Any]:
        output, new_states = self.cell(inputs, states, training=training)
        old, new = keras.tree.flatten(states), keras.tree.flatten(new_states)
        zoned = [
            self._zone_out(*state, training)
            for state in zip(old, new, self.zoneout, strict=True)
        ]
        outputs = [z for z, s in zip(zoned, new, strict=True) if s is output]
        # a cell may answer with a tuple where it was given a list
        states = keras.tree.pack_sequence_as(states, zoned)
        return (outputs[0] if outputs else output), states

    def _zone_out(
        self, old: Tensor, new: Tensor, rate: float, training: bool
    ) -> Tensor:
        if not rate:
            return new
        if not training:
            return rate * old + (1 - rate) * new
        drawn = dropout(ops.ones_like(new), rate, self.seed_generator)
        return ops.where(drawn > 0, new, old)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "zoneout": list(self.zoneout),
            "seed": self.seed,
        }


def _is_rate(value: Any) -> bool:
    return isinstance(value, Real) and 0 <= float(value) < 1
