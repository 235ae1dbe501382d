"""Scheduled sampling in two passes: for Transformers, which read all tokens at once."""

from typing import Any

import keras
from keras import ops

from kseq._typing import Tensor
from kseq.ops.categorical import draw, without_padding
from kseq.training.sampled_inputs import SampledInputs


@keras.saving.register_keras_serializable(package="kseq")
class TwoPassSampling(SampledInputs):
    """Trains a decoder on true tokens mixed with what it predicts from true tokens.

        z' = model(y);  x_t = y_t with probability p(i), else a draw from softmax(z'_t)
        z = model(x)

    z'_t being the logits of the token at place t, made from those before it. i is the
    number of the update. The first pass has no gradient and no dropout.

    Args:
        model: a model of the next token: a language model over `(B, T)`, or one with
            the inputs of `kseq.models.TransformerSeq2Seq`. Its weights are what is
            trained, and it is what is evaluated and saved.
        gold: p, a number in [0, 1] or a schedule of the number of updates:
            `kseq.training.InverseSigmoid`, or one of `keras.optimizers.schedules`.
        seed: int. Defaults to `None`, a random seed.

    Call arguments:
        inputs: int `(B, T)`, or a dict with `"target_ids"` `(B, T)`, shifted right,
            with padding on the right.
        training: bool. True samples.

    Returns:
        Logits `(B, T, N)`.

    Raises:
        ValueError: `` `gold` must be a probability in [0, 1]... ``

    Example:

    >>> model = kseq.models.TransformerLM(
    ...     vocabulary_size=30, num_layers=1, hidden_dim=8, num_heads=2)
    >>> trainer = kseq.training.TwoPassSampling(model, gold=0.75)
    >>> trainer.compile("adam", loss=kseq.training.MaskedCrossentropy())
    >>> ids = np.array([[1, 7, 8, 2]])
    >>> history = trainer.fit(ids[:, :-1], ids[:, 1:], verbose=0)

    References:
        Mihaylova & Martins, 2019, "Scheduled sampling for transformers",
        arXiv:1906.07651.
    """

    def sampled(self, inputs: Any, gold: Tensor) -> Tensor:
        seeds = self.seed_generator.next(), self.seed_generator.next()
        target = inputs["target_ids"] if isinstance(inputs, dict) else inputs
        target = ops.cast(target, "int32")
        logits = ops.stop_gradient(self.model(inputs, training=False))
        rows = ops.arange(ops.shape(target)[0], dtype="int32")[:, None]
        places = ops.arange(ops.shape(target)[1], dtype="int32")
        likely = without_padding(ops.cast(logits, "float32"))
        drawn = draw(likely, seeds[1], rows, places)
        drawn = ops.concatenate([target[:, :1], drawn[:, :-1]], axis=1)
        kept = ops.logical_or(self.is_gold(target, gold, seeds[0]), target == 0)
        mixed = ops.where(kept, target, drawn)
        if isinstance(inputs, dict):
            return self.model({**inputs, "target_ids": mixed}, training=True)
        return self.model(mixed, training=True)
