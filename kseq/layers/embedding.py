"""An embedding that does not take ids it has no row for."""

import keras
from keras import ops

from kseq._checks import message
from kseq._typing import Tensor
from kseq.backend import is_concrete


@keras.saving.register_keras_serializable(package="kseq")
class Embedding(keras.layers.Embedding):
    """Looks up a row of a table for each token id.

        y = table[id],  0 <= id < input_dim

    `keras.layers.Embedding`, except for an id out of range, for which that one
    raises TensorFlow's error, or returns NaN, or another row, by backend and
    compilation. Here an eager call raises; in a compiled program, which can't, the
    id is clamped to [0, input_dim).

    Args:
        input_dim: int. Number of ids.
        output_dim: int. Width of a row.
        mask_zero: bool. True makes id 0 padding: it yields the Keras mask. Defaults
            to `False`.
        **kwargs: all else that `keras.layers.Embedding` takes.

    Call arguments:
        inputs: integer, any shape.

    Returns:
        The shape of `inputs` with an axis of `output_dim` behind.

    Masking: makes the mask, with `mask_zero`.

    Raises:
        ValueError: `` Token ids must lie in [0, input_dim)... ``

    Example:

    >>> layer = kseq.layers.Embedding(30, 4, mask_zero=True)
    >>> tuple(layer(np.array([[5, 6, 0]])).shape)
    (1, 3, 4)
    """

    def call(self, inputs: Tensor) -> Tensor:
        if not is_concrete(inputs):
            inputs = ops.clip(inputs, 0, self.input_dim - 1)
        elif 0 not in inputs.shape:
            low, high = int(ops.min(inputs)), int(ops.max(inputs))
            if low < 0 or high >= self.input_dim:
                raise ValueError(
                    message(
                        "Token ids must lie in [0, input_dim).",
                        fix="Is a word in the data that the vocabulary lacks?",
                        smallest=low,
                        largest=high,
                        input_dim=self.input_dim,
                    )
                )
        return super().call(inputs)
