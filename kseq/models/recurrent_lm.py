"""Recurrent language model."""

from typing import Any

import keras
from keras import ops

from kseq._checks import check_choice, check_rate, check_size
from kseq._typing import Tensor
from kseq.generation import read_by_steps
from kseq.layers import RNN, Dropout, Embedding
from kseq.models.language_model import LanguageModel
from kseq.models.recurrent_seq2seq import CELLS
from kseq.models.trunk_and_head import make_head


@keras.saving.register_keras_serializable(package="kseq")
class RecurrentLM(LanguageModel):
    """Recurrent language model: a stack of recurrent layers over embeddings.

        x_t = E[id_t];  h_t = RNN(x_t, h_{t-1}), layer on layer;  logits = h W + b

    W is the transposed table E with `tie_embeddings`, without b; h then goes through
    a projection to the width of the table, where that is another. Dropout stands
    between layers, never inside a recurrence (Zaremba et al., 2014).

    Id 0 is padding, on either side. To copy a model, use
    `from_config(model.get_config())`.

    Args:
        vocabulary_size: int. N, number of ids, padding included.
        embedding_dim: int. Width of the embeddings.
        units: int. Width of the recurrent layers.
        num_layers: int. Defaults to `1`.
        cell: `"rnn"`, `"gru"` or `"lstm"`. Defaults to `"lstm"`.
        dropout: probability in [0, 1), of embeddings and each layer's outputs.
            Defaults to `0.0`.
        tie_embeddings: bool. Whether the logits use the table of the embeddings.
            Defaults to `False`.
        trainable: bool. Whether its weights are trained. Defaults to `True`.

    Call arguments:
        inputs: int `(B, T)`.

    Returns:
        Logits `(B, T, N)` of the next tokens.

    Masking: made from id 0 and told to every layer; the logits carry the Keras mask.

    Raises:
        ValueError: `` `cell` must be one of 'rnn', 'gru', 'lstm'. ``, and for sizes
            that are not positive integers.

    Example:

    >>> model = kseq.models.RecurrentLM(vocabulary_size=65, embedding_dim=8, units=16)
    >>> tuple(model(np.array([[5, 6, 7, 0]])).shape)
    (1, 4, 65)

    References:
        Mikolov et al., 2010, "Recurrent neural network based language model";
        Zaremba et al., 2014, "Recurrent neural network regularization",
        arXiv:1409.2329; Press & Wolf, 2017, arXiv:1608.05859 (tied embeddings).
    """

    def __init__(
        self,
        vocabulary_size: int,
        embedding_dim: int,
        units: int,
        *,
        num_layers: int = 1,
        cell: str = "lstm",
        dropout: float = 0.0,
        tie_embeddings: bool = False,
        name: str | None = None,
        trainable: bool = True,
        dtype: Any = None,
    ) -> None:
        self.vocabulary_size = check_size("vocabulary_size", vocabulary_size)
        self.embedding_dim = check_size("embedding_dim", embedding_dim)
        self.units = check_size("units", units)
        self.num_layers = check_size("num_layers", num_layers)
        self.cell = check_choice("cell", cell, CELLS)
        self.dropout = check_rate("dropout", dropout)
        self.tie_embeddings = tie_embeddings
        self.token_embedding = Embedding(
            self.vocabulary_size,
            self.embedding_dim,
            mask_zero=True,
            dtype=dtype,
            name="token_embedding",
        )
        self.recurrent_layers = [
            RNN(
                CELLS[cell](self.units, dtype=dtype, name="cell"),
                return_sequences=True,
                dtype=dtype,
                name=f"recurrent_{i}",
            )
            for i in range(self.num_layers)
        ]
        self.dropout_layer = Dropout(self.dropout, dtype=dtype, name="dropout")
        self.projection = None
        self.head = make_head(self.token_embedding, tie_embeddings, dtype=dtype)
        if tie_embeddings and self.units != self.embedding_dim:
            self.projection = keras.layers.Dense(
                self.embedding_dim, dtype=dtype, name="projection"
            )
        token_ids = keras.Input((None,), dtype="int32", name="token_ids")
        mask = ops.not_equal(token_ids, 0)
        x = self.dropout_layer(self.token_embedding(token_ids))
        for layer in self.recurrent_layers:
            x = self.dropout_layer(layer(x, mask=mask))
        if self.projection is not None:
            x = self.projection(x)
        super().__init__(
            inputs=token_ids, outputs=self.logits(x), name=name, trainable=trainable
        )
        self._hidden_tensor = x

    def empty_state(self, batch_size: Any) -> list[list[Tensor]]:
        """The state before the first token, as `step` takes it.

        Args:
            batch_size: B.
        """
        return [layer.get_initial_state(batch_size) for layer in self.recurrent_layers]

    def start(
        self, prompt_ids: Tensor, max_new_tokens: int
    ) -> tuple[Tensor, list[list[Tensor]]]:
        del max_new_tokens  # the state does not grow
        state = self.empty_state(ops.shape(prompt_ids)[0])
        state = read_by_steps(self.step, prompt_ids[:, :-1], state)
        return prompt_ids[:, -1], state

    def step(
        self, token_ids: Tensor, state: list[list[Tensor]]
    ) -> tuple[Tensor, list[list[Tensor]]]:
        real = ops.not_equal(token_ids, 0)[:, None]
        x = self.token_embedding(token_ids)  # (B, E)
        new_states = []
        for layer, states in zip(self.recurrent_layers, state, strict=True):
            x, new = layer.cell(x, states)
            # padding leaves the state as it was
            new = [ops.where(real, a, b) for a, b in zip(new, states, strict=True)]
            new_states.append(new)
        if self.projection is not None:
            x = self.projection(x)
        return self.logits(x), new_states

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.saving.serialize_keras_object(
                self.token_embedding.dtype_policy
            ),
            "vocabulary_size": self.vocabulary_size,
            "embedding_dim": self.embedding_dim,
            "units": self.units,
            "num_layers": self.num_layers,
            "cell": self.cell,
            "dropout": self.dropout,
            "tie_embeddings": self.tie_embeddings,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> "RecurrentLM":
        """The model that `get_config` describes."""
        del custom_objects
        return cls(**config)
