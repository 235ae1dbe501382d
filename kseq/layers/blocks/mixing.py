"""How a block calls its mixer, the layer that lets the tokens of a row meet.

A mixer is one of three kinds, told apart by the arguments of its `call`:

    attention   takes `query` and `value`: the sequence asks itself. With `cache` it
                steps as `kseq.layers.MultiHeadAttention` does, with `state` as
                `kseq.layers.LinearAttention`.
    recurrent   takes `initial_state`, and steps if it has `return_state=True`.
    other       takes the sequence: a convolution, for example. It can't step.
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


def takes(layer: keras.layers.Layer, *names: str) -> bool:
    """Whether the layer's call has arguments of these names."""
    parameters = inspect.signature(layer.call).parameters
    return all(name in parameters for name in names)


def build_mixer(mixer: keras.layers.Layer, shape: Shape) -> None:
    """Builds it for sequences of the shape `(B, T, D)`."""
    if mixer.built:
        return
    if takes(mixer, "query", "value"):
        mixer.build(shape, shape)
    else:
        mixer.build(shape)
    mixer.built = True


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
        ValueError: `` `mixer` takes no `attention_mask`. `` (`positions` alike)
    """
    given = _given(mixer, options)
    if takes(mixer, "query", "value"):
        if causal:
            given["use_causal_mask"] = True
        return mixer(x, x, query_mask=mask, value_mask=mask, training=training, **given)
    if takes(mixer, "mask"):
        given["mask"] = mask
    y = mixer(x, training=training, **given)
    return y[0] if isinstance(y, list | tuple) else y  # a recurrent layer's states


def empty_cache(mixer: keras.layers.Layer, batch_size: Any, length: int) -> Cache:
    """What the mixer remembers before the first token.

    Raises:
        ValueError: `` `mixer` can't go token by token... ``
    """
    if takes(mixer, "query", "cache"):
        return mixer.empty_cache(batch_size, length)
    if takes(mixer, "query", "state"):
        return mixer.initial_state(batch_size)
    if takes(mixer, "initial_state") and getattr(mixer, "return_state", False):
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
    if takes(mixer, "query", "cache"):
        return mixer(
            x,
            x,
            query_mask=mask,
            value_mask=mask,
            use_causal_mask=True,
            cache=cache,
            cache_index=cache_index,
            **given,
        )
    if takes(mixer, "query"):
        return mixer(x, x, query_mask=mask, value_mask=mask, state=cache, **given)
    y, *states = mixer(x, initial_state=cache, mask=mask, **given)
    return y, states


def _given(mixer: keras.layers.Layer, options: dict[str, Any]) -> dict[str, Any]:
    """The options that are not None; the mixer must take them."""
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if not takes(mixer, name):
            raise ValueError(
                message(f"`mixer` takes no `{name}`.", mixer=type(mixer).__name__)
            )
    return given
