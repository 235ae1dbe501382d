"""An embedding that does not take ids it has no row for, and runs backwards."""

from typing import Any

import keras
from keras import ops

from kseq._checks import message
from kseq._typing import Shape, Tensor
from kseq.backend import dense_gradient, is_concrete


@keras.saving.register_keras_serializable(package="kseq")
class Embedding(keras.layers.Embedding):
    """Looks up a row of a table for each token id; in reverse, scores all tokens.

        y = table[id],  0 <= id < input_dim
        z = h table^T                          with `reverse=True`

    `keras.layers.Embedding`, except for an id out of range, for which that one
    raises TensorFlow's error, or returns NaN, or another row, by backend and
    compilation. Here an eager call raises; in a compiled program, which can't, the
    id is clamped to [0, input_dim). Called in reverse it is the output projection of
    a language model whose weights are tied (Press & Wolf, 2017).

    Args:
        input_dim: int. Number of ids.
        output_dim: int. Width of a row.
        mask_zero: bool. True makes id 0 padding: it yields the Keras mask. Defaults
            to `False`.
        **kwargs: all else that `keras.layers.Embedding` takes.

    Call arguments:
        inputs: integer, any shape; in reverse float `(..., output_dim)`.
        reverse: bool. Defaults to `False`.

    Returns:
        The shape of `inputs` with an axis of `output_dim` behind; in reverse logits
        `(..., input_dim)`. Both in the compute dtype.

    Masking: makes the mask, with `mask_zero`; in reverse passes on that of `inputs`.

    Raises:
        ValueError: `` Token ids must lie in [0, input_dim)... `` and, in reverse,
            `` `inputs` must be as wide as a row... ``

    Example:

    >>> layer = kseq.layers.Embedding(30, 4, mask_zero=True)
    >>> h = layer(np.array([[5, 6, 0]]))
    >>> tuple(h.shape), tuple(layer(h, reverse=True).shape)
    ((1, 3, 4), (1, 3, 30))

    References:
        Press & Wolf, 2017, "Using the output embedding to improve language models",
        arXiv:1608.05859.
    """

    def __init__(self, input_dim: int, output_dim: int, **kwargs: Any) -> None:
        super().__init__(input_dim, output_dim, **kwargs)
        self.supports_masking = True
        self._reversed = False

    def __call__(self, inputs: Tensor, reverse: bool = False, **kwargs: Any) -> Tensor:
        # Keras does not tell `compute_mask` which way a call goes
        self._reversed = reverse
        try:
            return super().__call__(inputs, reverse=reverse, **kwargs)
        finally:
            self._reversed = False

    def call(self, inputs: Tensor, reverse: bool = False) -> Tensor:
        if reverse:
            self.compute_output_shape(inputs.shape, reverse=True)
            table = ops.cast(self.embeddings, self.compute_dtype)
            hidden = ops.cast(inputs, self.compute_dtype)
            return ops.matmul(hidden, ops.transpose(table))
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
        table = dense_gradient(self.embeddings)
        rows = ops.take(table, ops.cast(inputs, "int32"), axis=0)
        return ops.cast(rows, self.compute_dtype)

    def compute_mask(self, inputs: Tensor, mask: Tensor | None = None) -> Any:
        return mask if self._reversed else super().compute_mask(inputs, mask)

    def compute_output_shape(self, input_shape: Shape, reverse: bool = False) -> Shape:
        if not reverse:
            return super().compute_output_shape(input_shape)
        if input_shape[-1] != self.output_dim:
            raise ValueError(
                message(
                    "`inputs` must be as wide as a row, where `reverse=True`.",
                    inputs_shape=tuple(input_shape),
                    output_dim=self.output_dim,
                )
            )
        return (*input_shape[:-1], self.input_dim)

    def compute_output_spec(self, inputs: Tensor, reverse: bool = False) -> Any:
        if not reverse:
            return super().compute_output_spec(inputs)
        shape = self.compute_output_shape(inputs.shape, reverse=True)
        return keras.KerasTensor(shape, dtype=self.compute_dtype)
