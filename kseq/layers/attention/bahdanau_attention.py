"""Additive attention."""

from typing import Any

import keras
from keras import ops

from kseq._checks import check_size
from kseq._typing import Shape, Tensor
from kseq.layers.attention.base import MemoryAttention
from kseq.ops import additive_scores


@keras.saving.register_keras_serializable(package="kseq")
class BahdanauAttention(MemoryAttention):
    """Additive attention of queries over a memory (Bahdanau et al.).

        e_ts = v . tanh(W_q q_t + W_k h_s)                  normalize=False
        e_ts = g v/|v| . tanh(W_q q_t + W_k h_s + b)        normalize=True
        w_t = softmax(e_t);  c_t = sum_s w_ts h_s

    W_q is `query_dense` `(Q, U)`, W_k is `memory_dense` `(D, U)`, v is `scale`
    `(U,)`, g is `gain` (a scalar, first sqrt(1/U)) and b is `bias` `(U,)`. Query
    and memory may differ in width. `keras.layers.AdditiveAttention` has v alone
    and no projections.

    Args:
        units: int. Width U of the hidden layer that compares query and memory.
        normalize: bool. True gives the weight-normalized form (Salimans & Kingma,
            2016) of Raffel et al. (2017, eq. 13). Defaults to `False`.
        kernel_initializer: initializer of W_q, W_k and v. Defaults to
            `"glorot_uniform"`.

    Call arguments:
        query: float `(B, T, Q)`.
        value: float `(B, S, D)`, the memory.
        query_mask: bool `(B, T)`. True is a real query; a padded one's output is
            finite and otherwise unspecified.
        value_mask: bool `(B, S)`. True is a real memory entry.
        attention_mask: bool `(B, T, S)`. True where query t may see entry s.
        projected_value: float `(B, S, U)`, what `project_memory(value)` returned,
            to project a memory once and ask about it many times.
        return_attention_scores: bool. True returns the weights too.
        alignment, training: taken by every attention; not used here.

    Returns:
        The context `(B, T, D)`; with `return_attention_scores` the tuple of it and
        the weights `(B, T, S)`, at least float32.

    Masking: `query_mask` and `value_mask` are filled from the Keras masks. What they
        mask may hold anything, NaN included. A masked entry gets weight 0. A query
        that may see nothing gets weights 0 and context 0. The query's mask is
        passed on.

    Numerics: scores, mask and softmax in at least float32.

    Raises:
        ValueError: `` `units` must be a positive integer. ``,
            `` `query` must have shape (B, T, Q). ``
        TypeError: `` `value_mask` must be boolean... ``

    Example:

    >>> attention = kseq.layers.BahdanauAttention(8)
    >>> query, memory = keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 6))
    >>> context, weights = attention(query, memory, return_attention_scores=True)
    >>> tuple(context.shape), tuple(weights.shape)
    ((2, 3, 6), (2, 3, 5))

    References:
        Bahdanau, Cho & Bengio, 2015, "Neural machine translation by jointly
        learning to align and translate", arXiv:1409.0473, appendix A.1.2.
    """

    def __init__(
        self,
        units: int,
        *,
        normalize: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = check_size("units", units)
        self.normalize = normalize
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.query_dense = self._dense("query_dense")
        self.memory_dense = self._dense("memory_dense")

    def _dense(self, name: str, *, use_bias: bool = False) -> keras.layers.Dense:
        return keras.layers.Dense(
            self.units,
            use_bias=use_bias,
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, query_shape: Shape, value_shape: Shape) -> None:
        self.query_dense.build(query_shape)
        self.memory_dense.build(value_shape)
        self.scale = self.add_weight(
            shape=(self.units,),
            name="scale",
            initializer=self.kernel_initializer.clone(),
        )
        if self.normalize:
            self.gain = self.add_weight(
                shape=(),
                name="gain",
                initializer=keras.initializers.Constant(self.units**-0.5),
            )
            self.bias = self.add_weight(
                shape=(self.units,), name="bias", initializer="zeros"
            )

    def project_memory(self, value: Tensor) -> Tensor:
        """`W_k h_s`, `(B, S, U)`, of a memory `(B, S, D)`."""
        return self.memory_dense(value)

    @property
    def step_variables(self) -> list[keras.Variable]:
        """See `MemoryAttention.step_variables`."""
        own = [self.scale, self.gain, self.bias] if self.normalize else [self.scale]
        return [*self.query_dense.weights, *own]

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """See `MemoryAttention.scores`."""
        projected, scale = self.query_dense(query), self.in_step(self.scale)
        if self.normalize:
            projected = projected + self.in_step(self.bias)
            compute = ops.cast(scale, self.weights_dtype)
            gain = ops.cast(self.in_step(self.gain), self.weights_dtype)
            scale = gain * compute * ops.rsqrt(ops.sum(ops.square(compute)))
        return additive_scores(projected, key, scale)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "normalize": self.normalize,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
