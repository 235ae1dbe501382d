"""What the Transformer builders share: a warning."""

import warnings
from typing import Any

import keras

_SAFE_DEPTH = 6  # of Post-LN, the depth of Vaswani et al.


class TransformerModel(keras.Model):
    """Base: warns of deep Post-LN without a warm-up.

    `placement`, `hidden_dim` and `depth`, the layers of the deepest stack, are
    attributes of the subclass.
    """

    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """As `keras.Model.fit`; warns of Post-LN that is likely to diverge."""
        if self.placement == "post" and self.depth > _SAFE_DEPTH:
            self._warn_of_constant_rate(kwargs.get("callbacks"))
        return super().fit(*args, **kwargs)

    def _warn_of_constant_rate(self, callbacks: Any) -> None:
        optimizer = getattr(self, "optimizer", None)
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        rate = optimizer.get_config()["learning_rate"] if optimizer else None
        scheduled = any(
            isinstance(callback, keras.callbacks.LearningRateScheduler)
            for callback in keras.tree.flatten(callbacks)
        )
        if isinstance(rate, int | float) and not scheduled:
            warnings.warn(
                f"Post-LN with {self.depth} layers and a constant learning rate of "
                f"{rate:g} is likely to stall or diverge: its gradients are large "
                "before the norms have settled. Warm up: keras.optimizers.Adam("
                f"kseq.training.InverseSqrt({self.hidden_dim}, warmup_steps=4000)). "
                "Or take placement='pre' or 'deepnorm'.",
                stacklevel=3,
            )
