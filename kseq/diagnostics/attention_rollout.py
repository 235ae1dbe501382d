"""What the layers of attention look at together."""

from collections.abc import Sequence

import numpy as np

from kseq._checks import message


def attention_rollout(weights: Sequence[np.ndarray]) -> np.ndarray:
    """How much of each input token reaches each token above a stack of attention.

        R = N(A_L / 2 + I / 2) ... N(A_1 / 2 + I / 2)

    A_l are the weights of layer l, the mean over its heads; I stands for the residual
    connection around it, and N makes rows sum to 1.

    Args:
        weights: float `(..., T, T)` or, with heads, `(B, H, T, T)`: those of each
            layer, the first layer first, as in the values of
            `kseq.diagnostics.attention_maps` of a stack of self-attention.

    Returns:
        float64 `(..., T, T)`, without heads. Each row sums to 1.

    Raises:
        ValueError: `` `weights` must hold squares (..., T, T) of one shape... ``

    Example:

    >>> look_back = np.array([[[1, 0], [1, 0]]])
    >>> kseq.diagnostics.attention_rollout([look_back, look_back])
    array([[[1.  , 0.  ],
            [0.75, 0.25]]])

    References:
        Abnar & Zuidema, 2020, "Quantifying attention flow in Transformers",
        arXiv:2005.00928, section 3, equation 1.
    """
    layers = [np.asarray(w, "float64") for w in weights]
    layers = [w.mean(axis=1) if w.ndim == 4 else w for w in layers]
    shapes = [w.shape for w in layers]
    if len(set(shapes)) != 1 or len(shapes[0]) < 2 or shapes[0][-1] != shapes[0][-2]:
        raise ValueError(
            message(
                "`weights` must hold squares (..., T, T) of one shape, at least one.",
                fix="Leave layers out that attend over another sequence.",
                shapes=shapes,
            )
        )
    identity = np.eye(shapes[0][-1])
    rollout = identity
    for layer in layers:
        mixed = (layer + identity) / 2
        rollout = mixed / mixed.sum(axis=-1, keepdims=True) @ rollout
    return rollout
