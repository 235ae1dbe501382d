"""Block of a Transformer decoder."""

from collections.abc import Callable
from functools import partial
from typing import Any

import keras

from kseq._checks import check_mask, check_rank, message
from kseq._typing import Shape, Tensor
from kseq.layers.blocks import mixing
from kseq.layers.blocks.mixing import build_part, check_layer, each_token, mix, mix_next
from kseq.layers.blocks.transformer_block import TransformerBlock
from kseq.layers.recurrent.any_cell import part_config
from kseq.ops import zero_padding


@keras.saving.register_keras_serializable(package="kseq")
class TransformerDecoderBlock(TransformerBlock):
    """Block of a decoder: no token sees a later one.

        x = connection(x, mixer)
        x = connection(x, cross_attention over the memory)     where there is one
        x = connection(x, feed_forward)

    or, with `parallel`, x = connection(x, mixer + feed_forward), one norm for both.
    `kseq.layers.SublayerConnection` says what the connection is: Pre-LN by default. The
    memory is read as it is: its norm is the last one of the encoder.

    Any mixer fits that maps `(B, T, D)` to itself and looks back only. Attention, of
    kseq or Keras, is asked with a causal mask; a recurrent layer needs
    `return_sequences=True` and width D, and for a cache `return_state=True`.

    Args:
        mixer: layer that mixes the tokens, such as `kseq.layers.MultiHeadAttention`.
        feed_forward: layer that works on each token, such as
            `kseq.layers.FeedForward`.
        cross_attention: attention over the memory, or None. Defaults to `None`.
        parallel: bool. True adds mixer and feed-forward layer side by side; not with
            cross-attention. Defaults to `False`.
        placement: where the norms stand: `"pre"`, `"post"`, `"sandwich"` or `"none"`.
            Defaults to `"pre"`.
        norm: `"layer"` or `"rms"`. Defaults to `"layer"`.
        norm_epsilon: float, inside the root of the norms. Defaults to `1e-5`.
        residual_scale: float, what x is multiplied by on its way past a sublayer.
            Defaults to `1.0`.
        layer_scale: float or None, where a learned scale of each sublayer's channels
            starts. Defaults to `None`, no scale.
        rezero: bool. True learns one scale a sublayer, from 0. Defaults to `False`.
        dropout: probability in [0, 1), of each sublayer's outputs; that of attention
            weights and inside the feed-forward layer is theirs. Defaults to `0.0`.
        stochastic_depth: probability in [0, 1) that a row skips a sublayer. Defaults
            to `0.0`.
        remat: bool. True keeps only the block's inputs for the gradient, and computes
            the rest again in the backward pass, with the same dropout: less memory
            for a third more work. A call with a cache
            is not changed. Defaults to `False`.
        seed: int. Defaults to `None`.

    Call arguments:
        sequences: float `(B, T, D)`.
        memory: float `(B, S, E)`, what the cross-attention reads.
        mask: bool `(B, T)`. True is a real token. Filled from the Keras mask.
        memory_mask: bool `(B, S)`. True is real memory. Filled from the Keras mask.
        attention_mask: bool `(B, T, T)` or `(B, H, T, T)`. True where a query may see a
            key, beside the causal mask. For a mixer that takes one.
        positions: int `(T,)` or `(B, T)`, for a mixer that takes them. None counts
            from 0, or from `cache_index`.
        cache: what `empty_cache` or the call before returned. The tokens are then
            those after it, and the memory is in it.
        cache_index: int `()` or `(B,)`. How many tokens the cache holds.
        training: bool. True applies dropout.
        sequences_mask: what Keras fills in the place of `mask` where there are more
            tensors; leave it to Keras.

    Returns:
        `(B, T, D)`; with a cache the tuple of it and the new cache.

    Masking: padding counts as zeros, so it may hold anything. It is told to the mixer
        and changes no real output. The mask is passed on.

    Raises:
        TypeError: `` `mixer` must be a Keras layer. `` (the other two alike) and
            `` `mask` must be boolean... ``
        ValueError: `` `memory` must be given where there is a `cross_attention`, and
            only there. ``, `` `parallel` excludes `cross_attention`. ``,
            `` `mixer` takes no `attention_mask`. `` (`positions` alike),
            `` `mixer` can't go token by token... ``, and those of
            `kseq.layers.SublayerConnection`.

    Example:

    >>> block = kseq.layers.TransformerDecoderBlock(
    ...     kseq.layers.MultiHeadAttention(num_heads=2, key_dim=4),
    ...     kseq.layers.FeedForward(32, activation="swiglu"),
    ...     norm="rms")
    >>> x = keras.random.normal((2, 5, 8), seed=0)
    >>> y = block(x)
    >>> cache = block.empty_cache(2, length=5)
    >>> for t in range(5):
    ...     y_t, cache = block(x[:, t:t + 1], cache=cache, cache_index=t)
    >>> float(keras.ops.max(keras.ops.abs(y_t[:, 0] - y[:, 4]))) < 1e-5
    True

    References:
        Vaswani et al., 2017, "Attention is all you need", arXiv:1706.03762,
        section 3.1; Wang & Komatsuzaki, 2021, GPT-J (`parallel`).
    """

    def __init__(
        self,
        mixer: keras.layers.Layer,
        feed_forward: keras.layers.Layer,
        *,
        cross_attention: keras.layers.Layer | None = None,
        parallel: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(mixer, feed_forward, **kwargs)
        self.cross_attention = None
        if cross_attention is not None:
            self.cross_attention = check_layer("cross_attention", cross_attention)
        if parallel and cross_attention is not None:
            raise ValueError(
                message(
                    "`parallel` excludes `cross_attention`.",
                    parallel=parallel,
                    cross_attention=type(cross_attention).__name__,
                )
            )
        self.parallel = parallel

    def build(self, sequences_shape: Shape, memory_shape: Shape | None = None) -> None:
        check_rank("sequences", sequences_shape, (3,), "(B, T, D)")
        self._check_memory(memory_shape)
        self.build_parts(sequences_shape)
        if memory_shape is not None:
            build_part(self.cross_attention, sequences_shape, memory_shape)
            self.cross_connection = self.connection("cross_connection", 2)
            self.cross_connection.build(sequences_shape)
        if not self.parallel:
            self.feed_forward_connection = self.connection("feed_forward_connection", 1)
            self.feed_forward_connection.build(sequences_shape)

    def call(
        self,
        sequences: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        cache: Any = None,
        cache_index: Any = None,
        training: bool = False,
        sequences_mask: Tensor | None = None,
    ) -> Any:
        mask = check_mask("mask", sequences_mask if mask is None else mask)
        memory_mask = check_mask("memory_mask", memory_mask)
        if cache is None:
            self._check_memory(memory)

        def body(
            x: Tensor,
            mask: Tensor | None = None,
            memory_mask: Tensor | None = None,
            memory: dict[str, Tensor] | None = None,
            **options: Tensor,
        ) -> Any:
            if cache is None:
                options |= {"causal": True, "training": training}
                mixer = partial(mix, self.mixer, mask=mask, **options)
            else:
                options |= {"cache": cache["mixer"], "cache_index": cache_index}
                mixer = partial(mix_next, self.mixer, mask=mask, **options)
            feed_forward = partial(
                each_token, self.feed_forward, mask=mask, training=training
            )
            first = _beside(mixer, feed_forward) if self.parallel else mixer
            x = self.mixer_connection(x, sublayer=first, training=training)
            x, *new = x if isinstance(x, tuple) else (x,)
            if self.cross_attention is not None:
                cross = partial(
                    self.cross_attention,
                    query_mask=mask,
                    value_mask=memory_mask,
                    training=training,
                    **(memory or {}),
                )
                x = self.cross_connection(x, sublayer=cross, training=training)
            if not self.parallel:
                x = self.feed_forward_connection(
                    x, sublayer=feed_forward, training=training
                )
            return (x, *new) if new else x

        x = zero_padding(sequences, mask)
        tensors = {
            "mask": mask,
            "memory_mask": memory_mask,
            "attention_mask": attention_mask,
            "positions": positions,
        }
        if cache is not None:
            y, new = body(x, memory={"key_value": cache.get("memory")}, **tensors)
            return y, {**cache, "mixer": new}
        if memory is not None:
            memory = zero_padding(memory, memory_mask, "memory_mask")
            tensors["memory"] = {"value": memory}
        return self.run(body, x, **tensors)

    def empty_cache(
        self,
        batch_size: Any,
        length: int,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> dict[str, Any]:
        """What the call's `cache` is before the first token.

        Args:
            batch_size: int. B.
            length: int. The most tokens that it will hold.
            memory: float `(B, S, E)`, for the cross-attention, which projects it once.
            memory_mask: bool `(B, S)`. True is real; the calls need it again.
        """
        self._check_memory(memory)
        cross: Any = self.cross_attention
        if memory is not None and not hasattr(cross, "project_key_value"):
            raise ValueError(
                message(
                    "`cross_attention` can't go token by token: it has no "
                    "`project_key_value`.",
                    fix="kseq.layers.MultiHeadAttention has one.",
                    cross_attention=type(cross).__name__,
                )
            )
        cache = {"mixer": mixing.empty_cache(self.mixer, batch_size, length)}
        if memory is not None:
            cache["memory"] = cross.project_key_value(memory, value_mask=memory_mask)
        return cache

    def _check_memory(self, memory: Any) -> None:
        if (memory is None) != (self.cross_attention is None):
            raise ValueError(
                message(
                    "`memory` must be given where there is a `cross_attention`, and "
                    "only there.",
                    memory=None if memory is None else "given",
                    cross_attention=self.cross_attention,
                )
            )

    def compute_output_spec(
        self, sequences: Any, *args: Any, cache: Any = None, **kwargs: Any
    ) -> Any:
        """Symbolic outputs: y, and the new cache where there is one."""
        del args, kwargs
        y = keras.KerasTensor(sequences.shape, self.compute_dtype)
        if cache is None:
            return y
        return y, keras.tree.map_structure(
            lambda x: keras.KerasTensor(x.shape, x.dtype), cache
        )

    def get_config(self) -> dict[str, Any]:
        cross = self.cross_attention
        return {
            **super().get_config(),
            "cross_attention": None if cross is None else part_config(cross),
            "parallel": self.parallel,
        }


def _beside(
    mixer: Callable[[Tensor], Any], feed_forward: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Any]:
    """Both of one input, added; what the mixer remembers follows."""

    def both(x: Tensor) -> Any:
        mixed = mixer(x)
        if isinstance(mixed, tuple):
            return mixed[0] + feed_forward(x), *mixed[1:]
        return mixed + feed_forward(x)

    return both
