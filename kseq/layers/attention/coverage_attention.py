"""Additive attention that knows what it has covered."""

from typing import Any

import keras
from keras import ops

from kseq._typing import Shape, Tensor
from kseq.layers.attention.aligned_attention import AlignedAttention
from kseq.ops import masked_softmax


@keras.saving.register_keras_serializable(package="kseq")
class CoverageAttention(AlignedAttention):
    """Additive attention with coverage (See et al.).

        c_t = sum_{u < t} w_u                                        (the coverage)
        e_ts = v . tanh(W_q q_t + W_k h_s + w_c c_ts + b)
        w_t = softmax(e_t);  context_t = sum_s w_ts h_s

    W_q is `query_dense`, W_k is `memory_dense` and v is `scale`, as in
    `kseq.layers.BahdanauAttention`; w_c is `coverage_scale` `(U,)` and b is `bias`
    `(U,)`. The paper also trains with `kseq.ops.coverage_loss`.

    Args:
        units: int. Width U of the hidden layer that compares query and memory.
        kernel_initializer: initializer of W_q, W_k, v and w_c. Defaults to
            `"glorot_uniform"`.

    Call arguments: those of `kseq.layers.BahdanauAttention`, and
        alignment: list of one float `(B, S)`, the coverage that earlier queries
            left. None is zeros.

    Returns:
        As `kseq.layers.BahdanauAttention`. The queries of one call are asked in
        order.

    Masking: as `kseq.layers.BahdanauAttention`; a masked query covers nothing.

    Numerics: scores, mask, softmax and coverage in at least float32.

    Raises:
        ValueError: `` `units` must be a positive integer. `` and
            `` `alignment` must hold one tensor of shape (B, S)... ``
        TypeError: `` `value_mask` must be boolean... ``

    Example:

    >>> attention = kseq.layers.CoverageAttention(8)
    >>> query, memory = keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 6))
    >>> tuple(attention(query, memory).shape)
    (2, 3, 6)

    References:
        See, Liu & Manning, 2017, "Get to the point: summarization with
        pointer-generator networks", arXiv:1704.04368, section 2.3.
    """

    def __init__(
        self, units: int, *, kernel_initializer: Any = "glorot_uniform", **kwargs: Any
    ) -> None:
        super().__init__(units, kernel_initializer=kernel_initializer, **kwargs)

    def build(self, query_shape: Shape, value_shape: Shape) -> None:
        super().build(query_shape, value_shape)
        self.coverage_scale = self.add_weight(
            shape=(self.units,),
            name="coverage_scale",
            initializer=self.kernel_initializer.clone(),
        )
        self.bias = self.add_weight(
            shape=(self.units,), name="bias", initializer="zeros"
        )

    @property
    def step_variables(self) -> list[keras.Variable]:
        """See `MemoryAttention.step_variables`."""
        return [*super().step_variables, self.coverage_scale, self.bias]

    def align(
        self,
        query: Tensor,
        key: Tensor,
        mask: Tensor | None,
        alignment: Tensor,
        training: bool,
    ) -> Tensor:
        """See `AlignedAttention.align`."""
        del training
        coverage = ops.expand_dims(ops.cast(alignment, key.dtype), -1)  # (B, S, 1)
        key = key + coverage * self.in_step(self.coverage_scale)
        key = key + self.in_step(self.bias)  # (B, S, U)
        return masked_softmax(self.scores(query, key), mask)

    def next_alignment(self, alignment: list[Tensor], weights: Tensor) -> list[Tensor]:
        """See `MemoryAttention.next_alignment`: the sum of all weights."""
        return [alignment[0] + weights]
