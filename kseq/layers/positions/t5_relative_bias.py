"""The relative position bias of T5."""

from typing import Any

import keras
from keras import ops

from kseq._typing import Shape, Tensor
from kseq.layers.positions.relative_bias import RelativeBias
from kseq.ops.relative_bias import check_bucket_sizes, relative_buckets


@keras.saving.register_keras_serializable(package="kseq")
class T5RelativeBias(RelativeBias):
    """A learned bias of attention for each head and bucket of distances.

        b_h(q, k) = table[bucket(k - q), h]

    with the buckets of `kseq.ops.relative_buckets`; the table is `embeddings`
    `(num_buckets, H)`. T5 itself does not scale its scores by 1 / sqrt(K): use an
    attention of `scale=1` for its weights. All of its layers share one such bias: let
    a model class of your own hold it. A functional model, when saved, loses what two
    of its layers have in common inside them, as it does with any Keras layer.

    Args:
        num_heads: int. H.
        num_buckets: int. Rows of the table. Defaults to `32`.
        max_distance: int. Distances from here on share the last bucket, in tokens.
            Defaults to `128`.
        bidirectional: bool. True for an encoder: half of the buckets are for keys
            after the query. False for a decoder. Defaults to `True`.
        embeddings_initializer: initializer of the table. Defaults to
            `"glorot_uniform"`.

    Call arguments:
        relative_positions: int, any shape `(...)`. Key position - query position.

    Returns:
        `(H, ...)`, float32 or better whatever the policy; added to the scores.

    Masking: none; distances are no tokens.

    Raises:
        ValueError: `` `num_heads` must be a positive integer. ``,
            `` `num_buckets` must be... `` and
            `` `max_distance` must be greater than the distances with a bucket of
            their own... ``
        TypeError: `` `relative_positions` must be integers. ``

    Example:

    >>> bias = kseq.layers.T5RelativeBias(2)
    >>> query, key = np.arange(3)[:, None], np.arange(5)
    >>> tuple(bias(key - query).shape)
    (2, 3, 5)

    References:
        Raffel et al., 2020, "Exploring the limits of transfer learning with a unified
        text-to-text transformer", arXiv:1910.10683, section 2.1.
    """

    def __init__(
        self,
        num_heads: int,
        *,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        embeddings_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, **kwargs)
        check_bucket_sizes(num_buckets, max_distance, bidirectional)
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    def build(self, relative_positions_shape: Shape) -> None:
        del relative_positions_shape
        self.embeddings = self.add_weight(
            shape=(self.num_buckets, self.num_heads),
            initializer=self.embeddings_initializer,
            name="embeddings",
            autocast=False,  # the bias is at least float32
        )

    def call(self, relative_positions: Tensor) -> Tensor:
        buckets = relative_buckets(
            relative_positions, self.num_buckets, self.max_distance, self.bidirectional
        )
        rows = ops.take(self.embeddings, buckets, axis=0)  # (..., H)
        return ops.cast(ops.moveaxis(rows, -1, 0), self.bias_dtype)  # (H, ...)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_buckets": self.num_buckets,
            "max_distance": self.max_distance,
            "bidirectional": self.bidirectional,
            "embeddings_initializer": keras.initializers.serialize(
                self.embeddings_initializer
            ),
        }
