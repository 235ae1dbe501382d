"""Learned position embedding."""

from typing import Any

import keras
import numpy as np
from keras import ops

from kseq._checks import check_rank, check_size, message
from kseq._typing import Shape, Tensor
from kseq.backend import is_concrete
from kseq.ops.token_positions import token_positions


@keras.saving.register_keras_serializable(package="kseq")
class PositionEmbedding(keras.layers.Layer):
    """A learned vector for each position, to be added to the embeddings.

        y_p = table[p],  0 <= p < L

    and, stretched over N = `interpolated_length` positions, with linear interpolation
    between the rows of the table:

        y_p = (1 - f) table[r] + f table[r + 1],  r + f = p (L - 1) / (N - 1)

    The table is `embeddings` `(L, D)`. Like the KerasHub layer of that name it returns
    the embedding alone. Add it with `keras.layers.Add`, which keeps the Keras mask; a
    plain `+` drops it.

    A position from L on (N if that is given) has no row. Where it is known when the
    layer is built, traced or called eagerly, it is an error; in a compiled program,
    which can't raise one, it gets the last row.

    Args:
        sequence_length: int. L, the number of rows.
        interpolated_length: int, at least L. N, the number of positions that the rows
            are stretched over. Defaults to `None`, no stretching.
        embeddings_initializer: initializer of the table. Defaults to
            `"glorot_uniform"`.

    Call arguments:
        inputs: float `(B, T, D)`. Only its shape is read.
        positions: int `(T,)` or `(B, T)`. The position of each token. Defaults to
            `None`: they count up from `start_index`.
        start_index: int, a scalar or `(B,)`. The position of the first token.
            Defaults to `0`.

    Returns:
        `(B, T, D)`.

    Masking: the mask is passed on. Padding counts as tokens do: after padding on the
        left give `positions`.

    Numerics: interpolated in float32 or better whatever the policy.

    Raises:
        ValueError: `` Positions must lie in [0, ...) ``,
            `` `sequence_length` must be a positive integer. ``,
            `` `interpolated_length` must be at least `sequence_length`. ``,
            `` `inputs` must have shape (B, T, D). ``, and what `positions` and
            `start_index` must not be: negative (when eager), of another shape, or
            both given.
        TypeError: `` `positions` must be integers. `` (`start_index` alike)

    Example:

    >>> x = kseq.layers.Embedding(30, 8, mask_zero=True)(np.array([[5, 6, 0]]))
    >>> x = keras.layers.Add()([x, kseq.layers.PositionEmbedding(512)(x)])
    >>> tuple(x.shape)
    (1, 3, 8)

    References:
        Gehring et al., 2017, "Convolutional sequence to sequence learning",
        arXiv:1705.03122, section 3.1.
    """

    def __init__(
        self,
        sequence_length: int,
        *,
        interpolated_length: int | None = None,
        embeddings_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.sequence_length = check_size("sequence_length", sequence_length)
        if (
            interpolated_length is not None
            and check_size("interpolated_length", interpolated_length) < sequence_length
        ):
            raise ValueError(
                message(
                    "`interpolated_length` must be at least `sequence_length`.",
                    interpolated_length=interpolated_length,
                    sequence_length=sequence_length,
                )
            )
        self.interpolated_length = interpolated_length
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.supports_masking = True

    @property
    def num_positions(self) -> int:
        """How many positions have an embedding: L, or N if that is given."""
        return self.interpolated_length or self.sequence_length

    def build(self, inputs_shape: Shape, positions_shape: Shape | None = None) -> None:
        check_rank("inputs", inputs_shape, (3,), "(B, T, D)")
        if positions_shape is None:
            self._check_last((inputs_shape[1] or 0) - 1)
        self.embeddings = self.add_weight(
            shape=(self.sequence_length, inputs_shape[-1]),
            initializer=self.embeddings_initializer,
            name="embeddings",
            autocast=False,  # rows are cast, not the table
        )

    def call(
        self,
        inputs: Tensor,
        positions: Tensor | None = None,
        start_index: Tensor | int = 0,
    ) -> Tensor:
        if positions is None:
            start = start_index if isinstance(start_index, int) else 0
            self._check_last(start + (inputs.shape[1] or 0) - 1)
        positions = token_positions(inputs, positions, start_index)
        if not is_concrete(positions):
            positions = ops.clip(positions, 0, self.num_positions - 1)
        elif 0 not in positions.shape:
            self._check_last(int(ops.max(positions)))
        rows = ops.cast(self._rows(positions), self.compute_dtype)
        return ops.broadcast_to(rows, ops.shape(inputs))

    def _check_last(self, last: int) -> None:
        if last >= self.num_positions:
            raise ValueError(
                message(
                    f"Positions must lie in [0, {self.num_positions}).",
                    fix="`interpolated_length` stretches the table over more.",
                    largest=last,
                    sequence_length=self.sequence_length,
                    interpolated_length=self.interpolated_length,
                )
            )

    def _rows(self, positions: Tensor) -> Tensor:
        """`(T, D)` or `(B, T, D)`."""
        if self.interpolated_length is None:
            return ops.take(self.embeddings, positions, axis=0)
        last = self.sequence_length - 1
        places = np.linspace(0, last, self.interpolated_length)
        below = np.floor(places)
        row = ops.take(below.astype("int32"), positions)
        compute = keras.backend.result_type(self.variable_dtype, "float32")
        share = ops.take((places - below).astype(compute), positions)
        share = ops.expand_dims(share, -1)  # (T, 1) or (B, T, 1)
        above = ops.minimum(row + 1, last)
        first, second = (
            ops.cast(ops.take(self.embeddings, rows, axis=0), compute)
            for rows in (row, above)
        )
        return (1 - share) * first + share * second

    def compute_output_shape(
        self, inputs_shape: Shape, positions_shape: Shape | None = None
    ) -> Shape:
        return inputs_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "sequence_length": self.sequence_length,
            "interpolated_length": self.interpolated_length,
            "embeddings_initializer": keras.initializers.serialize(
                self.embeddings_initializer
            ),
        }
