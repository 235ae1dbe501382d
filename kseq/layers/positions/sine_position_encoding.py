"""Sinusoidal position encoding."""

from typing import Any

import keras
from keras import ops

from kseq._checks import check_rank
from kseq._typing import Shape, Tensor
from kseq.ops.position_angles import geometric_frequencies
from kseq.ops.sinusoidal import sinusoidal_positions
from kseq.ops.token_positions import token_positions


@keras.saving.register_keras_serializable(package="kseq")
class SinePositionEncoding(keras.layers.Layer):
    """The sinusoidal encoding of each position, to be added to the embeddings.

        PE(p)[2i] = sin(p theta_i);  PE(p)[2i + 1] = cos(p theta_i)
        theta_i = max_wavelength ** (-2i / D)

    Sines and cosines alternate, as in the paper. Like the KerasHub layer of that
    name it returns the encoding alone. Add it with `keras.layers.Add`, which keeps
    the Keras mask; a plain `+` drops it.

    Args:
        max_wavelength: float. The waves are 2 pi to nearly 2 pi `max_wavelength`
            tokens long. Defaults to `10_000.0`.

    Call arguments:
        inputs: float `(B, T, D)`, D even. Only its shape is read.
        positions: int `(T,)` or `(B, T)`. The position of each token. Defaults to
            `None`: they count up from `start_index`.
        start_index: int, a scalar or `(B,)`. The position of the first token.
            Defaults to `0`.

    Returns:
        `(B, T, D)`.

    Masking: the mask is passed on. Padding counts as tokens do: after padding on the
        left give `positions`.

    Numerics: computed in float32 or better whatever the policy, and cast last; within
        1e-6 at every position before that.

    Raises:
        ValueError: `` `inputs` must have shape (B, T, D). ``,
            `` A width of pairs must be even... ``,
            `` `max_wavelength` must be greater than 1... ``, and what `positions` and
            `start_index` must not be: negative (when eager), of another shape, or
            both given.
        TypeError: `` `positions` must be integers. `` (`start_index` alike)

    Example:

    >>> x = kseq.layers.Embedding(30, 8, mask_zero=True)(np.array([[5, 6, 0]]))
    >>> x = keras.layers.Add()([x, kseq.layers.SinePositionEncoding()(x)])
    >>> tuple(x.shape)
    (1, 3, 8)

    References:
        Vaswani et al., 2017, "Attention is all you need", arXiv:1706.03762,
        section 3.5.
    """

    def __init__(self, max_wavelength: float = 10_000.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_wavelength = max_wavelength
        self.supports_masking = True

    def build(self, inputs_shape: Shape) -> None:
        check_rank("inputs", inputs_shape, (3,), "(B, T, D)")
        geometric_frequencies(inputs_shape[-1] or 0, self.max_wavelength)  # checks

    def call(
        self,
        inputs: Tensor,
        positions: Tensor | None = None,
        start_index: Tensor | int = 0,
    ) -> Tensor:
        encoding = sinusoidal_positions(
            token_positions(inputs, positions, start_index),
            inputs.shape[-1],
            self.max_wavelength,
            dtype=keras.backend.result_type(self.compute_dtype, "float32"),
        )  # (T, D) or (B, T, D)
        encoding = ops.cast(encoding, self.compute_dtype)
        return ops.broadcast_to(encoding, ops.shape(inputs))

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        return inputs_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "max_wavelength": self.max_wavelength}
