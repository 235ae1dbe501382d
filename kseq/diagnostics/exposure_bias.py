"""How much worse a model predicts after its own tokens than after the true ones."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from kseq._checks import message
from kseq._typing import Tensor
from kseq.backend import compiled


class ExposureBias(NamedTuple):
    """Mean crossentropies of the true tokens at T positions, in nats.

    Attributes:
        teacher_forced: float64 `(T,)`. After the true tokens, as in training.
        free_running: float64 `(T,)`. After what the model itself took to be most
            probable, as when it decodes. Both are the same at the first position.
        counts: int `(T,)`. How many rows have a token there; without one the means are
            NaN.
    """

    teacher_forced: np.ndarray
    free_running: np.ndarray
    counts: np.ndarray


def exposure_bias(model: Any, prompt_ids: Any, target_ids: Any) -> ExposureBias:
    """Compares a decoder with teacher forcing and without, position by position.

    Where the second loss grows along the row and the first doesn't, errors add up:
    `kseq.training.ScheduledSampling` trains against it. (After an error the rest of a
    row may still be right, one place further on: the loss counts that as wrong.)

    Args:
        model: a model that goes from token to token (`kseq.generation.DecodeStep`),
            such as those of `kseq.models`.
        prompt_ids: int `(B, P)`, what the model's `start` takes: a source, or the
            beginning of each row.
        target_ids: int `(B, T)`, the true tokens after it, 0 for padding.

    Returns:
        `ExposureBias(teacher_forced, free_running, counts)`.

    Raises:
        ValueError: `` `prompt_ids` and `target_ids` must have as many rows... ``, and
            for ids that are none.

    Example:

    >>> model = kseq.models.TransformerLM(
    ...     vocabulary_size=30, num_layers=1, hidden_dim=8, num_heads=2)
    >>> ids = np.array([[5, 6, 7, 8, 9]])
    >>> bias = kseq.diagnostics.exposure_bias(model, ids[:, :2], ids[:, 2:])
    >>> bias.free_running.shape
    (3,)

    References:
        Ranzato et al., 2015, "Sequence level training with recurrent neural
        networks", arXiv:1511.06732; Bengio et al., 2015, arXiv:1506.03099.
    """
    prompts, targets = np.asarray(prompt_ids), np.asarray(target_ids)
    for name, ids in (("prompt_ids", prompts), ("target_ids", targets)):
        if ids.ndim != 2 or not ids.size or ids.dtype.kind not in "iu":
            raise ValueError(
                message(
                    f"`{name}` must be integers of shape (B, T), at least one.",
                    shape=ids.shape,
                    dtype=str(ids.dtype),
                )
            )
    if len(prompts) != len(targets):
        raise ValueError(
            message(
                "`prompt_ids` and `target_ids` must have as many rows.",
                prompt_ids=prompts.shape,
                target_ids=targets.shape,
            )
        )
    prompts, targets = prompts.astype("int32"), targets.astype("int32")
    length = targets.shape[1]
    # eagerly, for what a compiled program can't refuse: ids, and rows that are too long
    vocabulary = model.step(*model.start(prompts, length))[0].shape[-1]
    if targets.min() < 0 or targets.max() >= vocabulary:
        raise ValueError(
            message(
                f"`target_ids` must lie in [0, {vocabulary}).",
                smallest=int(targets.min()),
                largest=int(targets.max()),
            )
        )
    if hasattr(model, "check_length"):
        model.check_length(int(np.count_nonzero(prompts, axis=1).max()) + length - 1)

    def losses(prompt_ids: Tensor, target_ids: Tensor, free_running: Tensor) -> Tensor:
        last, state = model.start(prompt_ids, length)

        def body(t: Tensor, last: Tensor, found: Tensor, state: Any) -> Any:
            logits, state = model.step(last, state)
            log_p = ops.log_softmax(ops.cast(logits, "float32"))
            true = ops.take(target_ids, t, axis=1)
            loss = -ops.take_along_axis(log_p, true[:, None], axis=-1)
            best = 1 + ops.cast(ops.argmax(log_p[:, 1:], axis=-1), "int32")
            last = ops.where(free_running, best, true)
            return t + 1, last, ops.slice_update(found, (0, t), loss), state

        start = (
            ops.convert_to_tensor(0, "int32"),
            ops.cast(last, "int32"),
            ops.zeros(ops.shape(target_ids), "float32"),
            state,
        )
        return ops.while_loop(lambda t, *_: t < length, body, start)[2]

    run = compiled(losses, model.variables)
    real = targets != 0
    counts = real.sum(0)
    means = []
    for free_running in (False, True):
        found = ops.convert_to_numpy(run(prompts, targets, np.array(free_running)))
        total = np.where(real, found, 0).sum(0, dtype="float64")
        means.append(np.where(counts, total / np.maximum(counts, 1), np.nan))
    return ExposureBias(means[0], means[1], counts)
