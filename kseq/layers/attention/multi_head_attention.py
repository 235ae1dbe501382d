"""Multi-head attention."""

from typing import Any

import keras
from keras import ops

from kseq._checks import check_mask, check_rank, check_rate, check_size, message
from kseq._typing import Shape, Tensor
from kseq.layers.attention.cached_step import cached_step, slot_count
from kseq.layers.attention.call_checks import (
    check_cache,
    check_call,
    check_key_value,
    check_part,
    check_projection,
)
from kseq.layers.attention.capture import record_as, wanted
from kseq.layers.attention.multi_head import MultiHead, key_value_mask
from kseq.layers.attention.score_bias import score_bias
from kseq.layers.positions.relative_bias import RelativeBias
from kseq.layers.positions.rotary_embedding import RotaryEmbedding
from kseq.layers.recurrent.any_cell import part_config
from kseq.ops import zero_padding
from kseq.ops.attention import attention
from kseq.ops.attention_statistics import attention_statistics
from kseq.ops.dot_product_attention import dot_product_attention
from kseq.ops.key_value_cache import KeyValueCache
from kseq.ops.token_positions import check_positions, token_positions


@keras.saving.register_keras_serializable(package="kseq")
class MultiHeadAttention(MultiHead):
    """Multi-head attention: self, cross, grouped, windowed, cached (Vaswani et al.).

        q_h = x W_q,h + b;  k_g = y W_k,g + b;  v_g = z W_v,g + b
        a_h = attention(q_h, k_g, v_g), g = floor(h / (H / G));  sum_h a_h W_o,h + b

    x is `query`, z is `value`, and y is `key` or else `value`; the attention is that
    of `kseq.ops.dot_product_attention`. It is called as
    `keras.layers.MultiHeadAttention` is, and has its weights, in shape and order:
    `layer.set_weights(keras_layer.get_weights())` moves them, from
    `keras.layers.GroupQueryAttention` too. It differs from the Keras layer in this:
    masks hold on every path and the masks of the caller's tensors stay (but `x + y`
    drops a Keras mask: use `keras.layers.Add`); a query that may see nothing gets 0;
    no T x S matrix is held for long sequences; the kernels are drawn as the matrices
    that they are, which makes them larger. Regularizers, constraints,
    `attention_axes` and `flash_attention` are not here, inputs have rank 3,
    `output_shape` is one width, and masks are boolean and of the shapes below.

    Args:
        num_heads: int. H.
        key_dim: int. K, the width of a query and a key per head.
        value_dim: int. V, the width of a value per head. Defaults to `key_dim`.
        num_key_value_heads: int. G, which divides H: fewer than H is grouped-query
            attention, 1 is multi-query attention. Defaults to `num_heads`.
        dropout: float. Probability that a weight is dropped, in [0, 1). Defaults to 0.
        use_bias: bool. Whether the projections have biases. Defaults to `True`.
        output_shape: int. Width of the output. Defaults to that of the query.
        rotary: a `kseq.layers.RotaryEmbedding` that turns queries and keys. None
            turns nothing.
        bias: a relative bias, such as `kseq.layers.AlibiBias` or
            `kseq.layers.T5RelativeBias`, added to the scores. None adds none.
        scale: float. What the query is multiplied by. Defaults to `1 / sqrt(K)`.
        query_key_norm: bool. RMS norm of queries and keys per head, before the
            rotation, with a learned scale. Defaults to `False`.
        soft_cap: float. The scores are bounded to c tanh(e / c). None has no bound.
        window: int. How many keys a query sees, its own included; with
            `use_causal_mask`. None is no window.
        sinks: bool. A learned logit per head that takes weight and gives nothing
            (`sinks`, `(H,)`, first 0). Defaults to `False`.
        blockwise: bool. True never holds the T x S weights, False always does; None
            chooses by size, see `kseq.ops.attention`. Defaults to `None`.
        kernel_initializer: initializer of the kernels. Defaults to
            `"glorot_uniform"`.
        bias_initializer: initializer of the biases. Defaults to `"zeros"`.
        seed: int. Of dropout.

    Call arguments:
        query: float `(B, T, D)`.
        value: float `(B, S, E)`; may be left out where `key_value` is given.
        key: float `(B, S, F)`. Defaults to `value`.
        query_mask: bool `(B, T)`. True is a real query.
        value_mask: bool `(B, S)`. True is a real value.
        key_mask: bool `(B, S)`. True is a real key.
        attention_mask: bool `(B, T, S)` or `(B, H, T, S)`. True where a query may see
            a key. With a cache S is the number of its slots.
        return_attention_scores: bool. True returns the weights too.
        training: bool. Whether to drop weights.
        use_causal_mask: bool. True hides the keys after a query; with a cache, those
            after its position.
        positions: int `(T,)` or `(B, T)`. Positions of the queries, for `rotary` and
            `bias` (with a bias they cost T x S of memory). None counts from 0, or
            from `cache_index`. What a query may see depends on the order of the
            tokens, not on these.
        key_positions: int `(S,)` or `(B, S)`. Those of the keys. Defaults to
            `positions`.
        cache: a `kseq.ops.KeyValueCache`, from `empty_cache` or from the last call.
            The new keys and values are written to it, and all of it is seen, as
            `use_causal_mask` and the masks let it.
        cache_index: int `()` or `(B,)`. How many tokens the cache holds.
        key_value: the pair that `project_key_value` of this layer, or of another one
            with the same G, K and V, returned. `value` and `key` are then not read.

    Returns:
        `(B, T, O)`; with `return_attention_scores` the tuple of it and the weights
        before dropout, `(B, H, T, S)`, at least float32; with a cache the tuple of it
        and the new cache.

    Masking: `query_mask`, `value_mask` and `key_mask` are filled from the Keras masks,
        and combined with all others by AND. What they mask may hold anything, NaN
        included. The query's mask is passed on.

    Numerics: scores, softmax and sums in at least float32, the norms too.

    Raises:
        ValueError: `` `num_key_value_heads` must divide `num_heads`... ``,
            `` The cache must have room for the new tokens... `` (when eager; under a
            compiler such tokens are not written), `` `value` or `key_value` must be
            given. ``, `` `cache` needs a `cache_index`... ``, `` `cache` can't be
            combined with `key_value`... ``, `` `attention_mask` can't be combined
            with the cache of a window... ``, `` `bias` must have as many heads as the
            layer... ``, and for wrong sizes and ranks.
        TypeError: `` `value_mask` must be boolean... `` (each mask alike), and
            for a `rotary` or `bias` of another kind.

    Example:

    >>> layer = kseq.layers.MultiHeadAttention(
    ...     4, 8, num_key_value_heads=2, rotary=kseq.layers.RotaryEmbedding())
    >>> x = keras.random.normal((2, 5, 16), seed=0)
    >>> y = layer(x, x, use_causal_mask=True)
    >>> cache = layer.empty_cache(2, length=5)
    >>> for t in range(5):
    ...     step, cache = layer(x[:, t:t + 1], x[:, t:t + 1], use_causal_mask=True,
    ...                         cache=cache, cache_index=t)
    >>> float(keras.ops.max(keras.ops.abs(step[:, 0] - y[:, 4]))) < 1e-5
    True

    References:
        Vaswani et al., 2017, "Attention is all you need", arXiv:1706.03762,
        section 3.2.
        Shazeer, 2019, "Fast transformer decoding", arXiv:1911.02150 (one key head).
        Ainslie et al., 2023, "GQA", arXiv:2305.13245.
        Dehghani et al., 2023, "Scaling vision transformers to 22 billion parameters",
        arXiv:2302.05442 (norm of queries and keys).
        Beltagy et al., 2020, "Longformer", arXiv:2004.05150 (the window).
        Brandon et al., 2024, "Reducing transformer key-value cache size with
        cross-layer attention", arXiv:2405.12981.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        *,
        num_key_value_heads: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        output_shape: int | None = None,
        rotary: RotaryEmbedding | None = None,
        bias: RelativeBias | None = None,
        scale: float | None = None,
        query_key_norm: bool = False,
        soft_cap: float | None = None,
        window: int | None = None,
        sinks: bool = False,
        blockwise: bool | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        seed: int | None = None,
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
            **kwargs,
        )
        self.dropout = check_rate("dropout", dropout)
        if soft_cap is not None and not soft_cap > 0:
            raise ValueError(message("`soft_cap` must be positive.", soft_cap=soft_cap))
        self.rotary = check_part("rotary", rotary, RotaryEmbedding)
        self.bias = check_part("bias", bias, RelativeBias)
        if bias is not None and bias.num_heads != self.num_heads:
            raise ValueError(
                message(
                    "`bias` must have as many heads as the layer.",
                    bias_heads=bias.num_heads,
                    num_heads=num_heads,
                )
            )
        self.scale = scale
        self.query_key_norm = query_key_norm
        self.soft_cap = soft_cap
        self.window = None if window is None else check_size("window", window)
        self.use_sinks = sinks
        self.blockwise = blockwise
        self.seed = seed
        if self.dropout:
            self.seed_generator = keras.random.SeedGenerator(seed)

    def build(
        self,
        query_shape: Shape,
        value_shape: Shape | None = None,
        key_shape: Shape | None = None,
    ) -> None:
        self.build_projections(query_shape, value_shape, key_shape)
        if self.query_key_norm:
            self.query_norm = self._norm("query_norm", self.num_heads)
            if value_shape is not None:
                self.key_norm = self._norm("key_norm", self.num_key_value_heads)
        if self.rotary is not None and not self.rotary.built:
            self.rotary.build((None, None, self.num_heads, self.key_dim))
            self.rotary.built = True
        if self.bias is not None and not self.bias.built:
            self.bias.build((None, None))
            self.bias.built = True
        self.sinks = None
        if self.use_sinks:
            self.sinks = self.add_weight(
                shape=(self.num_heads,), name="sinks", initializer="zeros"
            )

    def _norm(self, name: str, heads: int) -> keras.layers.RMSNormalization:
        norm = keras.layers.RMSNormalization(dtype=self.dtype_policy, name=name)
        norm.build((None, None, heads, self.key_dim))
        return norm

    def call(
        self,
        query: Tensor,
        value: Tensor | None = None,
        key: Tensor | None = None,
        query_mask: Tensor | None = None,
        value_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        use_causal_mask: bool = False,
        positions: Tensor | None = None,
        key_positions: Tensor | None = None,
        cache: KeyValueCache | None = None,
        cache_index: Any = None,
        key_value: tuple[Tensor, Tensor] | None = None,
    ) -> Any:
        check_rank("query", query, (3,), "(B, T, D)")
        check_call(value, cache, cache_index, key_value, return_attention_scores)
        if cache is not None:
            check_cache(self, query, cache, cache_index, positions, attention_mask)
        if key_value is not None:
            check_key_value(self, query, key_value)
        if positions is not None:
            positions = check_positions("positions", positions)
        if key_positions is not None:
            key_positions = check_positions("key_positions", key_positions)
        query_mask = check_mask("query_mask", query_mask)
        mask = key_value_mask(value_mask, key_mask)
        # a NaN in the padding must not reach the gradient of a weight
        query = zero_padding(query, query_mask, "query_mask")
        slots = None
        if cache is not None:
            slots = token_positions(query, start_index=cache_index)  # (T,) or (B, T)
        if positions is None:
            positions = slots
        queries = self.query_dense(query)
        if self.query_key_norm:
            queries = self.query_norm(queries)
        queries = self._turned(queries, positions)
        if key_value is None:
            if key_positions is None:
                key_positions = positions
            key_value = self.project_key_value(
                value, key, value_mask=mask, positions=key_positions
            )
        keys, values = key_value
        masks: dict[str, Any] = {
            "attention_mask": attention_mask,
            "use_causal_mask": use_causal_mask,
            "window": self.window,
        }
        if cache is None:
            masks["value_mask"] = mask
        else:
            new = KeyValueCache(keys, values, mask)
            keys, values, key_positions, masks, cache = cached_step(
                cache, new, slots, cache_index, **masks
            )
        options = {
            "query_mask": query_mask,
            **masks,
            **score_bias(self.bias, queries, keys, positions, key_positions),
            "scale": self.scale,
            "soft_cap": self.soft_cap,
            "sinks": self.sinks,
        }
        if training and self.dropout:
            options |= {"dropout": self.dropout, "seed": self.seed_generator.next()}
        y = self._attend(queries, keys, values, options, return_attention_scores)
        return y if cache is None else (y, cache)

    def project_key_value(
        self,
        value: Tensor,
        key: Tensor | None = None,
        value_mask: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Keys `(B, S, G, K)` and values `(B, S, G, V)`, for the call's `key_value`.

        What a decoder projects once for all steps, and what layers share, inside the
        `call` of a layer or model of yours.

        Args:
            value: float `(B, S, E)`.
            key: float `(B, S, F)`. Defaults to `value`.
            value_mask: bool `(B, S)`. True is a real key and value; the call needs it
                again.
            positions: int `(S,)` or `(B, S)`. Of the keys, for `rotary`. Defaults to
                counting from 0.
        """
        check_projection(self, value)
        check_rank("value", value, (3,), "(B, S, E)")
        value = zero_padding(value, value_mask, "value_mask")
        if key is None:
            key = value
        else:
            check_rank("key", key, (3,), "(B, S, F)")
            key = zero_padding(key, value_mask, "key_mask")
        keys = self.key_dense(key)
        if self.query_key_norm:
            keys = self.key_norm(keys)
        return self._turned(keys, positions), self.value_dense(value)

    def empty_cache(self, batch_size: Any, length: int) -> KeyValueCache:
        """A cache with no tokens, for the call's `cache`.

        Args:
            batch_size: int. B.
            length: int. The most tokens that it will hold. With a `window` W it has at
                most W slots, a ring, which never ends.
        """
        length = check_size("length", length)
        shape = (batch_size, slot_count(length, self.window), self.num_key_value_heads)
        return KeyValueCache(
            ops.zeros((*shape, self.key_dim), self.compute_dtype),
            ops.zeros((*shape, self.value_dim), self.compute_dtype),
            ops.zeros(shape[:2], "bool"),
        )

    def _turned(self, x: Tensor, positions: Tensor | None) -> Tensor:
        return x if self.rotary is None else self.rotary(x, positions=positions)

    def _attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        options: dict[str, Any],
        return_attention_scores: bool,
    ) -> Any:
        weights = None
        if wanted() == "statistics":
            kept = options | {"dropout": 0.0}
            record_as(self, attention_statistics(queries, keys, **kept))
        if return_attention_scores or wanted() == "weights":
            contexts, weights = dot_product_attention(queries, keys, values, **options)
            if wanted() == "weights":
                record_as(self, weights)
        else:
            contexts = attention(
                queries, keys, values, blockwise=self.blockwise, **options
            )
        y = self.output_dense(contexts)
        return (y, weights) if return_attention_scores else y

    def compute_output_spec(
        self,
        query: Any,
        value: Any = None,
        *args: Any,
        return_attention_scores: bool = False,
        cache: Any = None,
        key_value: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Symbolic outputs, as listed under Returns."""
        del args, kwargs
        y = keras.KerasTensor(
            self.compute_output_shape(query.shape), self.compute_dtype
        )
        if cache is not None:
            return y, KeyValueCache(
                *(keras.KerasTensor(x.shape, x.dtype) for x in cache)
            )
        if not return_attention_scores:
            return y
        source = value.shape[1] if key_value is None else key_value[0].shape[1]
        shape = (query.shape[0], self.num_heads, query.shape[1], source)
        dtype = keras.backend.result_type(self.compute_dtype, "float32")
        return y, keras.KerasTensor(shape, dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "dropout": self.dropout,
            "rotary": None if self.rotary is None else part_config(self.rotary),
            "bias": None if self.bias is None else part_config(self.bias),
            "scale": self.scale,
            "query_key_norm": self.query_key_norm,
            "soft_cap": self.soft_cap,
            "window": self.window,
            "sinks": self.use_sinks,
            "blockwise": self.blockwise,
            "seed": self.seed,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "MultiHeadAttention":
        """The layer that `get_config` describes."""
        parts = {
            name: keras.saving.deserialize_keras_object(config[name])
            for name in ("rotary", "bias")
            if config.get(name) is not None
        }
        return cls(**{**config, **parts})
