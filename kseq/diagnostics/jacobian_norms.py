"""Which inputs each output depends on, and how much."""

from typing import Any

import keras
import numpy as np
from keras import ops

from kseq._checks import message
from kseq._typing import Tensor
from kseq.backend import compiled, gradient
from kseq.diagnostics.layer_calls import all_calls, layer_calls
from kseq.diagnostics.output_taps import output_taps
from kseq.diagnostics.same_state import same_state


def jacobian_norms(model: keras.Layer, x: Any) -> np.ndarray:
    """The norm of d out_t / d in_u for all pairs of positions.

        J[t, u] = sqrt(mean over rows of |d out_t / d in_u|_F^2)

    0 means that output t does not look at input u: above the diagonal, in a causal
    model. Ids have no derivative; for them in_u is what the embedding makes of id u.
    It takes one backward pass for each number of the outputs of a row: for small sizes.

    Args:
        model: a built model or layer with one input. It runs as in inference.
        x: one small batch, float `(B, T, D)` or ids `(B, T)` that go to an `Embedding`.

    Returns:
        float `(T, T)`, outputs down, inputs across.

    Raises:
        ValueError: `` `x` must be floats (B, T, D), or ids that go to an Embedding. ``
            and `` The outputs must be one tensor (B, T, D)... ``

    Example:

    >>> layer = kseq.layers.GRU(3, return_sequences=True)
    >>> x = np.random.default_rng(0).normal(size=(2, 5, 3)).astype("float32")
    >>> model = keras.Sequential([keras.Input((5, 3)), layer])
    >>> norms = kseq.diagnostics.jacobian_norms(model, x)
    >>> norms.shape, bool(np.triu(norms, 1).any())
    ((5, 5), False)
    """
    x = np.asarray(x)
    if x.dtype == object:
        raise ValueError(
            message(
                "`x` must be one array: the only input.", kind=type(x.item()).__name__
            )
        )
    tensor = ops.convert_to_tensor(x)
    with same_state(model), layer_calls() as calls:
        outputs = keras.tree.flatten(model(tensor, training=False))
    layers = [
        call.layer
        for call in all_calls(calls)
        if isinstance(call.layer, keras.layers.Embedding)
        and any(np.array_equal(x, given) for given in call.inputs)
    ]
    ids = x.ndim == 2 and x.dtype.kind in "iu" and layers
    if not ids and (x.ndim != 3 or x.dtype.kind != "f"):
        raise ValueError(
            message(
                "`x` must be floats (B, T, D), or ids that go to an Embedding.",
                shape=x.shape,
                dtype=str(x.dtype),
            )
        )
    shape = tuple(outputs[0].shape)
    if len(outputs) != 1 or len(shape) != 3 or shape[:2] != x.shape[:2]:
        raise ValueError(
            message(
                "The outputs must be one tensor (B, T, D) with the time of the inputs.",
                outputs=[tuple(y.shape) for y in outputs],
                inputs=x.shape,
            )
        )
    zeros = {"": ops.zeros_like(tensor)}
    if ids:
        with same_state(model), output_taps(layers) as zeros:
            model(tensor, training=False)

    def one_output(zeros: dict[str, Tensor], x: Tensor, chosen: Tensor) -> Tensor:
        with output_taps(layers if ids else [], zeros):
            x = x if ids else x + zeros[""]
            (y,) = keras.tree.flatten(model(x, training=False))
        return ops.sum(ops.cast(y, chosen.dtype) * chosen)

    def squares(zeros: dict[str, Tensor], x: Tensor, chosen: Tensor) -> Tensor:
        found = gradient(one_output)(zeros, x, chosen)
        found = [ops.cast(g, chosen.dtype) for g in found.values()]
        return sum(ops.sum(ops.square(g), axis=(0, 2)) for g in found)  # (T,)

    run = compiled(squares, model.variables, jit_compile=False)
    dtype = keras.backend.result_type(outputs[0].dtype, "float32")
    rows, length, width = shape
    total = np.zeros((length, length))
    for t in range(length):
        for feature in range(width):
            chosen = np.zeros((length, width), dtype)
            chosen[t, feature] = 1
            total[t] += ops.convert_to_numpy(run(dict(zeros), tensor, chosen))
    return np.sqrt(total / rows)
