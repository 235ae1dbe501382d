"""What a call of multi-head attention refuses."""

from typing import Any

import keras

from kseq._checks import check_rank, message
from kseq._typing import Shape, Tensor
from kseq.layers.attention.cached_step import is_ring
from kseq.ops.key_value_cache import KeyValueCache
from kseq.ops.token_positions import check_positions


def check_part(name: str, part: Any, kind: type) -> Any:
    """`part` of the layer, which is None or a `kind`."""
    if part is not None and not isinstance(part, kind):
        raise TypeError(
            message(
                f"`{name}` must be a {kind.__name__} layer of kseq.layers.",
                **{name: type(part).__name__},
            )
        )
    return part


def check_call(
    value: Tensor | None,
    cache: KeyValueCache | None,
    cache_index: Any,
    key_value: tuple[Tensor, Tensor] | None,
    return_attention_scores: bool,
) -> None:
    """Refuses arguments that don't go together."""
    if value is None and key_value is None:
        raise ValueError(message("`value` or `key_value` must be given.", value=None))
    if (cache is None) != (cache_index is None):
        raise ValueError(
            message(
                "`cache` needs a `cache_index`, the number of tokens in it.",
                cache=type(cache).__name__,
                cache_index=cache_index,
            )
        )
    if cache is not None and (key_value is not None or return_attention_scores):
        raise ValueError(
            message(
                "`cache` can't be combined with `key_value` or "
                "`return_attention_scores`.",
                fix="Take the weights of a full call, or from `capture()`.",
                key_value=type(key_value).__name__,
                return_attention_scores=return_attention_scores,
            )
        )


def check_cache(
    layer: keras.Layer,
    query: Tensor,
    cache: Any,
    cache_index: Any,
    positions: Tensor | None,
    attention_mask: Tensor | None,
) -> None:
    """Refuses a cache that is not of this layer and batch."""
    if not isinstance(cache, KeyValueCache):
        raise TypeError(
            message(
                "`cache` must be a KeyValueCache.",
                fix="Make it by `layer.empty_cache(batch_size, length)`.",
                cache=type(cache).__name__,
            )
        )
    groups = layer.num_key_value_heads
    for name, x, sizes in (
        ("cache.key", cache.key, (groups, layer.key_dim)),
        ("cache.value", cache.value, (groups, layer.value_dim)),
        ("cache.mask", cache.mask, ()),
    ):
        _check_shape(name, x, (query.shape[0], cache.mask.shape[1], *sizes))
    index = check_positions("cache_index", cache_index)
    check_rank("cache_index", index, (0, 1), "() or (B,)")
    if len(index.shape) == 1:
        _check_shape("cache_index", index, (query.shape[0],))
    if layer.bias is not None and positions is not None:
        raise ValueError(
            message(
                "`positions` can't be combined with a `bias` and a cache, which "
                "knows the order of its tokens only.",
                bias=type(layer.bias).__name__,
            )
        )
    if attention_mask is not None and is_ring(cache, layer.window):
        raise ValueError(
            message(
                "`attention_mask` can't be combined with the cache of a window.",
                fix="Mark padding by `value_mask`: the cache remembers it.",
                window=layer.window,
            )
        )


def check_key_value(layer: keras.Layer, query: Tensor, key_value: Any) -> None:
    """Refuses keys and values of other sizes than this layer's own."""
    if not isinstance(key_value, list | tuple) or len(key_value) != 2:
        raise TypeError(
            message(
                "`key_value` must be the pair that `project_key_value` returned.",
                key_value=type(key_value).__name__,
            )
        )
    for name, x, width in zip(
        ("key", "value"), key_value, (layer.key_dim, layer.value_dim), strict=True
    ):
        sizes = (query.shape[0], None, layer.num_key_value_heads, width)
        _check_shape(f"key_value ({name})", x, sizes)


def check_projection(layer: keras.Layer, value: Any) -> None:
    """Refuses to project where the layer has no weights, or would lose them."""
    if isinstance(value, keras.KerasTensor):
        raise ValueError(
            message(
                "`project_key_value` can't be a step of a functional model, which "
                "would not find its weights when loaded.",
                fix="Use it in the `call` of a layer or model of your own.",
                value=value,
            )
        )
    if not layer.built or not hasattr(layer, "key_dense"):
        raise ValueError(
            message(
                "The layer must be built with a `value` before it projects one.",
                fix="Call it on `query` and `value` first, or `build` it with "
                "their shapes.",
                built=layer.built,
            )
        )


def _check_shape(name: str, x: Tensor, wanted: Shape) -> None:
    """Refuses another shape than `wanted`, where both are known."""
    shape = tuple(x.shape)
    pairs = zip(shape, wanted, strict=False)
    if len(shape) != len(wanted) or any(
        isinstance(n, int) and isinstance(size, int) and n != size for n, size in pairs
    ):
        raise ValueError(message(f"`{name}` must have shape {wanted}.", shape=shape))
