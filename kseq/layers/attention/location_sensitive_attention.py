"""Additive attention that sees where it looked before."""

from typing import Any

import keras
from keras import ops

from kseq._checks import check_size
from kseq._typing import Shape, Tensor
from kseq.layers.attention.aligned_attention import AlignedAttention
from kseq.ops import masked_softmax


@keras.saving.register_keras_serializable(package="kseq")
class LocationSensitiveAttention(AlignedAttention):
    """Additive attention with a convolution over the weights before (Chorowski et al.).

        f_t = F * w_{t-1}                            cumulative=False
        f_t = F * sum_{u < t} w_u                    cumulative=True
        e_ts = v . tanh(W_q q_t + W_k h_s + W_f f_ts + b)
        w_t = softmax(e_t);  c_t = sum_s w_ts h_s

    W_q is `query_dense`, W_k is `memory_dense` and v is `scale`, as in
    `kseq.layers.BahdanauAttention`; F is `location_conv`, centered, zeros beyond the
    ends; W_f and b are `location_dense`. Before the first query w is zeros. The sum
    is the variant of Tacotron 2. (Chorowski et al. also sharpen or smooth the
    softmax, and window it over long memories; that is not here.)

    Args:
        units: int. Width U of the hidden layer that compares query and memory.
        filters: int. How many filters F has. Defaults to `32`.
        kernel_size: int. Their length, in entries of the memory. Defaults to `31`.
        cumulative: bool. True convolves the sum of all weights before. Defaults to
            `False`.
        kernel_initializer: initializer of W_q, W_k, v, F and W_f. Defaults to
            `"glorot_uniform"`.

    Call arguments: those of `kseq.layers.BahdanauAttention`, and
        alignment: list of one float `(B, S)`, the weights that earlier queries left,
            or their sum. None is zeros.

    Returns:
        As `kseq.layers.BahdanauAttention`. The queries of one call are asked in
        order.

    Masking: as `kseq.layers.BahdanauAttention`; after a masked query the weights
        before are still those of the query before it.

    Numerics: scores, mask, softmax and alignment in at least float32.

    Raises:
        ValueError: `` `units` must be a positive integer. `` (`filters` and
            `kernel_size` alike), `` `alignment` must hold one tensor of shape
            (B, S)... ``
        TypeError: `` `value_mask` must be boolean... ``

    Example:

    >>> attention = kseq.layers.LocationSensitiveAttention(
    ...     8, filters=4, kernel_size=5)
    >>> query, memory = keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 7, 6))
    >>> tuple(attention(query, memory).shape)
    (2, 3, 6)

    References:
        Chorowski et al., 2015, "Attention-based models for speech recognition",
        arXiv:1506.07503, eq. 8 and 9; Shen et al., 2018, Tacotron 2,
        arXiv:1712.05884, section 2.2.
    """

    def __init__(
        self,
        units: int,
        *,
        filters: int = 32,
        kernel_size: int = 31,
        cumulative: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(units, kernel_initializer=kernel_initializer, **kwargs)
        self.filters = check_size("filters", filters)
        self.kernel_size = check_size("kernel_size", kernel_size)
        self.cumulative = cumulative
        self.location_conv = keras.layers.Conv1D(
            self.filters,
            self.kernel_size,
            padding="same",
            data_format="channels_last",
            use_bias=False,
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name="location_conv",
        )
        self.location_dense = self._dense("location_dense", use_bias=True)

    def build(self, query_shape: Shape, value_shape: Shape) -> None:
        super().build(query_shape, value_shape)
        self.location_conv.build((None, None, 1))
        self.location_dense.build((None, None, self.filters))

    @property
    def step_variables(self) -> list[keras.Variable]:
        """See `MemoryAttention.step_variables`."""
        location = [*self.location_conv.weights, *self.location_dense.weights]
        return [*super().step_variables, *location]

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
        features = self.location_conv(ops.expand_dims(alignment, -1))  # (B, S, F)
        key = key + self.location_dense(features)  # (B, S, U)
        return masked_softmax(self.scores(query, key), mask)

    def next_alignment(self, alignment: list[Tensor], weights: Tensor) -> list[Tensor]:
        """See `MemoryAttention.next_alignment`: the weights, or the sum of all."""
        return [alignment[0] + weights if self.cumulative else weights]

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "cumulative": self.cumulative,
        }
