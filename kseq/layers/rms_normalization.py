"""RMS norm that keeps the mask."""

import keras

from kseq._checks import check_floating
from kseq._typing import Tensor


@keras.saving.register_keras_serializable(package="kseq")
class RMSNormalization(keras.layers.RMSNormalization):
    """Divides by the root mean square of the features (Zhang & Sennrich).

        y = g x / sqrt(mean_i x_i^2 + epsilon)

    `keras.layers.RMSNormalization`, which loses the Keras mask of its inputs, with the
    mask kept.

    Args:
        **kwargs: what `keras.layers.RMSNormalization` takes: `axis`, the features,
            which defaults to `-1`, and `epsilon`, inside the root, which defaults to
            `1e-6`.

    Call arguments:
        inputs: float, any shape.

    Returns:
        The shape of `inputs`.

    Masking: the mask is passed on.

    Numerics: the mean is taken in at least float32.

    Raises:
        TypeError: `` `inputs` must be floating-point... ``

    Example:

    >>> x = kseq.layers.Embedding(30, 4, mask_zero=True)(np.array([[5, 6, 0]]))
    >>> tuple(kseq.layers.RMSNormalization()(x).shape)
    (1, 3, 4)

    References:
        Zhang & Sennrich, 2019, "Root mean square layer normalization",
        arXiv:1910.07467, equation 4.
    """

    def __init__(self, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs: Tensor) -> Tensor:
        return super().call(check_floating("inputs", inputs))
