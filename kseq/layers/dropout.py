"""Dropout that stays cheap under XLA."""

from typing import Any

import keras

from kseq._checks import check_floating, check_rate
from kseq._typing import Shape, Tensor
from kseq.ops.dropout import dropout


@keras.saving.register_keras_serializable(package="kseq")
class Dropout(keras.layers.Layer):
    """Zeros a share of the inputs in training, and scales the rest.

        y = x * m / (1 - rate),  m ~ Bernoulli(1 - rate) for each element

    What `keras.layers.Dropout` computes without `noise_shape`. Under XLA on a CPU,
    Keras's random bits cost more than the rest of a small model: these are a hash of
    the seed and of the element's place, which costs next to nothing
    (`tests/benchmarks/bench_dropout.py`).

    Args:
        rate: probability in [0, 1) that an element is dropped.
        seed: int. Defaults to `None`, a random seed.

    Call arguments:
        inputs: float, any shape.
        training: bool. True applies dropout.

    Returns:
        The shape and dtype of `inputs`.

    Masking: the mask is passed on.

    Raises:
        ValueError: `` `rate` must be a probability in [0, 1)... ``
        TypeError: `` `inputs` must be floating-point... ``

    Example:

    >>> layer = kseq.layers.Dropout(0.5)
    >>> tuple(layer(keras.ops.ones((2, 3)), training=True).shape)
    (2, 3)

    References:
        Srivastava et al., 2014, "Dropout: a simple way to prevent neural networks
        from overfitting", JMLR 15.
    """

    def __init__(self, rate: float, *, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = check_rate("rate", rate)
        self.seed = seed
        if self.rate:
            self.seed_generator = keras.random.SeedGenerator(seed)
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        del input_shape

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        check_floating("inputs", inputs)
        if training and self.rate:
            return dropout(inputs, self.rate, self.seed_generator)
        return inputs

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}
