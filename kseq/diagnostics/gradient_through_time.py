"""How far a gradient reaches through a recurrence."""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from kseq._checks import message
from kseq.diagnostics.gradient_probe import GradientProbe
from kseq.layers.recurrent.simple_rnn_cell import SimpleRNNCell
from kseq.layers.recurrent.state_tap import state_taps


class TimeGradient(NamedTuple):
    """The gradient of a loss with respect to a recurrent state, step by step.

    Attributes:
        norms: float `(T,)`, |dL/dh_t|: L2 over the rows of the batch and the units.
        bound: float `(T,)` or None, for a simple RNN: |dL/dh_T| s^(T-t), s the largest
            singular value of the recurrent kernel. No norm is above it, where the loss
            looks at the last step only and that is real in every row. None where the
            last step has no gradient, as a masked one has none.
    """

    norms: np.ndarray
    bound: np.ndarray | None


def gradient_through_time(
    model: keras.Model, x: Any, y: Any
) -> dict[str, TimeGradient]:
    """The norm of dL/dh_t for each step t of each recurrent layer of `model`.

        dL/dh_t = dL_t/dh_t + (dh_{t+1}/dh_t)^T dL/dh_{t+1}

    h_t is the state itself: its gradient counts every way to the loss, through the
    output at t and through all later steps. (A gradient with respect to a layer's
    outputs lacks the latter and looks the same for every cell.) Where it falls to
    nothing towards the first steps, the layer can't learn from them.

    Args:
        model: a built model with recurrent layers of kseq, in wrappers or stacks too,
            compiled with a loss. It runs as in inference.
        x: one batch of its inputs, as `model.fit` takes it.
        y: the targets.

    Returns:
        name -> `TimeGradient`. The name of a layer's first state, h, is its path; other
        states add their number, so `"lstm[1]"` is the c of `"lstm"`. Each cell of a
        stack has its own path. Norms stand at the step's position in the sequence,
        whichever way the layer runs, and are 0 at masked steps.

    Raises:
        ValueError: `` `model` must be compiled and built... `` and
            `` `model` must hold a recurrent layer of kseq. ``

    Example:

    >>> layers = [keras.Input((6, 3)), kseq.layers.LSTM(4, name="lstm")]
    >>> model = keras.Sequential([*layers, keras.layers.Dense(1)], name="model")
    >>> model.compile(loss="mse")
    >>> gradients = kseq.diagnostics.gradient_through_time(
    ...     model, np.ones((2, 6, 3)), np.ones((2, 1)))
    >>> {name: gradient.norms.shape for name, gradient in gradients.items()}
    {'model/lstm': (6,), 'model/lstm[1]': (6,)}

    References:
        Pascanu et al., 2013, "On the difficulty of training recurrent neural
        networks", arXiv:1211.5063, equations 5 to 7.
    """
    found = TimeGradientProbe(model, x, y)()
    if not found:
        raise ValueError(
            message(
                "`model` must hold a recurrent layer of kseq.",
                fix="One of Keras has a twin there that takes its weights.",
                model=model.name,
            )
        )
    return found


class TimeGradientProbe:
    """`gradient_through_time` of one model on one batch, traced once.

    Args:
        model: as in `gradient_through_time`.
        x: one batch of its inputs.
        y: the targets.

    Returns:
        Each call: as `gradient_through_time`, with the weights that the model has then;
        empty for a model without recurrent layers of kseq.
    """

    def __init__(self, model: keras.Model, x: Any, y: Any) -> None:
        self._probe = GradientProbe(model, x, y, state_taps)

    def __call__(self) -> dict[str, TimeGradient]:
        found = {}
        for name, norms in self._probe().items():
            layer = self._probe.layers.get(name.partition("#")[0])
            simple = isinstance(getattr(layer, "cell", None), SimpleRNNCell)
            bound = _bound(layer, norms) if simple else None
            found[name] = TimeGradient(norms, bound)
        return found


def _bound(layer: keras.Layer, norms: np.ndarray) -> np.ndarray | None:
    kernel = ops.convert_to_numpy(layer.cell.recurrent_kernel.value)
    largest = np.linalg.norm(kernel.astype("float64"), ord=2)
    steps = np.arange(len(norms))
    last, to_go = norms[-1], steps[::-1]
    if layer.go_backwards:
        last, to_go = norms[0], steps
    if not last:
        return None
    return last * largest**to_go
