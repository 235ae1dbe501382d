"""Recurrent encoder-decoder, with attention or without."""

from typing import Any

import keras
from keras import ops

from kseq._checks import check_choice, check_rate, check_size, message
from kseq._typing import Tensor
from kseq.generation import take_rows
from kseq.layers import (
    RNN,
    AttentionCell,
    AttentionRNN,
    BahdanauAttention,
    CoverageAttention,
    Dropout,
    Embedding,
    GRUCell,
    LocalAttention,
    LocationSensitiveAttention,
    LSTMCell,
    LuongAttention,
    MonotonicAttention,
    SimpleRNNCell,
)
from kseq.models.seq2seq import Seq2Seq, check_marks

CELLS = {"rnn": SimpleRNNCell, "gru": GRUCell, "lstm": LSTMCell}
ATTENTIONS = {  # of the width U of the decoder
    "bahdanau": BahdanauAttention,
    "luong": lambda units, **options: LuongAttention(**options),
    "local": lambda units, **options: LocalAttention(**options),
    "monotonic": MonotonicAttention,
    "location": LocationSensitiveAttention,
    "coverage": CoverageAttention,
}


@keras.saving.register_keras_serializable(package="kseq")
class RecurrentSeq2Seq(Seq2Seq):
    """Recurrent encoder-decoder over token ids.

        H = encoder(source)                      (B, S, units), a state a layer
        s_0 = tanh(W_s [last states of the encoder])
        s_t, c_t = decoder(target_{t-1}, s_{t-1}, attention over H)
        logits_t = W_o [s_t; c_t] + b

    With `attention=None` the decoder sees the source through s_0 alone: the
    fixed-vector model of Sutskever et al. (2014). Attention is that of the first
    decoder layer; further layers are stacked on its output. Dropout stands between
    layers, never inside a recurrence (Zaremba et al., 2014).

    Id 0 is padding in source and target, on either side. To copy a model, use
    `from_config(model.get_config())`: `keras.models.clone_model` makes a plain
    functional model of it, without `generate` and with the weights in another order.

    Args:
        source_vocabulary_size: int. Number of source ids, padding included.
        target_vocabulary_size: int. Number of target ids, padding included.
        embedding_dim: int. Width of the embeddings.
        units: int. Width of the decoder, and of the encoder: a bidirectional
            encoder has half of them in each direction.
        num_layers: int. Layers of the encoder, and of the decoder. Defaults to `1`.
        cell: `"rnn"`, `"gru"` or `"lstm"`. Defaults to `"gru"`.
        attention: `"bahdanau"` (additive), `"luong"` (general), `"local"`,
            `"monotonic"`, `"location"` (sensitive), `"coverage"` or `None`: the layers
            of these names, as they are by default. Defaults to `"bahdanau"`.
        bidirectional: bool. Whether the encoder reads both ways. Defaults to `True`.
        dropout: probability in [0, 1). Defaults to `0.0`.
        start_id: int. The target id that decoding starts from. Defaults to `1`.
        end_id: int. The target id that ends a row. Defaults to `2`.
        trainable: bool. Whether its weights are trained. Defaults to `True`.

    Call arguments:
        inputs: dict of two int arrays: `"source_ids"` `(B, S)` and `"target_ids"`
            `(B, T)`, the target shifted right: it begins with `start_id`, and the
            labels are the ids that follow.

    Returns:
        Logits `(B, T, target_vocabulary_size)`.

    Masking: made from id 0 and passed through every layer; the logits carry the
        target's Keras mask.

    Raises:
        ValueError: `` `cell` must be one of 'rnn', 'gru', 'lstm'. `` (`attention`
            alike), `` `units` must be even for a bidirectional encoder. ``,
            `` `start_id` and `end_id` must be two different target ids... ``

    Example:

    >>> model = kseq.models.RecurrentSeq2Seq(
    ...     source_vocabulary_size=30, target_vocabulary_size=42,
    ...     embedding_dim=8, units=16)
    >>> source, target = np.array([[4, 5, 2]]), np.array([[1, 7]])
    >>> tuple(model({"source_ids": source, "target_ids": target}).shape)
    (1, 2, 42)
    >>> model.generate(source, max_length=6).token_ids.shape[0]
    1

    References:
        Sutskever, Vinyals & Le, 2014, arXiv:1409.3215; Bahdanau, Cho & Bengio,
        2015, arXiv:1409.0473; Luong, Pham & Manning, 2015, arXiv:1508.04025.
    """

    def __init__(
        self,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        embedding_dim: int,
        units: int,
        *,
        num_layers: int = 1,
        cell: str = "gru",
        attention: str | None = "bahdanau",
        bidirectional: bool = True,
        dropout: float = 0.0,
        start_id: int = 1,
        end_id: int = 2,
        name: str | None = None,
        trainable: bool = True,
        dtype: Any = None,
    ) -> None:
        self.source_vocabulary_size = check_size(
            "source_vocabulary_size", source_vocabulary_size
        )
        self.target_vocabulary_size = check_size(
            "target_vocabulary_size", target_vocabulary_size
        )
        self.embedding_dim = check_size("embedding_dim", embedding_dim)
        self.units = check_size("units", units)
        self.num_layers = check_size("num_layers", num_layers)
        self.cell = check_choice("cell", cell, CELLS)
        self.attention = check_choice("attention", attention, [*ATTENTIONS, None])
        self.bidirectional = bidirectional
        self.dropout = check_rate("dropout", dropout)
        self.start_id, self.end_id = check_marks(
            start_id, end_id, target_vocabulary_size
        )
        if bidirectional and units % 2:
            raise ValueError(
                message(
                    "`units` must be even for a bidirectional encoder.",
                    fix=f"Try units={units + 1}.",
                    units=units,
                )
            )
        self._make_layers(dtype)
        source_ids = keras.Input((None,), dtype="int32", name="source_ids")
        target_ids = keras.Input((None,), dtype="int32", name="target_ids")
        memory, source_mask, states = self.encode(source_ids)
        super().__init__(
            inputs={"source_ids": source_ids, "target_ids": target_ids},
            outputs=self.decode(target_ids, memory, source_mask, states),
            name=name,
            trainable=trainable,
        )

    def _make_layers(self, dtype: Any) -> None:
        layers = keras.layers
        self.source_embedding = Embedding(
            self.source_vocabulary_size,
            self.embedding_dim,
            mask_zero=True,
            dtype=dtype,
            name="source_embedding",
        )
        self.target_embedding = Embedding(
            self.target_vocabulary_size,
            self.embedding_dim,
            mask_zero=True,
            dtype=dtype,
            name="target_embedding",
        )
        encoders = [
            self._encoder_layer(f"encoder_{i}", dtype) for i in range(self.num_layers)
        ]
        if self.bidirectional:
            # all of them are alive here: it copies its layer, and while a model is
            # loaded Keras takes two layers of one id() for the same
            encoders = [
                layers.Bidirectional(layer, dtype=dtype, name=layer.name)
                for layer in encoders
            ]
        self.encoder_layers = encoders
        states = 2 if self.cell == "lstm" else 1
        self.bridges = [
            [
                layers.Dense(
                    self.units, activation="tanh", dtype=dtype, name=f"bridge_{i}_{j}"
                )
                for j in range(states)
            ]
            for i in range(self.num_layers)
        ]
        self.decoder_layers = [
            self._decoder_layer(
                f"decoder_{i}", self.attention if i == 0 else None, dtype
            )
            for i in range(self.num_layers)
        ]
        self.dropout_layer = Dropout(self.dropout, dtype=dtype, name="dropout")
        self.output_dense = layers.Dense(
            self.target_vocabulary_size, dtype=dtype, name="output_dense"
        )

    def _encoder_layer(self, name: str, dtype: Any) -> keras.layers.Layer:
        units = self.units // 2 if self.bidirectional else self.units
        return RNN(
            CELLS[self.cell](units, dtype=dtype),
            return_sequences=True,
            return_state=True,
            dtype=dtype,
            name=name,
        )

    def _decoder_layer(
        self, name: str, attention: str | None, dtype: Any
    ) -> keras.layers.Layer:
        cell = CELLS[self.cell](self.units, dtype=dtype)
        if attention is None:
            return RNN(
                cell, return_sequences=True, return_state=True, dtype=dtype, name=name
            )
        mechanism = ATTENTIONS[attention](self.units, dtype=dtype)
        attention_cell = AttentionCell(cell, mechanism, dtype=dtype)
        return AttentionRNN(attention_cell, return_state=True, dtype=dtype, name=name)

    def encode(self, source_ids: Tensor) -> tuple[Tensor, Tensor, list[list[Tensor]]]:
        """Reads the source.

        Args:
            source_ids: int `(B, S)`, 0 for padding.

        Returns:
            The memory `(B, S, units)`, its mask `(B, S)`, and the first states of
            each decoder layer.
        """
        mask = ops.not_equal(source_ids, 0)
        x = self.dropout_layer(self.source_embedding(source_ids))
        first_states = []
        for layer, bridges in zip(self.encoder_layers, self.bridges, strict=True):
            x, *states = layer(x, mask=mask)
            x = self.dropout_layer(x)
            count = len(bridges)
            if self.bidirectional:  # forward h (and c), then backward h (and c)
                states = [
                    ops.concatenate([states[j], states[count + j]], axis=-1)
                    for j in range(count)
                ]
            first_states.append(
                [dense(state) for dense, state in zip(bridges, states, strict=True)]
            )
        return x, mask, first_states

    def decode(
        self,
        target_ids: Tensor,
        memory: Tensor,
        memory_mask: Tensor,
        states: list[list[Tensor]],
    ) -> Tensor:
        """Logits `(B, T, N)` of all targets at once, each given the true ones before.

        Args:
            target_ids: int `(B, T)`, shifted right.
            memory: float `(B, S, units)`; with its mask and the states, what
                `encode` returned.
            memory_mask: bool `(B, S)`.
            states: the first states of each decoder layer.
        """
        mask = ops.not_equal(target_ids, 0)
        x = self.dropout_layer(self.target_embedding(target_ids))
        for layer, initial_state in zip(self.decoder_layers, states, strict=True):
            if isinstance(layer, AttentionRNN):
                x, *_ = layer(
                    x,
                    memory,
                    initial_state=initial_state,
                    sequences_mask=mask,
                    memory_mask=memory_mask,
                )
            else:
                x, *_ = layer(x, initial_state=initial_state, mask=mask)
            x = self.dropout_layer(x)
        return self.output_dense(x)

    def empty_state(self, source_ids: Tensor, max_length: int) -> dict[str, Any]:
        del max_length  # the state does not grow
        memory, memory_mask, states = self.encode(source_ids)
        state: dict[str, Any] = {"layers": states}
        if self.attention is not None:
            cell = self.decoder_layers[0].cell
            memory, projected = cell.prepare_memory(memory, memory_mask)
            states[0] += cell.attention.first_alignment(memory)
            state["coverage"] = ops.zeros(ops.shape(source_ids), "float32")
            state["memory"] = {
                "memory": memory,
                "memory_mask": memory_mask,
                "projected_memory": projected,
            }
        return state

    def step(
        self, token_ids: Tensor, state: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Any]]:
        x = self.target_embedding(token_ids)  # (B, E)
        state, new_states = dict(state), []
        for layer, states in zip(self.decoder_layers, state["layers"], strict=True):
            if isinstance(layer, AttentionRNN):
                (x, weights), states = layer.cell(x, states, **state["memory"])
                state["coverage"] += ops.cast(weights, "float32")
            else:
                x, states = layer.cell(x, states)
            new_states.append(states)
        return self.output_dense(x), {**state, "layers": new_states}

    def reorder(self, state: dict[str, Any], rows: Tensor) -> dict[str, Any]:
        """The state whose row i is row `rows[i]` of the same source."""
        changing = {key: state[key] for key in state if key != "memory"}
        return {**state, **take_rows(changing, rows)}

    def coverage(self, state: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """How much attention each place of the source has had, for `BeamSearch`.

        Returns:
            The sum of the weights over the steps, float32 `(B, S)`, and the mask of the
            source, bool `(B, S)`.

        Raises:
            ValueError: `` A model without attention has no coverage... ``
        """
        if self.attention is None:
            raise ValueError(
                message(
                    "A model without attention has no coverage.",
                    fix="Take `coverage_penalty=0`.",
                    attention=None,
                )
            )
        return state["coverage"], state["memory"]["memory_mask"]

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.saving.serialize_keras_object(
                self.source_embedding.dtype_policy
            ),
            "source_vocabulary_size": self.source_vocabulary_size,
            "target_vocabulary_size": self.target_vocabulary_size,
            "embedding_dim": self.embedding_dim,
            "units": self.units,
            "num_layers": self.num_layers,
            "cell": self.cell,
            "attention": self.attention,
            "bidirectional": self.bidirectional,
            "dropout": self.dropout,
            "start_id": self.start_id,
            "end_id": self.end_id,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> "RecurrentSeq2Seq":
        """The model that `get_config` describes."""
        del custom_objects
        return cls(**config)
