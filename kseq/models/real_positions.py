"""Positions of tokens among those of their row that are no padding."""

from typing import Any

import keras
from keras import ops

from kseq._checks import message
from kseq._typing import Tensor


@keras.saving.register_keras_serializable(package="kseq")
class RealPositions(keras.layers.Layer):
    """Counts the tokens of a row; padding, id 0, does not count.

        p_t = max(0, sum_{s <= t} 1[id_s != 0] - 1)

    So a row has the same positions, whatever side its padding is on.

    Args:
        limit: int, the most columns of a row, as many as there are learned positions.
            None is no limit.
    """

    def __init__(self, limit: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.limit = limit

    def call(self, token_ids: Tensor) -> Tensor:
        length = token_ids.shape[1]
        if None not in (self.limit, length) and length > self.limit:
            raise ValueError(
                message(
                    f"Positions must lie in [0, {self.limit}): rows have more tokens "
                    "than there are learned positions.",
                    tokens=length,
                )
            )
        real = ops.cast(ops.not_equal(token_ids, 0), "int32")
        return ops.maximum(ops.cumsum(real, axis=1) - 1, 0)

    def compute_output_spec(self, token_ids: Any) -> keras.KerasTensor:
        return keras.KerasTensor(token_ids.shape, "int32")

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "limit": self.limit}
