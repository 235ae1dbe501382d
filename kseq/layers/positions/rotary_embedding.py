"""Rotary position embedding."""

from typing import Any

import keras

from kseq._checks import check_floating, check_rank, check_size, message
from kseq._typing import Shape, Tensor
from kseq.ops.rotary import apply_rotary, rotary_angles
from kseq.ops.rotary_frequencies import (
    RotaryScaling,
    check_scaling,
    rotary_frequencies,
)
from kseq.ops.token_positions import is_zero, token_positions


@keras.saving.register_keras_serializable(package="kseq")
class RotaryEmbedding(keras.layers.Layer):
    """Turns queries or keys by angles that grow with their positions (RoPE).

        (a_i, b_i) -> (a_i cos(p theta_i) - b_i sin(p theta_i),
                       b_i cos(p theta_i) + a_i sin(p theta_i)),  i < R / 2
        theta_i = max_wavelength ** (-2i / R)

    p is the position, R is `rotary_dim`; (a_i, b_i) is (x_i, x_{i + R / 2}), as in
    Llama, or with `interleaved` (x_{2i}, x_{2i + 1}), as in the paper. It has no
    weights: one layer serves the queries and the keys, whose dot products then depend
    on the difference of their positions only.

    Args:
        max_wavelength: float. The base, called `rope_theta` elsewhere. Defaults to
            `10_000.0`.
        rotary_dim: int, even. R: only the first R of the K coordinates are turned.
            Defaults to `None`, all.
        interleaved: bool. Which coordinates are a pair. Defaults to `False`.
        scaling: a `kseq.ops.RotaryScaling`, for texts longer than those trained on:
            `LinearScaling`, `NTKScaling`, `DynamicNTKScaling`, `YaRNScaling` or
            `Llama3Scaling` of `kseq.ops`. Defaults to `None`.

    Call arguments:
        inputs: float `(B, T, H, K)`. Queries or keys.
        positions: int `(T,)` or `(B, T)`. The position of each token. Defaults to
            `None`: they count up from `start_index`.
        start_index: int, a scalar or `(B,)`. The position of the first token: how
            many tokens a cache holds. Defaults to `0`.

    Returns:
        The shape and dtype of `inputs`.

    Masking: the mask is passed on. A token reaches no output but its own.

    Numerics: angles are exact to 1e-6 at every position, and in float32 or better,
        as are the products, whatever the policy.

    Raises:
        ValueError: `` `inputs` must have shape (B, T, H, K). ``,
            `` A width of pairs must be even... ``,
            `` `rotary_dim` must be a positive integer. ``,
            `` `rotary_dim` must not exceed the width of `inputs`. ``,
            `` `max_wavelength` must be greater than 1... ``,
            `` Dynamic NTK scaling needs the number of tokens... ``, and what
            `positions` and `start_index` must not be: negative (when eager), of
            another shape, or both given.
        TypeError: `` `positions` must be integers. `` (`start_index` alike),
            `` `inputs` must be floating-point... `` and
            `` `scaling` must be a RotaryScaling... ``

    Example:

    >>> rotary = kseq.layers.RotaryEmbedding(
    ...     scaling=kseq.ops.YaRNScaling(scale=4, original_length=2048)
    ... )
    >>> query = keras.ops.ones((2, 1, 3, 8))
    >>> tuple(rotary(query, start_index=np.array([5, 7])).shape)
    (2, 1, 3, 8)

    References:
        Su et al., 2021, "RoFormer: enhanced transformer with rotary position
        embedding", arXiv:2104.09864, section 3.2.
    """

    def __init__(
        self,
        max_wavelength: float = 10_000.0,
        *,
        rotary_dim: int | None = None,
        interleaved: bool = False,
        scaling: RotaryScaling | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_wavelength = max_wavelength
        if rotary_dim is not None:
            check_size("rotary_dim", rotary_dim)
        self.rotary_dim = rotary_dim
        self.interleaved = interleaved
        self.scaling = check_scaling(scaling)
        self.supports_masking = True

    def build(self, inputs_shape: Shape) -> None:
        check_rank("inputs", inputs_shape, (4,), "(B, T, H, K)")
        width = inputs_shape[-1] or 0
        if self.rotary_dim is not None and self.rotary_dim > width:
            raise ValueError(
                message(
                    "`rotary_dim` must not exceed the width of `inputs`.",
                    rotary_dim=self.rotary_dim,
                    shape=tuple(inputs_shape),
                )
            )
        # refuses odd widths and wrong bases now rather than at the first call
        rotary_frequencies(self.rotary_dim or width, self.max_wavelength)

    def call(
        self,
        inputs: Tensor,
        positions: Tensor | None = None,
        start_index: Tensor | int = 0,
    ) -> Tensor:
        check_floating("inputs", inputs)
        from_zero = positions is None and is_zero(start_index)
        theta = rotary_frequencies(
            self.rotary_dim or inputs.shape[-1],
            self.max_wavelength,
            self.scaling,
            length=inputs.shape[1] if from_zero else None,
        )
        cos, sin = rotary_angles(
            token_positions(inputs, positions, start_index),
            theta,
            gain=1.0 if self.scaling is None else self.scaling.gain,
            dtype=keras.backend.result_type(inputs.dtype, "float32"),
        )
        return apply_rotary(inputs, cos, sin, interleaved=self.interleaved)

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        return inputs_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "max_wavelength": self.max_wavelength,
            "rotary_dim": self.rotary_dim,
            "interleaved": self.interleaved,
            "scaling": keras.saving.serialize_keras_object(self.scaling),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "RotaryEmbedding":
        """The layer that `get_config` describes."""
        scaling = keras.saving.deserialize_keras_object(config["scaling"])
        return cls(**{**config, "scaling": scaling})
