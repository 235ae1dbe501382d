"""A model with a repeated embedding, an attention layer and padding, in 190 weights."""

from typing import Any

import keras
import numpy as np
from keras import ops

from kseq.layers.attention.capture import record

VOCABULARY, TIME, WIDTH = 11, 5, 3


@keras.saving.register_keras_serializable(package="kseq_tests")
class TinyAttention(keras.layers.Layer):
    """Dot-product attention of all positions over all but the first.

    It records its weights, with or without heads: those after the first are uniform.
    """

    def __init__(self, heads: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.heads = heads
        self.supports_masking = True

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], shape[-1]), name="kernel")
        self.built = True

    def call(self, x: Any) -> Any:
        value = x[:, 1:]
        scores = ops.einsum("btd,de,bse->bts", x, self.kernel, value)
        weights = ops.softmax(scores)
        if self.heads:
            heads = [weights * 0 + 1 / (TIME - 1)] * (self.heads - 1)
            record(self, ops.stack([weights, *heads], axis=1))
        else:
            record(self, weights)
        return ops.matmul(weights, value)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "heads": self.heads}


def make_model(
    seed: int = 0,
    heads: int = 0,
    embedding_trainable: bool = True,
    **compile_options: Any,
) -> keras.Model:
    """The same weights for the same `seed`. SGD of rate 1 unless told otherwise."""
    keras.utils.set_random_seed(seed)
    ids = keras.Input((TIME,), dtype="int32", name="ids")
    embedding = keras.layers.Embedding(
        VOCABULARY,
        WIDTH,
        embeddings_initializer=keras.initializers.RandomNormal(stddev=1.0, seed=seed),
        name="embedding",
    )
    embedding.trainable = embedding_trainable
    x = embedding(ids)
    x = TinyAttention(heads, name="attention")(x)
    x = keras.layers.Dense(VOCABULARY, name="dense")(x)
    model = keras.Model(ids, x, name="tiny")
    options: dict[str, Any] = {
        "optimizer": keras.optimizers.SGD(1.0),
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "jit_compile": True,
    }
    model.compile(**{**options, **compile_options})
    return model


def attention_weights(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """The weights of `TinyAttention` in float64."""
    x = x.astype("float64")
    weights = np.exp(x @ kernel @ x[:, 1:].swapaxes(1, 2))
    return weights / weights.sum(-1, keepdims=True)


def make_batches(steps: int, batch: int = 2, seed: int = 1) -> tuple[Any, Any]:
    """Inputs and labels of `steps` batches; ids repeat within a row."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, VOCABULARY, (steps * batch, TIME)).astype("int32")
    ids[:, -1] = ids[:, 0]
    return ids, rng.integers(0, VOCABULARY, ids.shape).astype("int32")
