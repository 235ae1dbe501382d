"""Multiplicative attention."""

from typing import Any

import keras
from keras import ops

from kseq._checks import check_choice, message
from kseq._typing import Shape, Tensor
from kseq.layers.attention.base import MemoryAttention
from kseq.ops import dot_scores


@keras.saving.register_keras_serializable(package="kseq")
class LuongAttention(MemoryAttention):
    """Multiplicative attention of queries over a memory (Luong et al.).

        e_ts = q_t . h_s                 score="dot"
        e_ts = q_t . W h_s               score="general"
        w_t = softmax(g e_t);  c_t = sum_s w_ts h_s

    W is `memory_dense` `(D, Q)`; g is 1, or with `scaled` the learned scalar
    `gain`, first 1. "dot" needs query and memory of one width.

    Args:
        score: `"dot"` or `"general"`. Defaults to `"general"`.
        scaled: bool. True learns one scale for all scores. Defaults to `False`.
        kernel_initializer: initializer of W. Defaults to `"glorot_uniform"`.

    Call arguments, Returns, Masking, Numerics: those of
        `kseq.layers.BahdanauAttention`; `projected_value` is `(B, S, Q)`.

    Raises:
        ValueError: `` `score` must be one of 'dot', 'general'. `` and
            `` The dot score needs query and value of one width... ``
        TypeError: `` `value_mask` must be boolean... ``

    Example:

    >>> attention = kseq.layers.LuongAttention("general")
    >>> query, memory = keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 6))
    >>> tuple(attention(query, memory).shape)
    (2, 3, 6)

    References:
        Luong, Pham & Manning, 2015, "Effective approaches to attention-based
        neural machine translation", arXiv:1508.04025, eq. 8.
    """

    def __init__(
        self,
        score: str = "general",
        *,
        scaled: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.score = check_choice("score", score, ["dot", "general"])
        self.scaled = scaled
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape: Shape, value_shape: Shape) -> None:
        if self.score == "general":
            self.memory_dense = keras.layers.Dense(
                query_shape[-1],
                use_bias=False,
                kernel_initializer=self.kernel_initializer.clone(),
                dtype=self.dtype_policy,
                name="memory_dense",
            )
            self.memory_dense.build(value_shape)
        elif query_shape[-1] != value_shape[-1]:
            raise ValueError(
                message(
                    "The dot score needs query and value of one width.",
                    fix='Use score="general".',
                    query_shape=tuple(query_shape),
                    value_shape=tuple(value_shape),
                )
            )
        if self.scaled:
            self.gain = self.add_weight(shape=(), name="gain", initializer="ones")

    def project_memory(self, value: Tensor) -> Tensor:
        """`W h_s` (general) or `h_s` itself (dot), `(B, S, Q)`."""
        return self.memory_dense(value) if self.score == "general" else value

    @property
    def step_variables(self) -> list[keras.Variable]:
        """See `MemoryAttention.step_variables`."""
        return [self.gain] if self.scaled else []

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """See `MemoryAttention.scores`."""
        scores = dot_scores(query, key)
        return scores * ops.cast(self.gain, scores.dtype) if self.scaled else scores

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "score": self.score,
            "scaled": self.scaled,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
