"""A functional model with Transformer blocks: it warns of one that may diverge."""

import inspect
import warnings
from collections import Counter
from typing import Any

import keras

from kseq.layers.blocks.transformer_block import TransformerBlock

_SAFE_DEPTH = 6  # of Post-LN, the depth of Vaswani et al.


@keras.saving.register_keras_serializable(package="kseq")
class TransformerModel(keras.Model):
    """Base: warns of deep Post-LN without a warm-up.

    By itself it is a functional model with a head on the blocks of a builder.
    """

    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """As `keras.Model.fit`; warns of Post-LN that is likely to diverge."""
        given = inspect.signature(super().fit).bind(*args, **kwargs).arguments
        if not self._has_scheduled_rate(given.get("callbacks")):
            self._warn_of_deep_post_norm()
        return super().fit(*args, **kwargs)

    def _has_scheduled_rate(self, callbacks: Any) -> bool:
        optimizer = getattr(self, "optimizer", None)
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        rate = optimizer.get_config().get("learning_rate") if optimizer else None
        callbacks = getattr(callbacks, "callbacks", callbacks)  # of a CallbackList
        return not isinstance(rate, int | float) or any(
            isinstance(callback, keras.callbacks.LearningRateScheduler)
            for callback in keras.tree.flatten(callbacks)
        )

    def _warn_of_deep_post_norm(self) -> None:
        blocks = [layer for layer in self.layers if _is_plain_post(layer)]
        # the blocks of an encoder are no depth of a decoder
        depth = max(Counter(map(type, blocks)).values(), default=0)
        if depth > _SAFE_DEPTH:
            width = blocks[0].mixer_connection.output_norm.weights[0].shape[0]
            warnings.warn(
                f"Post-LN with {depth} layers and a constant learning rate is likely "
                "to stall or diverge: its gradients are large before the norms have "
                "settled. Warm up: keras.optimizers.Adam(kseq.training.InverseSqrt("
                f"{width}, warmup_steps=4000)). Above some 12 layers first "
                "kernels must be smaller, too: kernel_initializer=keras.initializers."
                "RandomNormal(stddev=0.02); or take placement='pre' or 'deepnorm'.",
                stacklevel=3,
            )


def _is_plain_post(layer: keras.layers.Layer) -> bool:
    """Whether it is a Post-LN block, and not one of DeepNorm."""
    if not isinstance(layer, TransformerBlock):
        return False
    connection = layer.mixer_connection
    return connection.placement == "post" and connection.residual_scale == 1
