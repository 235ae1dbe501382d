"""The gradient of a model's loss with respect to what is inside it."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np
from keras import ops

from kseq._checks import message
from kseq._typing import Tensor
from kseq.backend import compiled, gradient
from kseq.diagnostics.layer_calls import all_calls, layer_calls, path
from kseq.diagnostics.same_state import same_state

Taps = Callable[
    [Mapping[str, Tensor] | None], AbstractContextManager[dict[str, Tensor]]
]


class GradientProbe:
    """Norms by position of the gradient of one batch's loss, traced once.

    Zeros are added inside the model and the loss is differentiated by them. The model
    runs as in inference; its weights are read anew at each call, so the norms follow
    training.

    Args:
        model: a compiled and built model.
        x: one batch of its inputs.
        y: the targets.
        taps: a context in which the model adds zeros; it yields them by name.

    Attributes:
        layers: path -> layer, of all that the model calls.
        shapes: name -> shape of the zeros.

    Returns:
        Each call: name -> float `(T,)`, the norm over all axes but the second.
    """

    def __init__(self, model: keras.Model, x: Any, y: Any, taps: Taps) -> None:
        if not (model.built and model.compiled):
            raise ValueError(
                message(
                    "`model` must be compiled and built: its loss is differentiated.",
                    compiled=model.compiled,
                    built=model.built,
                )
            )
        self._model = model
        self._batch = keras.tree.map_structure(ops.convert_to_tensor, (x, y))
        with same_state(model), taps(None) as zeros, layer_calls() as calls:
            model(self._batch[0], training=False)
        self._zeros = dict(zeros)
        self.shapes = {name: tuple(z.shape) for name, z in zeros.items()}
        self.layers = {path(call.layer): call.layer for call in all_calls(calls)}

        def loss(zeros: dict[str, Tensor], x: Any, y: Any) -> Tensor:
            with taps(zeros):
                y_pred = model(x, training=False)
                return model.compute_loss(
                    x=x, y=y, y_pred=y_pred, sample_weight=None, training=False
                )

        def norms(zeros: dict[str, Tensor], x: Any, y: Any) -> dict[str, Tensor]:
            found = gradient(loss)(zeros, x, y)
            return keras.tree.map_structure(_norm_by_position, found)

        # a small batch run once per epoch is not worth XLA's compile time
        self._norms = compiled(norms, model.variables, jit_compile=False)

    def __call__(self) -> dict[str, np.ndarray]:
        if not self.shapes:
            return {}
        with same_state(self._model):
            norms = self._norms(self._zeros, *self._batch)
        return {name: ops.convert_to_numpy(norms[name]) for name in self.shapes}


def _norm_by_position(x: Tensor) -> Tensor:
    x = ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
    axes = [axis for axis in range(len(x.shape)) if axis != 1]
    return ops.sqrt(ops.sum(ops.square(x), axis=axes))
