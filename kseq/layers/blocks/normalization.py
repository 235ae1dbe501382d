"""The norm of a block, by name."""

from typing import Any

import keras

from kseq._checks import check_choice
from kseq.layers.rms_normalization import RMSNormalization

NORMS = {
    "layer": keras.layers.LayerNormalization,
    "rms": RMSNormalization,
}


def make_norm(norm: str, epsilon: float, **options: Any) -> keras.layers.Layer:
    """Keras's norm over the last axis; its statistics are at least float32.

    Args:
        norm: `"layer"` (Ba et al., 2016, arXiv:1607.06450) or `"rms"` (Zhang &
            Sennrich, 2019, arXiv:1910.07467).
        epsilon: added to the variance, or to the mean square.
        **options: `name` and `dtype` of the layer.
    """
    return NORMS[check_choice("norm", norm, NORMS)](epsilon=epsilon, **options)
