"""What both forms of scheduled sampling share: which tokens are true ones."""

from numbers import Real
from typing import Any

import keras
from keras import ops

from kseq._checks import message
from kseq._typing import Tensor
from kseq.ops.hash_bits import hash_uniform


class SampledInputs(keras.Model):
    """Base: trains a model on inputs of which some are what it predicts itself.

    Args:
        model: a Keras model from tokens to logits. Its weights are what is trained,
            and it is what is evaluated and saved.
        gold: the probability of a true token, a number in [0, 1] or a schedule of the
            number of updates: `kseq.training.InverseSigmoid`, or one of
            `keras.optimizers.schedules`.
        seed: int. Defaults to `None`, a random seed.
    """

    def __init__(
        self, model: keras.Model, gold: Any, *, seed: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        number = isinstance(gold, Real) and 0 <= float(gold) <= 1
        if not callable(gold) and not number:
            raise ValueError(
                message(
                    "`gold` must be a probability in [0, 1], that of a true token, or "
                    "a schedule of it.",
                    gold=gold,
                )
            )
        self.model = model
        self.gold = gold
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.updates = self.add_weight(
            name="updates",
            shape=(),
            initializer="zeros",
            dtype="int32",
            trainable=False,
        )

    def build(self, input_shape: Any) -> None:
        del input_shape

    def call(self, inputs: Any, training: bool = False) -> Tensor:
        if not training:
            return self.model(inputs)
        gold = self.gold(self.updates) if callable(self.gold) else self.gold
        self.updates.assign_add(1)
        return self.sampled(inputs, ops.cast(gold, "float32"))

    def sampled(self, inputs: Any, gold: Tensor) -> Tensor:
        """Logits of which each true input has the probability `gold`."""
        raise NotImplementedError(f"{type(self).__name__} must sample.")

    def is_gold(self, token_ids: Tensor, gold: Tensor, seed: Tensor) -> Tensor:
        """Where the true token stays, bool `(B, T)`: at first, and at random."""
        rows, places = (ops.arange(n, dtype="int32") for n in ops.shape(token_ids))
        uniform = hash_uniform(seed, rows[:, None], places)
        return ops.logical_or(uniform < gold, places == 0)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return self.model.compute_output_shape(input_shape)

    def get_config(self) -> dict[str, Any]:
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "model": serialize(self.model),
            "gold": serialize(self.gold),
            "seed": self.seed,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> "SampledInputs":
        """The trainer that `get_config` describes."""
        deserialize = keras.saving.deserialize_keras_object
        return cls(
            **{
                **config,
                "model": deserialize(config["model"], custom_objects=custom_objects),
                "gold": deserialize(config["gold"], custom_objects=custom_objects),
            }
        )
