"""Multi-head attention of linear cost."""

from typing import Any

import keras
from keras import ops

from kseq._checks import check_mask, check_rank
from kseq._typing import Shape, Tensor
from kseq.layers.attention.multi_head import MultiHead, key_value_mask
from kseq.ops import linear_attention, zero_padding


@keras.saving.register_keras_serializable(package="kseq")
class LinearAttention(MultiHead):
    """Multi-head linear attention (Katharopoulos et al.).

        q_t = x_t W_q + b_q;  k_s = m_s W_k + b_k;  v_s = m'_s W_v + b_v
        c_t = sum_s (f(q_t) . f(k_s)) v_s / sum_s f(q_t) . f(k_s)    in each head
        y_t = c_t W_o + b_o,   f(x) = elu(x) + 1

    x is `query`, m is `key` and m' is `value`. W_q is `query_dense` `(D, H, K)`,
    W_k is `key_dense` `(D, G, K)`, W_v is `value_dense` `(D, G, V)` and W_o is
    `output_dense` `(H, V, O)`: the weights of `keras.layers.MultiHeadAttention`, in
    its order. Products of positive features stand in the place of the softmax, so
    that time and memory grow with T, not with T^2, and that the past of a causal
    layer is a state of fixed size: `kseq.ops.linear_attention` says how. There are
    no attention weights to return, and no positions: add them to the inputs.

    Args:
        num_heads: int, H.
        key_dim: int. Width K of a head's queries and keys.
        value_dim: int. Width V of a head's values. None means `key_dim`.
        num_key_value_heads: int, G, which divides `num_heads`: head h reads key and
            value head h // (H / G). None means `num_heads`.
        use_bias: bool. Defaults to `True`.
        output_shape: int. Width O of the output. None means that of the query.
        kernel_initializer: Defaults to `"glorot_uniform"`.
        bias_initializer: Defaults to `"zeros"`.

    Call arguments:
        query: float `(B, T, D)`.
        value: float `(B, S, D')`.
        key: float `(B, S, D'')`. None means `value`.
        query_mask: bool `(B, T)`. True is a real query; a padded one's output is
            finite and otherwise unspecified.
        value_mask: bool `(B, S)`. True is a real entry.
        key_mask: bool `(B, S)`. As `value_mask`; an entry counts where both are True.
        use_causal_mask: bool. True lets query t see s <= t only, and needs S = T.
            Defaults to `False`.
        state: what `initial_state(batch_size)` or the call before returned, to go
            through a stream in calls of any length. A call with a state is causal,
            whatever `use_causal_mask` says.

    Returns:
        `(B, T, O)`; with `state` the tuple of it and the new state, at least float32.

    Masking: the masks are filled from the Keras masks. What they mask may hold
        anything, NaN included; a masked entry contributes nothing, to the state
        neither. A query that sees nothing gets c = 0. The query's mask is passed on.

    Numerics: features, sums and state in at least float32, whatever the policy.

    Raises:
        ValueError: `` `num_heads` must be a positive integer. `` (each size alike),
            `` `num_key_value_heads` must divide `num_heads`. ``,
            `` `query` must have shape (B, T, D). `` and those of
            `kseq.ops.linear_attention`.
        TypeError: `` `value_mask` must be boolean... `` (each mask alike).

    Example:

    >>> layer = kseq.layers.LinearAttention(num_heads=2, key_dim=3)
    >>> x = keras.ops.ones((1, 5, 4))
    >>> tuple(layer(x, x, use_causal_mask=True).shape)
    (1, 5, 4)
    >>> y, state = layer(x, x, state=layer.initial_state(batch_size=1))
    >>> y_6, state = layer(x[:, :1], x[:, :1], state=state)

    References:
        Katharopoulos et al., 2020, "Transformers are RNNs: fast autoregressive
        transformers with linear attention", arXiv:2006.16236, sections 3.2 to 3.4.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        *,
        value_dim: int | None = None,
        num_key_value_heads: int | None = None,
        use_bias: bool = True,
        output_shape: int | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            num_heads,
            key_dim,
            value_dim,
            num_key_value_heads=num_key_value_heads,
            use_bias=use_bias,
            output_shape=output_shape,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            # Keras would round the state to the compute dtype; the projections cast
            # their own inputs
            autocast=False,
            **kwargs,
        )

    def build(
        self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None
    ) -> None:
        self.build_projections(query_shape, value_shape, key_shape)

    @property
    def state_dtype(self) -> str:
        """Dtype of the state: at least float32."""
        return keras.backend.result_type(self.compute_dtype, "float32")

    def initial_state(self, batch_size: Any) -> tuple[Tensor, Tensor]:
        """The state before the first step: zeros."""
        keys = (batch_size, self.num_key_value_heads, self.key_dim)
        sums = ops.zeros((*keys, self.value_dim), self.state_dtype)
        return sums, ops.zeros(keys, self.state_dtype)

    def call(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor | None = None,
        query_mask: Tensor | None = None,
        value_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        use_causal_mask: bool = False,
        state: tuple[Tensor, Tensor] | None = None,
    ) -> Any:
        check_rank("query", query, (3,), "(B, T, D)")
        check_rank("value", value, (3,), "(B, S, D)")
        if key is not None:
            check_rank("key", key, (3,), "(B, S, D)")
        query_mask = check_mask("query_mask", query_mask)
        mask = key_value_mask(value_mask, key_mask)
        # a NaN in the padding must not reach the gradient of a weight
        query = zero_padding(query, query_mask, "query_mask")
        value = zero_padding(value, mask, "value_mask")
        key = value if key is None else zero_padding(key, mask, "key_mask")
        result = linear_attention(
            self.query_dense(query),
            self.key_dense(key),
            self.value_dense(value),
            value_mask=mask,
            use_causal_mask=use_causal_mask,
            state=state,
        )
        if state is None:
            return self.output_dense(result)
        contexts, state = result
        return self.output_dense(contexts), state

    def compute_output_spec(
        self, query: Any, value: Any, *args: Any, state: Any = None, **kwargs: Any
    ) -> Any:
        """Symbolic outputs: y, and the new state where there is one."""
        del args, kwargs
        shape = self.compute_output_shape(query.shape, value.shape)
        y = keras.KerasTensor(shape, self.compute_dtype)
        if state is None:
            return y
        return y, tuple(keras.KerasTensor(x.shape, self.state_dtype) for x in state)
