"""Norms of gradients, per layer and of the whole model."""

from collections.abc import Sequence

import keras
from keras import ops

from kseq._typing import Tensor


def layer_path(variable: keras.Variable) -> str:
    """Path of the layer that owns `variable`: its own without the last part."""
    return variable.path.rpartition("/")[0] or variable.path


def gradient_norms(
    gradients: Sequence[Tensor | None],
    variables: Sequence[keras.Variable],
    layers: Sequence[str],
    scale: Tensor | float = 1.0,
) -> Tensor:
    """L2 norms of `gradients`: of all together, then of each layer.

    With g_v the gradient of variable v divided by `scale`:

        global = sqrt(sum over v of |g_v|^2)
        layer  = the same over the variables of that layer

    Args:
        gradients: tensors, or None where a variable has no gradient: it adds 0.
        variables: the variable of each gradient.
        layers: paths of the layers, as `layer_path` names them, in the order
            wanted. A variable of another layer counts in the global norm only.
        scale: the loss scale that the gradients still carry. Defaults to 1.

    Returns:
        float32 tensor of shape `(1 + len(layers),)`.

    Numerics:
        The scale is removed before squaring, all in float32 at least, so that
        scaled float16 gradients do not overflow.
    """
    total = ops.zeros((), "float32")
    by_layer = dict.fromkeys(layers, total)
    for gradient, variable in zip(gradients, variables, strict=True):
        if gradient is None:
            continue
        compute = keras.backend.result_type(gradient.dtype, "float32")
        unscaled = ops.cast(gradient, compute) / ops.cast(scale, compute)
        square = ops.cast(ops.sum(ops.square(unscaled)), "float32")
        total = total + square
        path = layer_path(variable)
        if path in by_layer:
            by_layer[path] = by_layer[path] + square
    return ops.sqrt(ops.stack([total, *by_layer.values()]))
