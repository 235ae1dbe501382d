"""What single-head attention over a memory shares: masks, softmax, context."""

from typing import Any

import keras
import numpy as np
from keras import ops

from kseq._checks import check_mask, check_rank, message
from kseq._typing import Shape, Tensor
from kseq.layers.attention.capture import record
from kseq.ops import combine_masks, masked_softmax, zero_padding


class MemoryAttention(keras.layers.Layer):
    """Base: a subclass projects the memory once, and scores a query against it.

        w = softmax(score(query, key) masked);  context = w value

    `project_memory` makes the keys from the value; `scores` compares queries with
    keys, and `attend` makes the weights. A caller that asks about one memory many
    times, as a decoder does at each step, projects it once and passes
    `projected_value`.

    What goes from query to query is the `alignment`, a list of tensors `(B, S)`: none
    here, where no query knows of another (see `AlignedAttention`). A caller that asks
    one query at a time takes it from `first_alignment`, passes it, and moves it on
    with `next_alignment`.
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
        """Weights `(B, T, S)`; `mask` is broadcastable to them, True where seen."""
        del alignment, query_mask, training
        return masked_softmax(self.scores(query, key), mask)

    def initial_alignment(self, value: Tensor) -> list[Tensor]:
        """The alignment before the first query of a memory `(B, S, D)`."""
        del value
        return []

    def next_alignment(self, alignment: list[Tensor], weights: Tensor) -> list[Tensor]:
        """The alignment after a query that had the weights `(B, S)`."""
        del weights
        return alignment

    def first_alignment(
        self, value: Tensor, alignment: list[Tensor] | None = None
    ) -> list[Tensor]:
        """`alignment`, checked; where it is None or empty, the initial one.

        Raises:
            ValueError: `` `alignment` must hold one tensor of shape (B, S)... ``
        """
        initial = self.initial_alignment(value)
        if not alignment:
            return initial
        shapes = [tuple(x.shape) for x in alignment]
        fits = [len(s) == 2 and _agree(s[1], value.shape[1]) for s in shapes]
        if len(shapes) != len(initial) or not all(fits):
            which = "be empty" if not initial else "hold one tensor of shape (B, S)"
            raise ValueError(
                message(
                    f"`alignment` must {which} for {type(self).__name__}.",
                    shapes=shapes,
                    value_shape=tuple(value.shape),
                )
            )
        return [ops.cast(x, self.weights_dtype) for x in alignment]

    @property
    def weights_dtype(self) -> str:
        """Dtype of the attention weights: at least float32."""
        return keras.backend.result_type(self.compute_dtype, "float32")

    def in_step(self, weight: keras.Variable) -> Tensor:
        """The value of `weight` in the dtype of the computation.

        TensorFlow traces a loop's step once more for the gradient, when the scope in
        which Keras casts weights by itself is closed.
        """
        return ops.cast(weight.value, self.compute_dtype)

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
        alignment: list[Tensor] | None = None,
        training: bool = False,
    ) -> Any:
        check_rank("query", query, (3,), "(B, T, Q)")
        check_rank("value", value, (3,), "(B, S, D)")
        if attention_mask is not None:
            check_rank("attention_mask", np.shape(attention_mask), (3,), "(B, T, S)")
        query_mask = check_mask("query_mask", query_mask)
        value_mask = check_mask("value_mask", value_mask)
        mask = combine_masks(value_mask=value_mask, attention_mask=attention_mask)
        # a NaN in the padding must not reach the gradient of a weight; a padded
        # query sees what others see, so its output is unspecified but finite
        query = zero_padding(query, query_mask, "query_mask")
        value = zero_padding(value, value_mask, "value_mask")
        # already so, unless the layer keeps Keras from casting its arguments
        query, value = (ops.cast(x, self.compute_dtype) for x in (query, value))
        key = self.project_memory(value) if projected_value is None else projected_value
        weights = self.attend(
            query,
            key,
            mask,
            self.first_alignment(value, alignment),
            query_mask=query_mask,
            training=training,
        )  # (B, T, S)
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


def _agree(size: int | None, wanted: int | None) -> bool:
    """Whether they are the same wherever both are known."""
    return None in (size, wanted) or size == wanted
