"""How far a gradient reaches down a stack of layers."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import keras
import numpy as np
from keras import ops

from kseq._checks import message
from kseq.diagnostics.gradient_probe import GradientProbe
from kseq.diagnostics.layer_calls import all_calls, layer_calls
from kseq.diagnostics.output_taps import output_taps
from kseq.diagnostics.same_state import same_state
from kseq.layers.blocks.transformer_block import TransformerBlock


def gradient_by_depth(
    model: keras.Model,
    x: Any,
    y: Any,
    *,
    layers: Sequence[keras.Layer] | None = None,
) -> dict[str, np.ndarray]:
    """The norm of dL/dx_l at each position, x_l being what layer l gives to the next.

    For a stack of Transformer blocks x_l is the residual stream after block l. One
    number a layer is `np.linalg.norm` of its row: a stack whose first layers get far
    less than its last trains badly (Post-LN without a warm-up is such a one).

    Args:
        model: a built model, compiled with a loss. It runs as in inference.
        x: one batch of its inputs, as `model.fit` takes it.
        y: the targets.
        layers: layers that the model calls, with outputs `(B, T, D)`, such as
            `[model.get_layer("block_1")]`. None takes the Transformer blocks of kseq.
            Defaults to `None`.

    Returns:
        path of the layer -> float `(T,)`, in the order in which the data flows: L2 over
        the rows of the batch and the features. A layer called again adds `#2`.

    Raises:
        TypeError: `` `layers` must be layers of the model. ``
        ValueError: `` `model` must be compiled and built... ``,
            `` `layers` must be called by the model... `` and
            `` `layers` must be given for a model without Transformer blocks... ``

    Example:

    >>> model = kseq.models.TransformerLM(
    ...     vocabulary_size=9, num_layers=2, hidden_dim=8, num_heads=2)
    >>> model.compile(loss=kseq.training.MaskedCrossentropy())
    >>> ids = np.array([[3, 4, 5, 6]])
    >>> gradients = kseq.diagnostics.gradient_by_depth(model, ids, ids)
    >>> [norms.shape for norms in gradients.values()]
    [(4,), (4,)]

    References:
        Xiong et al., 2020, "On layer normalization in the Transformer architecture",
        arXiv:2002.04745, section 3.3.
    """
    found = DepthGradientProbe(model, x, y, layers=layers)()
    if not found:
        raise ValueError(
            message(
                "`layers` must be given for a model without Transformer blocks.",
                model=model.name,
                layers=layers,
            )
        )
    return found


class DepthGradientProbe:
    """`gradient_by_depth` of one model on one batch, traced once.

    Args:
        model: as in `gradient_by_depth`.
        x: one batch of its inputs.
        y: the targets.
        layers: as in `gradient_by_depth`.

    Returns:
        Each call: as `gradient_by_depth`, with the weights that the model has then;
        empty for a model without Transformer blocks, if `layers` is None.
    """

    def __init__(
        self,
        model: keras.Model,
        x: Any,
        y: Any,
        *,
        layers: Sequence[keras.Layer] | None = None,
    ) -> None:
        if layers is None:
            layers = _blocks(model, x)
        elif not all(isinstance(layer, keras.Layer) for layer in layers):
            raise TypeError(
                message(
                    "`layers` must be layers of the model.",
                    fix="Such as [model.get_layer('block_1')].",
                    layers=layers,
                )
            )
        self._probe = GradientProbe(model, x, y, partial(output_taps, layers))
        shapes = self._probe.shapes
        flat = any(len(shape) < 3 for shape in shapes.values())
        if flat or len(shapes) < len(layers):
            raise ValueError(
                message(
                    "`layers` must be called by the model, with outputs (B, T, D).",
                    layers=[layer.name for layer in layers],
                    outputs=shapes,
                )
            )

    def __call__(self) -> dict[str, np.ndarray]:
        return self._probe()


def _blocks(model: keras.Model, x: Any) -> list[TransformerBlock]:
    """The Transformer blocks that `model` calls, each once."""
    inputs = keras.tree.map_structure(ops.convert_to_tensor, x)
    with same_state(model), layer_calls() as calls:
        model(inputs, training=False)
    found = [call.layer for call in all_calls(calls)]
    return [
        layer for layer in dict.fromkeys(found) if isinstance(layer, TransformerBlock)
    ]
