"""How a block calls its mixer, the layer that lets the tokens of a row meet.

A mixer is one of three kinds, told apart by the arguments of its `call`:

    attention   takes `query` and `value`: the sequence asks itself. With `cache` it
                steps as `kseq.layers.MultiHeadAttention` does, with `state` as
                `kseq.layers.LinearAttention`.
    recurrent   takes `initial_state`, and steps if it has `return_state=True`.
    other       takes the sequence: a convolution, for example. It can't step.

Of masks, positions and the like a layer is handed what its call names. If its call ends
in `**kwargs` it is handed what the caller gave, and the mask if it supports masking.
"""

import inspect
from typing import Any

import keras

from kseq._checks import message
from kseq._typing import Shape, Tensor

Cache = Any  # what a mixer remembers of the tokens so far


def check_layer(name: str, layer: Any) -> Any:
    """Returns `layer` if it is a Keras layer."""
    if not isinstance(layer, keras.layers.Layer):
        raise TypeError(
            message(f"`{name}` must be a Keras layer.", **{name: type(layer).__name__})
        )
    return layer


def names(layer: keras.layers.Layer, *arguments: str) -> bool:
    """Whether the layer's call has arguments of these names."""
    parameters = inspect.signature(layer.call).parameters
    return all(name in parameters for name in arguments)


def takes(layer: keras.layers.Layer, argument: str) -> bool:
    """Whether the layer's call can be given an argument of this name."""
    parameters = inspect.signature(layer.call).parameters.values()
    return names(layer, argument) or any(p.kind is p.VAR_KEYWORD for p in parameters)


def build_part(layer: keras.layers.Layer, *shapes: Shape) -> None:
    """Builds a part of a block for inputs of these shapes.

    A layer without a `build` of its own is called on symbolic inputs, as Keras does.
    """
    if layer.built:
        return
    if type(layer).build is keras.layers.Layer.build:
        layer(*(keras.KerasTensor(shape, layer.compute_dtype) for shape in shapes))
    else:
        layer.build(*shapes)
    layer.built = True


def build_mixer(mixer: keras.layers.Layer, shape: Shape) -> None:
    """Builds it for sequences of the shape `(B, T, D)`."""
    build_part(mixer, *([shape, shape] if names(mixer, "query", "value") else [shape]))


def each_token(layer: keras.layers.Layer, x: Tensor, mask: Any, training: bool) -> Any:
    """What a feed-forward layer makes of `x` `(B, T, D)`."""
    return layer(x, training=training, **_mask(layer, mask))


def mix(
    mixer: keras.layers.Layer,
    x: Tensor,
    mask: Tensor | None,
    *,
    causal: bool,
    training: bool,
    **options: Any,
) -> Tensor:
    """What the mixer makes of a whole sequence.

    Args:
        mixer: the layer.
        x: `(B, T, D)`.
        mask: bool `(B, T)`. True is a real token.
        causal: whether an attention hides what comes after a token. Other mixers go
            forward in time, or do not, by themselves.
        training: whether to drop.
        **options: `positions` and `attention_mask`, which the mixer must take unless
            they are None.

    Raises:
        ValueError: `` `mixer` takes no `attention_mask`. `` (`positions` and, of an
            attention, `use_causal_mask` alike)
    """
    if names(mixer, "query", "value"):
        if causal:
            options["use_causal_mask"] = True
        given = _given(mixer, options) | _masks(mixer, mask)
        y = mixer(x, x, training=training, **given)
    else:
        given = _given(mixer, options) | _mask(mixer, mask)
        y = mixer(x, training=training, **given)
    return y[0] if isinstance(y, list | tuple) else y  # without states or scores


def empty_cache(mixer: keras.layers.Layer, batch_size: Any, length: int) -> Cache:
    """What the mixer remembers before the first token.

    Raises:
        ValueError: `` `mixer` can't go token by token... ``
    """
    if names(mixer, "query", "cache"):
        return mixer.empty_cache(batch_size, length)
    if names(mixer, "query", "state"):
        return mixer.initial_state(batch_size)
    if _steps(mixer):
        return mixer.get_initial_state(batch_size)
    raise ValueError(
        message(
            "`mixer` can't go token by token: it takes neither `cache` nor `state` nor "
            "`initial_state`.",
            fix="A recurrent layer needs `return_state=True`, attention is "
            "`kseq.layers.MultiHeadAttention` or `kseq.layers.LinearAttention`.",
            mixer=type(mixer).__name__,
        )
    )


def mix_next(
    mixer: keras.layers.Layer,
    x: Tensor,
    mask: Tensor | None,
    cache: Cache,
    cache_index: Any,
    **options: Any,
) -> tuple[Tensor, Cache]:
    """What the mixer makes of the next tokens `(B, T, D)`, and what it remembers."""
    given = _given(mixer, options)
    if names(mixer, "query", "cache"):
        given |= {"use_causal_mask": True, "cache": cache, "cache_index": cache_index}
        return mixer(x, x, **_masks(mixer, mask), **given)
    if names(mixer, "query"):
        return mixer(x, x, **_masks(mixer, mask), state=cache, **given)
    y, *states = mixer(x, initial_state=cache, mask=mask, **given)
    return y, states


def _steps(mixer: keras.layers.Layer) -> bool:
    """Whether it is a recurrent layer of one direction that returns its states."""
    return (
        names(mixer, "initial_state", "mask")
        and hasattr(mixer, "get_initial_state")
        and getattr(mixer, "return_state", False)
    )


def _mask(layer: keras.layers.Layer, mask: Tensor | None) -> dict[str, Any]:
    """Which tokens are real, as a layer of one sequence is told it."""
    told = names(layer, "mask") or (layer.supports_masking and takes(layer, "mask"))
    return {"mask": mask} if told else {}


def _masks(mixer: keras.layers.Layer, mask: Tensor | None) -> dict[str, Any]:
    """Which tokens are real, as an attention is told it."""
    return {n: mask for n in ("query_mask", "value_mask") if takes(mixer, n)}


def _given(mixer: keras.layers.Layer, options: dict[str, Any]) -> dict[str, Any]:
    """The options that are not None; the mixer must take them."""
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if not takes(mixer, name):
            raise ValueError(
                message(f"`mixer` takes no `{name}`.", mixer=type(mixer).__name__)
            )
    return given
