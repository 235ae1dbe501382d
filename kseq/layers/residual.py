"""A residual connection around a layer of sequences."""

import inspect
from typing import Any

import keras

from kseq._checks import check_floating, check_mask, message
from kseq._typing import Shape, Tensor
from kseq.layers.recurrent.any_cell import part_config
from kseq.ops import zero_padding


@keras.saving.register_keras_serializable(package="kseq")
class Residual(keras.layers.Layer):
    """Adds the inputs of a layer of sequences to its outputs.

        y = x + layer(x)

    It keeps the Keras mask, which a plain `+` drops. Where the layer returns
    states, they follow y as the layer made them.

    Args:
        layer: a layer whose first output has the shape of its inputs, such as
            `kseq.layers.LSTM(D, return_sequences=True)` or a
            `keras.layers.Bidirectional` of two halves.

    Call arguments:
        sequences: float `(B, T, D)`.
        initial_state: handed to the layer. None leaves it out.
        mask: bool `(B, T)`. True is a real step. Filled from the Keras mask, and
            handed to the layer if it takes one.
        training: bool, handed to the layer if it takes one.
        reset_mask: bool `(B, T)`, handed to the layer. None leaves it out.
        sequences_mask: what Keras fills in the place of `mask` when
            `initial_state` or `reset_mask` is given too; leave it to Keras.

    Returns:
        `(B, T, D)`, or a tuple of that and the layer's further outputs.

    Masking: the padding of x counts as zeros, so it may hold anything. The mask is
        passed on as the layer passes it on.

    Raises:
        TypeError: `` `layer` must be a Keras layer. `` and
            `` `mask` must be boolean... `` (`sequences` alike, floating-point)
        ValueError: `` The outputs of `layer` must have the shape of its inputs. ``
            and `` `layer` must not run backwards... ``

    Example:

    >>> layer = kseq.layers.Residual(kseq.layers.LSTM(4, return_sequences=True))
    >>> tuple(layer(keras.ops.ones((2, 5, 4))).shape)
    (2, 5, 4)

    References:
        He et al., 2016, "Deep residual learning for image recognition",
        arXiv:1512.03385; Wu et al., 2016, arXiv:1609.08144, section 3.1.
    """

    def __init__(self, layer: keras.Layer, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not isinstance(layer, keras.Layer):
            raise TypeError(
                message("`layer` must be a Keras layer.", layer=type(layer).__name__)
            )
        if getattr(layer, "go_backwards", False):
            raise ValueError(
                message(
                    "`layer` must not run backwards: its outputs stand in another "
                    "order than its inputs.",
                    fix="keras.layers.Bidirectional puts them in order.",
                    layer=layer.name,
                    go_backwards=True,
                )
            )
        self.layer = layer
        self.supports_masking = True

    def build(self, sequences_shape: Shape, initial_state_shape: Any = None) -> None:
        if not self.layer.built:
            self.layer.build(sequences_shape)
            self.layer.built = True
        outputs_shape = _first(self.layer.compute_output_shape(sequences_shape))
        if outputs_shape != tuple(sequences_shape):
            raise ValueError(
                message(
                    "The outputs of `layer` must have the shape of its inputs.",
                    fix="It needs `return_sequences=True` and the width of the inputs.",
                    layer=self.layer.name,
                    inputs_shape=tuple(sequences_shape),
                    outputs_shape=outputs_shape,
                )
            )

    def call(
        self,
        sequences: Tensor,
        initial_state: Any = None,
        mask: Tensor | None = None,
        training: bool = False,
        reset_mask: Tensor | None = None,
        sequences_mask: Tensor | None = None,
    ) -> Any:
        mask = check_mask("mask", sequences_mask if mask is None else mask)
        sequences = zero_padding(check_floating("sequences", sequences), mask)
        given = {"initial_state": initial_state, "reset_mask": reset_mask}
        options = {key: value for key, value in given.items() if value is not None}
        if "mask" in inspect.signature(self.layer.call).parameters:
            options["mask"] = mask
        outputs = self.layer(sequences, training=training, **options)
        if not isinstance(outputs, list | tuple):
            return sequences + outputs
        return (sequences + outputs[0], *outputs[1:])

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """The mask of the layer's outputs."""
        return self.layer.compute_mask(inputs, mask)

    def compute_output_shape(
        self, sequences_shape: Shape, initial_state_shape: Any = None
    ) -> Any:
        return self.layer.compute_output_shape(sequences_shape)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "layer": part_config(self.layer)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Residual":
        """The layer that `get_config` describes."""
        layer = keras.saving.deserialize_keras_object(config["layer"])
        return cls(**{**config, "layer": layer})


def _first(shapes: Any) -> Shape:
    """The shape of the first output."""
    return tuple(shapes[0] if isinstance(shapes[0], list | tuple) else shapes)
