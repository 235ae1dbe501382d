"""Attention within a window around a predicted place."""

from typing import Any

import keras
from keras import ops

from kseq._checks import check_size
from kseq._typing import Shape, Tensor
from kseq.layers.attention.luong_attention import LuongAttention
from kseq.ops import masked_softmax


@keras.saving.register_keras_serializable(package="kseq")
class LocalAttention(LuongAttention):
    """Local attention with predicted alignment, local-p (Luong et al.).

        p_t = S sigmoid(v_p . tanh(W_p q_t))
        w_ts = softmax(e_t)_s exp(-(s - p_t)^2 / (2 sigma^2)),  sigma = D / 2
        c_t = sum_s w_ts h_s

    e is the score of `kseq.layers.LuongAttention`. The softmax runs over the entries
    within D of p_t, which alone have a weight: the paper's alignment vector has 2D + 1
    entries. The Gaussian is not divided out, so the weights sum to less than 1.

    Each query predicts its place by itself, and S and s count what it may see: S is
    the number of real entries of its row, s the number of real ones before the entry.
    W_p is `position_dense` `(Q, Q)` and v_p is `position_scale` `(Q,)`.

    Args:
        radius: int. D, in entries of the memory. Defaults to `10`, as in the paper.
        score: `"dot"` or `"general"`. Defaults to `"general"`.
        scaled: bool. True learns one scale for all scores. Defaults to `False`.
        kernel_initializer: initializer of W, W_p and v_p. Defaults to
            `"glorot_uniform"`.

    Call arguments, Returns: those of `kseq.layers.LuongAttention`.

    Masking: as `kseq.layers.BahdanauAttention`. Left, right and interior padding do
        not matter, since masked entries are not counted.

    Numerics: place, scores, mask, softmax and Gaussian in at least float32. The
        window's edge has no gradient.

    Raises:
        ValueError: `` `radius` must be a positive integer. `` and those of
            `kseq.layers.LuongAttention`.
        TypeError: `` `value_mask` must be boolean... ``

    Example:

    >>> attention = kseq.layers.LocalAttention(radius=2)
    >>> query, memory = keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 7, 6))
    >>> tuple(attention(query, memory).shape)
    (2, 3, 6)

    References:
        Luong, Pham & Manning, 2015, "Effective approaches to attention-based
        neural machine translation", arXiv:1508.04025, section 3.2, eq. 9 and 10.
    """

    def __init__(
        self,
        radius: int = 10,
        *,
        score: str = "general",
        scaled: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            score, scaled=scaled, kernel_initializer=kernel_initializer, **kwargs
        )
        self.radius = check_size("radius", radius)

    def build(self, query_shape: Shape, value_shape: Shape) -> None:
        super().build(query_shape, value_shape)
        self.position_dense = keras.layers.Dense(
            query_shape[-1],
            activation="tanh",
            use_bias=False,
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name="position_dense",
        )
        self.position_dense.build(query_shape)
        self.position_scale = self.add_weight(
            shape=(query_shape[-1],),
            name="position_scale",
            initializer=self.kernel_initializer.clone(),
        )

    @property
    def step_variables(self) -> list[keras.Variable]:
        """See `MemoryAttention.step_variables`."""
        place = [*self.position_dense.weights, self.position_scale]
        return [*super().step_variables, *place]

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        mask: Tensor | None,
        alignment: list[Tensor],
        *,
        query_mask: Tensor | None,
        training: bool,
    ) -> Tensor:
        """See `MemoryAttention.attend`."""
        del alignment, query_mask, training
        scores = self.scores(query, key)  # (B, T, S)
        seen = ops.ones_like(scores, dtype="bool") if mask is None else mask
        real = ops.cast(seen, scores.dtype)  # counts exactly up to 2^24
        places = ops.cumsum(real, axis=-1) - 1
        length = ops.sum(real, axis=-1, keepdims=True)  # (B, T, 1)
        distances = places - length * self._relative_place(query, scores.dtype)
        near = ops.logical_and(seen, ops.abs(distances) <= self.radius)
        gaussian = ops.exp(-2 * ops.square(distances / self.radius))
        return masked_softmax(scores, near) * gaussian

    def _relative_place(self, query: Tensor, dtype: str) -> Tensor:
        """p_t / S, `(B, T, 1)`."""
        hidden = ops.cast(self.position_dense(query), dtype)
        column = ops.expand_dims(ops.cast(self.in_step(self.position_scale), dtype), 1)
        return ops.sigmoid(ops.matmul(hidden, column))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "radius": self.radius}
