"""What the blocks of encoder and decoder share."""

from collections.abc import Callable
from typing import Any

import keras

from kseq._typing import Shape, Tensor
from kseq.backend import remat
from kseq.layers.attention.capture import wanted
from kseq.layers.blocks.mixing import build_mixer, build_part, check_layer
from kseq.layers.blocks.sublayer_connection import SublayerConnection, part_seed
from kseq.layers.recurrent.any_cell import part_config
from kseq.layers.recurrent.state_tap import tapping


class TransformerBlock(keras.layers.Layer):
    """Base: a mixer and a feed-forward layer on the residual stream."""

    def __init__(
        self,
        mixer: keras.layers.Layer,
        feed_forward: keras.layers.Layer,
        *,
        placement: str = "pre",
        norm: str = "layer",
        norm_epsilon: float = 1e-5,
        residual_scale: float = 1.0,
        layer_scale: float | None = None,
        rezero: bool = False,
        dropout: float = 0.0,
        stochastic_depth: float = 0.0,
        remat: bool = False,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.mixer = check_layer("mixer", mixer)
        self.feed_forward = check_layer("feed_forward", feed_forward)
        self._connection_options: dict[str, Any] = {
            "placement": placement,
            "norm": norm,
            "norm_epsilon": norm_epsilon,
            "residual_scale": residual_scale,
            "layer_scale": layer_scale,
            "rezero": rezero,
            "dropout": dropout,
            "stochastic_depth": stochastic_depth,
        }
        self.remat = remat
        self.seed = seed
        self.mixer_connection = self.connection("mixer_connection", 0)
        self.supports_masking = True

    def connection(self, name: str, part: int) -> SublayerConnection:
        """A new connection with the options of the block."""
        return SublayerConnection(
            **self._connection_options,
            # each has two seeds of its own
            seed=part_seed(self.seed, 2 * part),
            dtype=self.dtype_policy,
            name=name,
        )

    def build_parts(self, shape: Shape) -> None:
        """Builds mixer and feed-forward layer for sequences `(B, T, D)`."""
        build_mixer(self.mixer, shape)
        build_part(self.feed_forward, shape)
        self.mixer_connection.build(shape)

    def run(self, body: Callable[..., Tensor], x: Tensor, **tensors: Any) -> Tensor:
        """`body(x, **tensors)`, with `remat` once more in the backward pass.

        It must hold no other tensors: JAX can't run a part of a program twice that
        does. Those that are None are left out.
        """
        tensors = {name: t for name, t in tensors.items() if t is not None}
        # a captured value must not leave the part of the program that is run twice,
        # and a tap must not come into it
        if self.remat and wanted() is None and not tapping():
            body = remat(self, body)
        return body(x, **tensors)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "mixer": part_config(self.mixer),
            "feed_forward": part_config(self.feed_forward),
            **self._connection_options,
            "remat": self.remat,
            "seed": self.seed,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TransformerBlock":
        """The layer that `get_config` describes."""
        parts = {
            name: keras.saving.deserialize_keras_object(value)
            for name, value in config.items()
            if isinstance(value, dict) and name != "dtype"
        }
        return cls(**{**config, **parts})
