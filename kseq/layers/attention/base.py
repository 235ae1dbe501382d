"""What single-head attention over a memory shares: masks, softmax, context."""

from typing import Any

import keras
from keras import ops

from kseq._checks import check_mask, check_rank
from kseq._typing import Shape, Tensor
from kseq.layers.attention.capture import record
from kseq.ops import combine_masks, masked_softmax, zero_padding


class MemoryAttention(keras.layers.Layer):
    """Base: a subclass projects the memory once, and scores a query against it.

        w = softmax(score(query, key) masked);  context = w value

    `project_memory` makes the keys from the value; `scores` compares queries with
    keys. A caller that asks about one memory many times, as a decoder does at each
    step, projects it once and passes `projected_value`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def project_memory(self, value: Tensor) -> Tensor:
        """Keys `(B, S, K)` of the memory `(B, S, D)`."""
        raise NotImplementedError(f"{type(self).__name__} must make the keys.")

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores `(B, T, S)` of queries `(B, T, Q)` against keys."""
        raise NotImplementedError(f"{type(self).__name__} must compute scores.")

    @property
    def weights_dtype(self) -> str:
        """Dtype of the attention weights: at least float32."""
        return keras.backend.result_type(self.compute_dtype, "float32")

    @property
    def step_variables(self) -> list[keras.Variable]:
        """The weights that a call with `projected_value` reads."""
        raise NotImplementedError(f"{type(self).__name__} must list its weights.")

    def call(
        self,
        query: Tensor,
        value: Tensor,
        query_mask: Tensor | None = None,
        value_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        projected_value: Tensor | None = None,
        return_attention_scores: bool = False,
    ) -> Any:
        check_rank("query", query, (3,), "(B, T, Q)")
        check_rank("value", value, (3,), "(B, S, D)")
        query_mask = check_mask("query_mask", query_mask)
        value_mask = check_mask("value_mask", value_mask)
        mask = combine_masks(value_mask=value_mask, attention_mask=attention_mask)
        # a NaN in the padding must not reach the gradient of a weight; a padded
        # query sees what others see, so its output is unspecified but finite
        query = zero_padding(query, query_mask, "query_mask")
        value = zero_padding(value, value_mask, "value_mask")
        key = self.project_memory(value) if projected_value is None else projected_value
        weights = masked_softmax(self.scores(query, key), mask)  # (B, T, S)
        context = ops.matmul(ops.cast(weights, value.dtype), value)  # (B, T, D)
        record(self, weights)
        return (context, weights) if return_attention_scores else context

    def compute_output_spec(
        self,
        query: Any,
        value: Any,
        *masks: Any,
        return_attention_scores: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Symbolic outputs: the context, and the weights when they are asked for."""
        del masks, kwargs
        shape = self.compute_output_shape(query.shape, value.shape)
        context = keras.KerasTensor(shape, self.compute_dtype)
        if not return_attention_scores:
            return context
        weights_shape = (*query.shape[:2], value.shape[1])
        return context, keras.KerasTensor(weights_shape, self.weights_dtype)

    def compute_output_shape(self, query_shape: Shape, value_shape: Shape) -> Shape:
        return (*query_shape[:-1], value_shape[-1])
