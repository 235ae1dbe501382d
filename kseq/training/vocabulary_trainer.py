"""Trains a language model whose logits are too large to hold."""

from typing import Any

import keras

from kseq._checks import check_at_least_zero, check_rate, check_size, message
from kseq._typing import Shape, Tensor
from kseq.ops.summed_vocabulary_crossentropy import summed_vocabulary_crossentropy
from kseq.ops.vocabulary_crossentropy import token_statistics
from kseq.training.masked_crossentropy import MaskedCrossentropy, mean_of_sum
from kseq.training.token_metrics import Perplexity, TokenCrossentropy


@keras.saving.register_keras_serializable(package="kseq")
class VocabularyTrainer(keras.Model):
    """A model of hidden states, trained as if its head made logits of them.

    The loss and its gradients are those of the model `head(trunk(inputs))` that is
    compiled with `MaskedCrossentropy`, but the `(B, T, N)` logits are never held:
    `kseq.ops.summed_vocabulary_crossentropy` makes those of a chunk of tokens at a
    time. `fit` and `evaluate` report `loss`, the mean of batches, and over all real
    tokens of the epoch `token_crossentropy` and `perplexity`, both without smoothing
    and z-loss. Trunk and head are trained in place: `head(trunk(inputs))` is the
    model to predict with.

    Args:
        trunk: a layer or model that maps inputs to hidden states `(B, T, D)`.
        head: what makes logits of them: a built `keras.layers.Dense` without
            activation, or a built `Embedding` whose table is the kernel; it may be
            that of the trunk (tied weights).
        pad_id: int, the target id that stands for padding. None counts every
            target. Defaults to `0`.
        label_smoothing: probability in [0, 1) spread over all tokens. Defaults to
            `0.0`.
        z_loss: float, at least 0: the factor of the squared log-sum-exp. Defaults to
            `0.0`.
        chunk_size: int. The most tokens whose logits are held. Defaults to `256`.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: what `trunk` takes.

    Returns:
        The hidden states `(B, T, D)`. Compile it with an optimizer and no loss.

    Masking: a target counts where it is not `pad_id`, the Keras mask of the hidden
        states is True and the sample weight, `(B, T)` or `(B,)`, is not 0.

    Raises:
        TypeError: `` `trunk` must be a Keras model or layer... `` and
            `` `head` must be a `keras.layers.Dense` or an `Embedding`... ``
        ValueError: `` `head` must be built... ``, `` `head` must have no
            activation... ``, `` Only logits have metrics and another loss... ``, and
            those of a bad `label_smoothing`, `z_loss` or `chunk_size`.

    Example:

    >>> ids = keras.Input((None,), dtype="int32")
    >>> table = kseq.layers.Embedding(30, 4)
    >>> trunk = keras.Model(ids, kseq.layers.LSTM(4, return_sequences=True)(table(ids)))
    >>> trainer = kseq.training.VocabularyTrainer(trunk, table)
    >>> trainer.compile("adam", jit_compile=True)
    >>> tokens = np.array([[1, 2, 3, 4], [5, 6, 0, 0]])
    >>> history = trainer.fit(tokens[:, :-1], tokens[:, 1:], verbose=0)
    >>> sorted(history.history)
    ['loss', 'perplexity', 'token_crossentropy']
    >>> model = keras.Model(ids, table(trunk(ids), reverse=True))  # the logits
    """

    def __init__(
        self,
        trunk: keras.Layer,
        head: keras.Layer,
        *,
        pad_id: int | None = 0,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        chunk_size: int = 256,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not isinstance(trunk, keras.Layer):
            raise TypeError(
                message(
                    "`trunk` must be a Keras model or layer, from tokens to hidden "
                    "states.",
                    fix="That of a language model of kseq is `model.trunk`.",
                    trunk=type(trunk).__name__,
                )
            )
        _check_head(head)
        self.trunk = trunk
        self.head = head
        self.pad_id = pad_id
        self.label_smoothing = check_rate("label_smoothing", label_smoothing)
        self.z_loss = check_at_least_zero("z_loss", z_loss)
        self.chunk_size = check_size("chunk_size", chunk_size)
        self.token_metrics = [TokenCrossentropy(pad_id), Perplexity(pad_id)]
        self._tokens = MaskedCrossentropy(pad_id)

    def build(self, input_shape: Shape) -> None:
        if not self.trunk.built:
            self.trunk.build(input_shape)
        self.built = True

    def call(self, inputs: Any, training: bool | None = None) -> Tensor:
        return self.trunk(inputs, training=training)

    def compile(self, optimizer: Any = "rmsprop", **kwargs: Any) -> None:
        """Keras's own, without what would need logits."""
        given = ("loss", "loss_weights", "metrics", "weighted_metrics")
        refused = [name for name in given if kwargs.get(name) is not None]
        if refused:
            raise ValueError(
                message(
                    "Only logits have metrics and another loss: a `VocabularyTrainer` "
                    "is compiled without.",
                    fix="Evaluate the model `head(trunk(inputs))` for them.",
                    arguments=refused,
                )
            )
        super().compile(optimizer, **kwargs)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built:
            self.optimizer.build(self.trainable_variables)

    def compute_loss(
        self,
        x: Any = None,
        y: Tensor = None,
        y_pred: Tensor = None,
        sample_weight: Tensor | None = None,
        training: bool = True,
    ) -> Tensor:
        """The loss of hidden states `y_pred`; counts the tokens for the metrics."""
        weights = self._tokens.token_weights(y, y_pred, sample_weight)
        arguments = self._logit_arguments(y, y_pred, weights)
        losses: dict[str, Any] = {
            "label_smoothing": self.label_smoothing,
            "z_loss": self.z_loss,
        }
        if training:
            total, crossentropy = summed_vocabulary_crossentropy(**arguments, **losses)
        else:
            statistics = token_statistics(**arguments)
            crossentropy = statistics.crossentropy
            total = keras.ops.sum(statistics.loss(**losses) * weights)
        for metric in self.token_metrics:
            metric.add_values(crossentropy, weights)
        loss = mean_of_sum(total, weights)
        if self.losses:  # regularizers, and what layers have added
            others = super().compute_loss(x, y, y_pred, sample_weight, training)
            loss = loss + keras.ops.cast(others, loss.dtype)
        return loss

    def _logit_arguments(
        self, targets: Tensor, hidden: Tensor, weights: Tensor
    ) -> dict[str, Any]:
        tied = isinstance(self.head, keras.layers.Embedding)
        kernel = self.head.embeddings if tied else self.head.kernel
        # outside of the head's own call Keras casts nothing
        dtype = self.head.compute_dtype
        bias = None if tied or self.head.bias is None else self.head.bias
        return {
            "hidden": keras.ops.cast(hidden, dtype),
            "kernel": keras.ops.cast(kernel, dtype),
            "targets": targets,
            "weights": weights,
            "bias": None if bias is None else keras.ops.cast(bias, dtype),
            "transpose_kernel": tied,
            "chunk_size": self.chunk_size,
        }

    def get_config(self) -> dict[str, Any]:
        serialize = keras.saving.serialize_keras_object
        tied = any(layer is self.head for layer in self.trunk._flatten_layers())
        return {
            **super().get_config(),
            "trunk": serialize(self.trunk),
            # a second copy of a layer would be another one when it is loaded
            "head": self.head.name if tied else serialize(self.head),
            "pad_id": self.pad_id,
            "label_smoothing": self.label_smoothing,
            "z_loss": self.z_loss,
            "chunk_size": self.chunk_size,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> "VocabularyTrainer":
        deserialize = keras.saving.deserialize_keras_object
        trunk = deserialize(config["trunk"], custom_objects=custom_objects)
        head = config["head"]
        if isinstance(head, str):
            # Keras lists the layers inside a layer only here
            layers = {layer.name: layer for layer in trunk._flatten_layers()}
            head = layers[head]
        else:
            head = deserialize(head, custom_objects=custom_objects)
        return cls(**{**config, "trunk": trunk, "head": head})


def _check_head(head: Any) -> None:
    reversible = isinstance(head, keras.layers.ReversibleEmbedding)
    kinds = (keras.layers.Dense, keras.layers.Embedding)
    if reversible or not isinstance(head, kinds):
        raise TypeError(
            message(
                "`head` must be a `keras.layers.Dense` or an `Embedding` of kseq or "
                "Keras.",
                head=type(head).__name__,
            )
        )
    if not head.built:
        raise ValueError(
            message(
                "`head` must be built.",
                fix="Call it once, or `head.build((None, None, hidden_dim))`.",
                head=head.name,
            )
        )
    activation = getattr(head, "activation", keras.activations.linear)
    if activation is not keras.activations.linear:
        raise ValueError(
            message("`head` must have no activation.", activation=activation)
        )
