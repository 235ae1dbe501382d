"""What models of token probabilities share: hidden states, then logits."""

from typing import Any

import keras

from kseq._typing import Tensor


class TrunkAndHead(keras.Model):
    """Base: hidden states `(B, T, D)` and the layer that makes logits of them.

    Attributes of the subclass: `head`, a `Dense`, or an `Embedding` whose transposed
    table it is; `_hidden_tensor`, the symbolic hidden states.
    """

    head: keras.layers.Layer
    _hidden_tensor: keras.KerasTensor

    @property
    def trunk(self) -> keras.Model:
        """The model without its head, from the inputs to `(B, T, D)`, same weights."""
        return keras.Model(self.input, self._hidden_tensor, name=f"{self.name}_trunk")

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits `(B, T, N)` of hidden states `(B, T, D)`."""
        if isinstance(self.head, keras.layers.Embedding):
            return self.head(hidden, reverse=True)
        return self.head(hidden)


def make_head(
    embedding: keras.layers.Embedding, tied: bool, **options: Any
) -> keras.layers.Layer:
    """The embedding itself, or a `Dense` layer to as many logits."""
    if tied:
        return embedding
    return keras.layers.Dense(embedding.input_dim, name="output_dense", **options)
