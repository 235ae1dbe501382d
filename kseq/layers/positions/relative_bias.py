"""What biases of attention by distance share."""

from typing import Any

import keras

from kseq._checks import check_size
from kseq._typing import Shape, Tensor


class RelativeBias(keras.layers.Layer):
    """Base: maps key position - query position to a term added to the scores.

    A subclass gives `call`, from int `(...)` to `bias_dtype` `(H, ...)`. The heads
    stand first, so that one bias `(H, T, S)` serves all rows of a batch.
    """

    def __init__(self, num_heads: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_heads = check_size("num_heads", num_heads)

    @property
    def bias_dtype(self) -> str:
        """At least float32, as the scores."""
        return keras.backend.result_type(self.compute_dtype, "float32")

    def build(self, relative_positions_shape: Shape) -> None:
        del relative_positions_shape

    def compute_output_spec(self, relative_positions: Tensor) -> keras.KerasTensor:
        """The symbolic bias."""
        shape = self.compute_output_shape(relative_positions.shape)
        return keras.KerasTensor(shape, self.bias_dtype)

    def compute_output_shape(self, relative_positions_shape: Shape) -> Shape:
        return (self.num_heads, *relative_positions_shape)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_heads": self.num_heads}
