"""The attention weights of every layer of a model, for one batch."""

from typing import Any

import keras
import numpy as np
from keras import ops

from kseq._checks import message
from kseq._typing import Tensor
from kseq.backend.compiled import compiled
from kseq.diagnostics.same_state import same_state
from kseq.layers.attention.capture import capture


def attention_maps(model: keras.Model, x: Any) -> dict[str, np.ndarray]:
    """Returns the attention weights of each attention layer of `model` on `x`.

    Args:
        model: a built model that holds attention layers of kseq or Keras.
        x: one batch of its inputs, as `model.predict` takes it: an array, or a
            list or dictionary of arrays.

    Returns:
        Layer path -> float array of shape `(B, T, S)` or, with heads,
        `(B, H, T, S)`, in the order of the calls. A layer that the model calls several
        times adds its path with `#2`, `#3`. Each row sums to 1, or to 0 where nothing
        may be seen.

    Raises:
        ValueError: if the model is not built or no layer records its attention.

    Example:

    >>> model = kseq.models.RecurrentSeq2Seq(9, 9, embedding_dim=4, units=4)
    >>> x = {"source_ids": np.array([[3, 4, 2]]), "target_ids": np.array([[1, 5]])}
    >>> maps = kseq.diagnostics.attention_maps(model, x)
    >>> maps["decoder_0"].shape
    (1, 2, 3)
    """
    return AttentionProbe(model)(x)


class AttentionProbe:
    """`attention_maps` of one model, traced once for repeated use.

    The model runs as in inference. Its weights are read anew at each call, so the
    maps follow training, and the model's own compiled functions stay untouched.

    Args:
        model: a built model that holds attention layers of kseq or Keras.

    Call arguments:
        x: one batch of inputs. Each new set of shapes traces once.

    Returns:
        As `attention_maps`.
    """

    def __init__(self, model: keras.Model) -> None:
        if not model.built:
            raise ValueError(
                message(
                    "`model` must be built before its attention is read.",
                    fix="Call it once on a batch.",
                    model=model.name,
                )
            )

        self._paths: list[str] = []

        def forward(x: Any) -> dict[str, Tensor]:
            with capture() as maps:
                model(x, training=False)
            self._paths = list(maps)  # JAX sorts them
            return {path: _at_least_float32(weights) for path, weights in maps.items()}

        self._model = model
        # a small model run once per epoch is not worth XLA's compile time
        self._forward = compiled(forward, model.variables, jit_compile=False)

    def __call__(self, x: Any) -> dict[str, np.ndarray]:
        with same_state(self._model):
            maps = self._forward(x)
        if not maps:
            raise ValueError(
                message(
                    "`model` must hold a layer that has attention weights "
                    "(LinearAttention has none).",
                    model=self._model.name,
                )
            )
        return {path: ops.convert_to_numpy(maps[path]) for path in self._paths}


def _at_least_float32(x: Tensor) -> Tensor:
    return ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
