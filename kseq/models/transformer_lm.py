"""Decoder-only Transformer language model."""

from typing import Any

import keras
import numpy as np
from keras import ops

from kseq._checks import check_size
from kseq._typing import Tensor
from kseq.models.cached_decoder import CachedDecoder, DecoderParts
from kseq.models.deep_norm import single_stack
from kseq.models.estimate import Stack
from kseq.models.language_model import LanguageModel
from kseq.models.transformer_builder import TransformerBuilder
from kseq.models.transformer_stack import StackOptions, TokenInput
from kseq.models.trunk_and_head import make_head
from kseq.ops import segment_mask


@keras.saving.register_keras_serializable(package="kseq")
class TransformerLM(CachedDecoder, TransformerBuilder, LanguageModel):
    """Transformer language model: decoder blocks only.

        x = E[ids];  x = block_i(x), i = 1..L;  logits = LN(x) W

    W is the transposed table E with `tie_embeddings`. The defaults are those that
    train without care: Pre-LN, rotary positions, tied embeddings.

    Id 0 is padding, on either side. To copy a model, use
    `from_config(model.get_config())`.

    `TransformerLM.from_preset(name)` has the sizes of "gpt2-small" (124,439,808
    parameters) and "llama-tiny" (15,191,712; the stories15M of llama2.c), with random
    weights; `estimate(batch_size, length)` says what a training step takes.

    Norm placement: "pre" and "sandwich" train from the first step at any depth. "post"
    is Vaswani's: with more than 6 layers it needs a warm-up, such as
    `kseq.training.InverseSqrt`, or its loss stalls or turns NaN; `fit` warns of a
    constant learning rate. Above some 12 layers it needs smaller first kernels as well,
    such as `kernel_initializer=keras.initializers.RandomNormal(stddev=0.02)`: with
    Glorot's 24 layers stall, with or without a warm-up (`examples/train_deep.py`).
    "deepnorm" is Post-LN that trains at depth, by a scaled residual stream and smaller
    first weights.

    Args:
        vocabulary_size: int. N, number of ids, padding included.
        num_layers: int. L.
        hidden_dim: int. D.
        num_heads: int. H, which divides D.
        intermediate_dim: int. Width of the feed-forward layers. Defaults to `4 D`.
        num_key_value_heads: int. Heads of keys and values, which divides H. Defaults
            to `num_heads`.
        positions: `"rotary"`, `"alibi"`, `"t5"`, `"sinusoidal"`, `"none"` or a position
            layer, such as `kseq.layers.PositionEmbedding(1024)` for learned ones or a
            `kseq.layers.RotaryEmbedding` with a scaling. Sinusoids come with
            embeddings that are multiplied by sqrt(D). Defaults to `"rotary"`.
        activation: that of `kseq.layers.FeedForward`. Defaults to `"gelu"`.
        norm: `"layer"` or `"rms"`. Defaults to `"layer"`.
        placement: `"pre"`, `"post"`, `"sandwich"` or `"deepnorm"`. Defaults to `"pre"`.
        dropout: probability in [0, 1), of embeddings, attention weights and each
            sublayer's outputs. Defaults to `0.0`.
        use_bias: bool. Whether projections have biases. Defaults to `True`.
        kernel_initializer: that of the kernels of all blocks, such as GPT-2's and
            BERT's `RandomNormal(stddev=0.02)`. Defaults to `"glorot_uniform"`.
        tie_embeddings: bool. Whether the logits use the table of the embeddings.
            Defaults to `True`.
        packed: bool. True takes several documents a row, as `kseq.data.pack` makes
            them. Defaults to `False`.
        window: int. W, how many tokens a block looks back, the own one included
            (Beltagy et al.); a token then takes the same time and memory wherever it
            stands, and the last block still knows of `L (W - 1)` before it. None is no
            window. `Speculative` needs a model without one. Defaults to `None`.
        remat: bool. True computes the activations of a block again in the backward
            pass, rather than keep them. Defaults to `False`.
        trainable: bool. Whether its weights are trained. Defaults to `True`.

    Call arguments:
        inputs: int `(B, T)`; with `packed` a dict of three: `"token_ids"`,
            `"segment_ids"` (0 for padding) and `"positions"`, which start at 0 in each
            document.

    Returns:
        Logits `(B, T, N)` of the next tokens.

    Masking: made from id 0 and told to every block; the logits carry the Keras mask.

    Raises:
        ValueError: `` `num_heads` must divide `hidden_dim`. ``, `` `positions` must be
            one of 'rotary', ... `` (`placement`, `norm` and `activation` alike), and
            for sizes that are not positive integers.

    Example:

    >>> model = kseq.models.TransformerLM(
    ...     vocabulary_size=65, num_layers=2, hidden_dim=16, num_heads=2)
    >>> tuple(model(np.array([[5, 6, 7, 0]])).shape)
    (1, 4, 65)

    References:
        Vaswani et al., 2017, arXiv:1706.03762; Radford et al., 2019, "Language models
        are unsupervised multitask learners"; Press & Wolf, 2017, "Using the output
        embedding to improve language models", arXiv:1608.05859; Wang et al., 2022,
        "DeepNet", arXiv:2203.00555; Liu et al., 2020, "Understanding the difficulty
        of training transformers", arXiv:2004.08249; Beltagy et al., 2020, "Longformer",
        arXiv:2004.05150, for the window.
    """

    OWN_ARGUMENTS = ("vocabulary_size", "tie_embeddings", "packed", "window")

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        hidden_dim: int,
        num_heads: int,
        *,
        intermediate_dim: int | None = None,
        num_key_value_heads: int | None = None,
        positions: Any = "rotary",
        activation: str = "gelu",
        norm: str = "layer",
        placement: str = "pre",
        dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        tie_embeddings: bool = True,
        packed: bool = False,
        window: int | None = None,
        remat: bool = False,
        name: str | None = None,
        trainable: bool = True,
        dtype: Any = None,
    ) -> None:
        self.vocabulary_size = check_size("vocabulary_size", vocabulary_size)
        self.tie_embeddings = tie_embeddings
        self.packed = packed
        self.window = None if window is None else check_size("window", window)
        options = StackOptions(
            num_layers=num_layers,
            hidden_dim=hidden_dim,
            num_heads=num_heads,
            intermediate_dim=intermediate_dim,
            num_key_value_heads=num_key_value_heads,
            positions=positions,
            activation=activation,
            norm=norm,
            placement=placement,
            dropout=dropout,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            remat=remat,
            dtype=dtype,
        )
        self._take(options)
        self._make_layers(options)
        inputs = {"token_ids": keras.Input((None,), dtype="int32", name="token_ids")}
        if packed:
            for key in ("segment_ids", "positions"):
                inputs[key] = keras.Input((None,), dtype="int32", name=key)
        hidden = self._hidden(**inputs)
        super().__init__(
            inputs=inputs if packed else inputs["token_ids"],
            outputs=self.logits(hidden),
            name=name,
            trainable=trainable,
        )
        self._hidden_tensor = hidden
        options.scale_first_kernels(self.blocks, single_stack(num_layers))

    def _make_layers(self, options: StackOptions) -> None:
        scheme = options.scheme(causal=True)
        self.token_embedding = options.embedding(
            self.vocabulary_size, scheme, "token_embedding"
        )
        self._embed = TokenInput(
            "token_positions",
            self.token_embedding,
            scheme,
            options.embedding_dropout(),
        )
        self.blocks = options.decoder_blocks(
            "block", single_stack(self.num_layers), window=self.window
        )
        self.final_norm = options.final_norm("final_norm")
        self.head = make_head(
            self.token_embedding,
            self.tie_embeddings,
            use_bias=False,
            dtype=options.dtype,
        )

    def _hidden(
        self,
        token_ids: Tensor,
        segment_ids: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        mask = ops.not_equal(token_ids, 0)
        options: dict[str, Any] = {}
        if segment_ids is not None:
            options["attention_mask"] = segment_mask(segment_ids)
            if self._embed.positions is None:
                options["positions"] = positions
        x = self._embed(token_ids, positions)
        for block in self.blocks:
            x = block(x, mask=mask, **options)
        return x if self.final_norm is None else self.final_norm(x)

    def empty_state(self, batch_size: Any, max_length: int) -> dict[str, Any]:
        """The state before the first token, as `step` takes it.

        Args:
            batch_size: B.
            max_length: int, the most tokens that will be read.

        Raises:
            ValueError: `` There are fewer learned positions than `max_length`... ``
        """
        self.check_length(max_length)
        return self._empty_state(batch_size, max_length)

    def check_length(self, length: int) -> None:
        """Refuses rows of more tokens than there are learned positions."""
        self._embed.check_length(length)

    def _empty_state(self, batch_size: Any, slots: int) -> dict[str, Any]:
        return {
            "blocks": [b.empty_cache(batch_size, slots) for b in self.blocks],
            "index": ops.convert_to_tensor(0, "int32"),
            "position": ops.zeros((batch_size,), "int32"),
        }

    def start(
        self, prompt_ids: Tensor, max_new_tokens: int
    ) -> tuple[Tensor, dict[str, Any]]:
        batch_size, length = ops.shape(prompt_ids)
        # padding has slots, and no positions
        state = self._empty_state(batch_size, length - 1 + max_new_tokens)
        if length > 1:
            state = self.read(prompt_ids[:, :-1], state)[1]
        return prompt_ids[:, -1], state

    def _decoder(self) -> DecoderParts:
        return DecoderParts(self._embed, self.blocks, self.final_norm)

    def whole_inputs(self, prompts: Any, token_ids: Any) -> Any:
        ids = super().whole_inputs(prompts, token_ids)
        if not self.packed:
            return ids
        real = (ids != 0).astype("int32")
        positions = np.maximum(np.cumsum(real, axis=1) - 1, 0).astype("int32")
        return {"token_ids": ids, "segment_ids": real, "positions": positions}

    def _stacks(self, batch: int, length: int) -> list[Stack]:
        return [self._stack(batch, length, causal=True, window=self.window)]

    def _logits_size(self) -> int:
        return self.vocabulary_size
