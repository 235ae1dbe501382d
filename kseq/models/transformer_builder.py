"""What the Transformer builders share beside blocks: config, presets, estimate."""

import math
from typing import Any, ClassVar, Self

import keras

from kseq._checks import check_size
from kseq.models.estimate import Estimate, Stack, estimate
from kseq.models.position_schemes import positions_config, positions_from_config
from kseq.models.presets import preset_arguments
from kseq.models.transformer_model import TransformerModel
from kseq.models.transformer_stack import STACK_ARGUMENTS, StackOptions


class TransformerBuilder(TransformerModel):
    """Base of the builders, which a config describes.

    Attributes of the subclass: `OWN_ARGUMENTS`, the names of those arguments of its
    constructor that are not about its blocks; they are attributes of the model.
    """

    OWN_ARGUMENTS: ClassVar[tuple[str, ...]]

    num_layers: int
    hidden_dim: int
    num_heads: int
    intermediate_dim: int | None
    num_key_value_heads: int | None
    activation: str
    norm: str
    placement: str
    dropout: float
    use_bias: bool
    kernel_initializer: keras.initializers.Initializer
    remat: bool
    _stack_options: StackOptions

    def _take(self, options: StackOptions) -> None:
        """Makes attributes of the arguments about the blocks."""
        self._stack_options = options
        for name in STACK_ARGUMENTS:
            setattr(self, name, getattr(options, name))

    @classmethod
    def from_preset(cls, preset: str, /, **overrides: Any) -> Self:
        """A model of published sizes, with random weights.

        Args:
            preset: its name; the class says which there are.
            **overrides: arguments that replace those of the preset.

        Raises:
            ValueError: `` `preset` must be one of `TransformerLM`: ... ``
        """
        return cls(**{**preset_arguments(cls.__name__, preset), **overrides})

    @property
    def positions(self) -> Any:
        """The argument of this name; a layer of it is a pattern, no part of the model.

        As an attribute Keras would take it for one, and warn that it isn't built.
        """
        return self._stack_options.positions

    def estimate(self, batch_size: int, length: int) -> Estimate:
        """What a training step takes, before one is run.

        Operations are those of matrix products, two a multiplication: forward, twice
        as many backward, and the blocks forward once more with `remat`. Attention
        counts as it is computed: all T x S pairs, of a causal square those that 128
        queries at a time may see; from 512 x 512 on the pairs of the blocks that are
        not left out, whose scores are computed again for the gradient. Elementwise
        work, some 5 to 10 % more in small models, isn't counted.

        Memory is the peak of a step of Adam under XLA, in float32, where old weights
        and moments make room for the new ones: weights and two moments; embeddings and
        the final norm; what each block keeps for the backward pass (inputs of its
        sublayers, the stream behind them, normalized inputs; queries, keys, values,
        contexts; three tensors of T x S pairs for each head; two to
        six as wide as the feed-forward layer; with `remat` its input only); and five
        tensors of the logits' size or the gradients inside a block, whichever is more.
        Where the gradients of the weights outweigh what the blocks keep, they count in
        its place. On JAX's CPU it was within 15 % of what XLA reserves, with `remat`
        within 25 %; data, compiled programs and a GPU's fused attention are not in it.

        Args:
            batch_size: int. B.
            length: int. T, the tokens of a row; of a source and of a target alike.

        Returns:
            `Estimate(parameters, training_flops, peak_bytes)`.
        """
        return estimate(
            self._stacks(
                check_size("batch_size", batch_size), check_size("length", length)
            ),
            self._logits_size(),
            self.count_params(),
            sum(math.prod(w.shape) for w in self.trainable_weights),
        )

    def _stacks(self, batch: int, length: int) -> list[Stack]:
        """Those of the model, from the input on."""
        raise NotImplementedError(f"{type(self).__name__} must name its stacks.")

    def _logits_size(self) -> int:
        """N, or 0 for a model without logits."""
        raise NotImplementedError(f"{type(self).__name__} must know its logits.")

    def _stack(self, batch: int, length: int, **options: Any) -> Stack:
        return Stack(
            batch=batch,
            length=length,
            num_layers=self.num_layers,
            width=self.hidden_dim,
            heads=self.num_heads,
            key_value_heads=self.num_key_value_heads or self.num_heads,
            intermediate_dim=self._stack_options.feed_forward_dim,
            activation=self.activation,
            norm=self.norm,
            placement=self.placement,
            remat=self.remat,
            **options,
        )

    def get_config(self) -> dict[str, Any]:
        dtype = self._stack_options.dtype
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.saving.serialize_keras_object(dtype),
            "positions": positions_config(self.positions),
            **{name: getattr(self, name) for name in self.OWN_ARGUMENTS},
            **{name: getattr(self, name) for name in STACK_ARGUMENTS},
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        """The model that `get_config` describes."""
        del custom_objects
        return cls(**positions_from_config(config))
