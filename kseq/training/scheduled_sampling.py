"""Scheduled sampling, token by token: for recurrent decoders."""

from typing import Any

import keras
from keras import ops

from kseq._typing import Tensor
from kseq.backend import scan
from kseq.ops.categorical import draw, without_padding
from kseq.training.sampled_inputs import SampledInputs

Tree = Any  # nested lists, tuples and dictionaries of tensors


@keras.saving.register_keras_serializable(package="kseq")
class ScheduledSampling(SampledInputs):
    """Trains a decoder on true tokens and on its own, which it meets when it decodes.

        x_t = y_{t-1} with probability p(i), else a draw from softmax(z_{t-1})
        z_t, state_t = step(x_t, state_{t-1})

    i is the number of the update. A draw has no gradient. The loop over time is one
    compiled program, forward and backward; dropout of the decoder is left out.

    Args:
        model: a model with `empty_state` and `step`, such as
            `kseq.models.RecurrentSeq2Seq`. Its weights are what is trained, and it is
            what is evaluated and saved.
        gold: p, a number in [0, 1] or a schedule of the number of updates:
            `kseq.training.InverseSigmoid`, or one of `keras.optimizers.schedules`.
        seed: int. Defaults to `None`, a random seed.

    Call arguments:
        inputs: dict of `"source_ids"` `(B, S)` and `"target_ids"` `(B, T)`, shifted
            right, with padding on the right.
        training: bool. True samples.

    Returns:
        Logits `(B, T, N)`.

    Raises:
        ValueError: `` `gold` must be a probability in [0, 1]... ``

    Example:

    >>> model = kseq.models.RecurrentSeq2Seq(
    ...     source_vocabulary_size=30, target_vocabulary_size=42,
    ...     embedding_dim=8, units=16)
    >>> trainer = kseq.training.ScheduledSampling(
    ...     model, kseq.training.InverseSigmoid(1000))
    >>> trainer.compile("adam", loss=kseq.training.MaskedCrossentropy())
    >>> x = {"source_ids": np.array([[4, 5, 2]]), "target_ids": np.array([[1, 7, 8]])}
    >>> history = trainer.fit(x, np.array([[7, 8, 2]]), verbose=0)

    References:
        Bengio et al., 2015, "Scheduled sampling for sequence prediction with
        recurrent neural networks", arXiv:1506.03099.
    """

    def sampled(self, inputs: Any, gold: Tensor) -> Tensor:
        source, target = inputs["source_ids"], ops.cast(inputs["target_ids"], "int32")
        variables = self.model.trainable_variables
        seeds = self.seed_generator.next(), self.seed_generator.next()
        rows = ops.arange(ops.shape(target)[0], dtype="int32")
        xs = (
            ops.transpose(target),
            ops.transpose(self.is_gold(target, gold, seeds[0])),
            ops.arange(ops.shape(target)[1], dtype="int32"),
        )
        state = self.model.empty_state(source, target.shape[1])
        flat = keras.tree.flatten(state)
        new = keras.tree.flatten(self.model.step(target[:, 0], state)[1])
        # what a step passes on, such as the memory, is not kept for each step again
        changing = [old is not same for old, same in zip(flat, new, strict=True)]

        def step(constants: Tree, carry: Tree, x: Tree) -> tuple[Tree, Tensor]:
            values, fixed = constants
            last, states = carry
            true, is_true, t = x
            given, states = iter(fixed), iter(states)
            now = [next(states if c else given) for c in changing]
            token = ops.where(ops.logical_or(is_true, true == 0), true, last)
            with keras.StatelessScope(zip(variables, values, strict=True)):
                logits, after = self.model.step(
                    token, keras.tree.pack_sequence_as(state, now)
                )
            after = keras.tree.flatten(after)
            kept = [leaf for leaf, c in zip(after, changing, strict=True) if c]
            likely = without_padding(ops.cast(ops.stop_gradient(logits), "float32"))
            drawn = draw(likely, seeds[1], rows, t)
            return (drawn, kept), logits

        fixed = [leaf for leaf, c in zip(flat, changing, strict=True) if not c]
        first = [leaf for leaf, c in zip(flat, changing, strict=True) if c]
        values = [ops.convert_to_tensor(v) for v in variables]
        _, logits = scan(step, (target[:, 0], first), xs, (values, fixed))
        return ops.transpose(logits, (1, 0, 2))
