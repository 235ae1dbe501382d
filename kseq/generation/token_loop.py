"""The loop that makes one token a row at each step."""

from typing import Any, NamedTuple

from keras import ops

from kseq._typing import Tensor
from kseq.generation.checks import check_logits, check_start
from kseq.generation.decode_step import State, Step
from kseq.generation.token_choice import Greedy, Sampling
from kseq.ops.categorical import without_padding


class Progress(NamedTuple):
    """Where the decoding of B rows stands.

    Attributes:
        t: int `()`. How many tokens were made.
        token_ids: int `(B, H + L)`. The history and what follows it, then 0.
        log_probabilities: float32 `(B, L)`. Of each new token, by the model itself.
        last: int `(B,)`. What the next step reads.
        ended: bool `(B,)`.
        state: that of the model.
    """

    t: Tensor
    token_ids: Tensor
    log_probabilities: Tensor
    last: Tensor
    ended: Tensor
    state: State


def first_progress(
    history: Tensor, last: Tensor, state: State, length: int
) -> Progress:
    """Before the first of `length` new tokens, after `history` `(B, H)`."""
    last = check_start(last)
    batch = ops.shape(last)[0]
    room = ops.zeros((batch, length), "int32")
    return Progress(
        ops.convert_to_tensor(0, "int32"),
        ops.concatenate([ops.cast(history, "int32"), room], axis=1),
        ops.zeros((batch, length), "float32"),
        last,
        ops.zeros((batch,), "bool"),
        state,
    )


def advance(
    step: Step,
    strategy: Greedy | Sampling,
    progress: Progress,
    until: Tensor,
    *,
    stop_ids: tuple[int, ...],
    seed: Tensor,
    rows: Tensor,
) -> Progress:
    """Makes tokens until there are `until` of them, or every row has ended.

        z_t, state_t = step(y_{t-1}, state_{t-1});  y_t = choose(filters(z_t))

    Id 0, padding, is never chosen. A row that has ended is filled with it; so is one of
    which filters leave no token.
    """
    new = progress.log_probabilities.shape[1]
    first = progress.token_ids.shape[1] - new

    def more(*progress: Any) -> Tensor:
        now = Progress(*progress)
        return ops.logical_and(now.t < until, ops.logical_not(ops.all(now.ended)))

    def body(*progress: Any) -> tuple[Any, ...]:
        now = Progress(*progress)
        logits, state = step(now.last, now.state)
        logits = check_logits(logits, stop_ids)
        chosen_from = without_padding(logits)
        for change in strategy.filters:
            chosen_from = change(chosen_from, now.token_ids)
        chosen = strategy.choose(chosen_from, seed, rows, now.t)
        chosen = ops.where(now.ended, 0, chosen)
        none = chosen == 0  # also where filters have left nothing
        log_p = ops.take_along_axis(ops.log_softmax(logits), chosen[:, None], axis=-1)
        log_p = ops.where(none[:, None], 0.0, log_p)
        return Progress(
            now.t + 1,
            ops.slice_update(now.token_ids, (0, first + now.t), chosen[:, None]),
            ops.slice_update(now.log_probabilities, (0, now.t), log_p),
            chosen,
            ops.logical_or(none, is_one_of(chosen, stop_ids)),
            state,
        )

    return Progress(*ops.while_loop(more, body, tuple(progress)))


def is_one_of(token_ids: Tensor, stop_ids: tuple[int, ...]) -> Tensor:
    """Where a token ends its row."""
    found = ops.zeros_like(token_ids, "bool")
    for stop in stop_ids:
        found = ops.logical_or(found, token_ids == stop)
    return found
