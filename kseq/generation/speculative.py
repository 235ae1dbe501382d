"""Speculative decoding: a draft guesses tokens, the model checks them at once."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from keras import ops

from kseq._checks import check_size, message
from kseq._typing import Tensor
from kseq.generation.checks import check_logits, check_start
from kseq.generation.decode_step import DecodeStep, State
from kseq.generation.token_choice import Greedy, Sampling
from kseq.generation.token_loop import is_one_of
from kseq.ops.categorical import draw, without_padding
from kseq.ops.hash_bits import hash_uniform


class Rewinding(DecodeStep, Protocol):
    """A model that can forget the last tokens that it has read."""

    def rewind(self, state: State, counts: Tensor) -> State:
        """The state without the last `counts` `(B,)` tokens that were read."""


class Reading(Rewinding, Protocol):
    """A model that also reads several tokens at once."""

    def read(self, token_ids: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits `(B, T, N)` of what follows each of `token_ids`, and the state."""


@dataclass(frozen=True)
class Speculative:
    """Chooses as `choice` does, with fewer runs of the model.

    A draft q guesses K tokens x_1 .. x_K, which the model p reads in one pass:

        x_i is kept if u_i q_i(x_i) < p_i(x_i) and all before it are kept, u_i ~ U(0, 1)
        instead of the first that isn't: y ~ max(p_i - q_i, 0), normalized
        behind K that are: y ~ p_{K+1}

    What comes out has exactly the model's distribution, whatever the draft. With
    `Greedy` it is what the model finds alone. A round of one pass makes 1 to K + 1
    tokens of each row.

    Args:
        draft: a smaller model over the same ids, which takes the same prompts, or
            `PromptLookup(vocabulary_size)`, which needs no weights.
        num_draft: int. K. Defaults to `4`.
        choice: `Greedy()` or `Sampling()`, whose filters hold for both. (A seed then
            gives other tokens than without a draft.) Defaults to `Greedy()`.

    Both need `rewind`, the model `read` too, as `kseq.models.TransformerLM` and
    `TransformerSeq2Seq` have them, without a window.

    References:
        Leviathan et al., 2023, "Fast inference from transformers via speculative
        decoding", arXiv:2211.17192; Chen et al., 2023, arXiv:2302.01318.
    """

    draft: Any
    num_draft: int = 4
    choice: Greedy | Sampling = Greedy()  # noqa: RUF009 it can't change

    def __post_init__(self) -> None:
        check_size("num_draft", self.num_draft)
        check_methods("draft", self.draft, "start", "step", "rewind")
        if not isinstance(self.choice, Greedy | Sampling):
            raise TypeError(
                message("`choice` must be a Greedy or a Sampling.", choice=self.choice)
            )


class Rows(NamedTuple):
    """Where the decoding of B rows stands, each at its own place.

    Attributes:
        made: int `(B,)`. How many tokens a row has.
        rounds: int `()`. How often the model has run.
        token_ids: int `(B, H + L + K + 1)`. The history and what follows it.
        log_probabilities: float32 `(B, L + K + 1)`. By the model itself.
        last: int `(B,)`. What is read next.
        ended: bool `(B,)`.
        state: that of the model.
        draft_state: that of the draft.
    """

    made: Tensor
    rounds: Tensor
    token_ids: Tensor
    log_probabilities: Tensor
    last: Tensor
    ended: Tensor
    state: State
    draft_state: State


def speculate(
    model: Reading,
    strategy: Speculative,
    prompt_ids: Tensor,
    history: Tensor,
    length: int,
    *,
    stop_ids: tuple[int, ...],
    seed: Tensor,
    rows: Tensor,
) -> Rows:
    """At most `length` tokens after each prompt; behind the end stand zeros.

    `history` `(B, H)` is what filters see of the prompt.
    """
    slack = strategy.num_draft + 1  # a last round may go on past the length
    none = ops.zeros_like(rows)
    last, state = model.start(prompt_ids, length + slack)
    draft_state = strategy.draft.start(prompt_ids, length + slack)[1]
    start = Rows(
        none,
        ops.convert_to_tensor(0, "int32"),
        ops.pad(ops.cast(history, "int32"), ((0, 0), (0, length + slack))),
        ops.zeros((ops.shape(rows)[0], length + slack), "float32"),
        check_start(last),
        ops.zeros_like(none, "bool"),
        # a loop changes no shapes, and rows are rewound by numbers of their own
        model.rewind(state, none),
        strategy.draft.rewind(draft_state, none),
    )

    def more(*now: Any) -> Tensor:
        return ops.logical_not(ops.all(Rows(*now).ended))

    def body(*now: Any) -> tuple[Any, ...]:
        return _round(
            model, strategy, Rows(*now), length, stop_ids=stop_ids, seed=seed, rows=rows
        )

    return Rows(*ops.while_loop(more, body, tuple(start)))


def _round(
    model: Reading,
    strategy: Speculative,
    now: Rows,
    length: int,
    *,
    stop_ids: tuple[int, ...],
    seed: Tensor,
    rows: Tensor,
) -> Rows:
    first = now.token_ids.shape[1] - now.log_probabilities.shape[1]
    guesses, draft_log_p, histories, draft_state = _guess(
        strategy, now, first, seed, rows
    )
    read = ops.stack([now.last, *guesses], axis=1)  # (B, K + 1)
    logits, state = model.read(read, now.state)
    check_logits(logits[:, 0], stop_ids)
    logits = ops.cast(logits, "float32")
    if draft_log_p[0].shape[-1] != logits.shape[-1]:
        raise ValueError(
            message(
                "`draft` must have the vocabulary of the model.",
                draft=draft_log_p[0].shape[-1],
                model=logits.shape[-1],
            )
        )
    log_p = [
        _filtered(strategy.choice, logits[:, i], history)
        for i, history in enumerate(histories)
    ]
    kept = _count_kept(guesses, draft_log_p, log_p, seed, rows, now.made)  # (B,)
    instead = _draw_instead(draft_log_p, log_p, kept, seed, rows, now.made)

    places = ops.arange(read.shape[1], dtype="int32")  # (K + 1,)
    new = ops.where(places < kept[:, None], ops.roll(read, -1, axis=1), 0)
    new = ops.where(places == kept[:, None], instead[:, None], new)
    # what stands behind a stop, or past the length, was not made
    stops = ops.cast(is_one_of(new, stop_ids), "int32")
    before = ops.cumsum(stops, axis=1) - stops
    there = ops.logical_and(
        places <= kept[:, None], now.made[:, None] + places < length
    )
    there = ops.logical_and(there, before == 0)
    there = ops.logical_and(there, ops.logical_not(now.ended)[:, None])
    new = ops.where(there, new, 0)
    count = ops.sum(ops.cast(there, "int32"), axis=1)

    total = ops.take_along_axis(ops.log_softmax(logits), new[..., None], axis=-1)
    total = ops.where(there, total[..., 0], 0.0)
    made = now.made + count
    ended = ops.any(ops.logical_and(there, stops > 0), axis=1)
    ended = ops.logical_or(ops.logical_or(now.ended, ended), made >= length)
    # of K + 1 tokens that were read, those before the last new one hold
    forgotten = read.shape[1] - ops.where(ended, 0, kept + 1)
    return Rows(
        made,
        now.rounds + 1,
        _written(now.token_ids, new, first + now.made),
        _written(now.log_probabilities, total, now.made),
        ops.where(ended, now.last, instead),
        ended,
        model.rewind(state, forgotten),
        strategy.draft.rewind(draft_state, forgotten),
    )


def _guess(
    strategy: Speculative, now: Rows, first: int, seed: Tensor, rows: Tensor
) -> tuple[list[Tensor], list[Tensor], list[Tensor], State]:
    """K ids, their distributions, the history before each and after all, the state."""
    last, state, history = now.last, now.draft_state, now.token_ids
    guesses: list[Tensor] = []
    log_q: list[Tensor] = []
    histories = [history]
    for i in range(strategy.num_draft):
        logits, state = strategy.draft.step(last, state)
        logits = ops.cast(logits, "float32")
        log_q.append(_filtered(strategy.choice, logits, history))
        last = draw(log_q[-1], _stream(seed, 1), rows, now.made + i)
        guesses.append(last)
        history = _written(history, last[:, None], first + now.made + i)
        histories.append(history)
    # the last guess may be kept, and is then in the state of the model
    return guesses, log_q, histories, strategy.draft.step(last, state)[1]


def _stream(seed: Tensor, number: int) -> Tensor:
    """A seed whose random numbers have nothing to do with those of the others."""
    return seed + ops.convert_to_tensor([0, number], "int32")


def _filtered(choice: Greedy | Sampling, logits: Tensor, history: Tensor) -> Tensor:
    """Log-probabilities of what is chosen from `logits`."""
    logits = without_padding(logits)
    for change in choice.filters:
        logits = change(logits, history)
    return choice.log_probabilities(logits)


def _count_kept(
    guesses: list[Tensor],
    log_q: list[Tensor],
    log_p: list[Tensor],
    seed: Tensor,
    rows: Tensor,
    made: Tensor,
) -> Tensor:
    going = ops.ones_like(made, "bool")
    count = ops.zeros_like(made)
    for i, guess in enumerate(guesses):
        q, p = (
            ops.take_along_axis(x[i], guess[:, None], axis=-1)[:, 0]
            for x in (log_q, log_p)
        )
        uniform = hash_uniform(_stream(seed, 2), rows, made + i)
        going = ops.logical_and(going, ops.log(uniform) + q < p)
        count = count + ops.cast(going, "int32")
    return count


def _draw_instead(
    log_q: list[Tensor],
    log_p: list[Tensor],
    kept: Tensor,
    seed: Tensor,
    rows: Tensor,
    made: Tensor,
) -> Tensor:
    """The token behind those that were kept."""
    found = None
    for i, p in enumerate(log_p):
        rest = p
        if i < len(log_q):
            rest = ops.log(ops.maximum(ops.exp(p) - ops.exp(log_q[i]), 0))
        found = rest if found is None else ops.where(kept[:, None] == i, rest, found)
    return draw(found, _stream(seed, 3), rows, made + kept)


def _written(old: Tensor, new: Tensor, first: Tensor) -> Tensor:
    """`old` `(B, H)` with `new` `(B, n)` from the place `first` `(B,)` on."""
    places = first[:, None] + ops.arange(new.shape[1], dtype="int32")
    rows = ops.broadcast_to(
        ops.arange(ops.shape(new)[0], dtype="int32")[:, None], ops.shape(places)
    )
    indices = ops.reshape(ops.stack([rows, places], axis=-1), (-1, 2))
    return ops.scatter_update(old, indices, ops.reshape(new, (-1,)))


def check_methods(name: str, model: Any, *methods: str) -> None:
    """Refuses a model that can't do what it is needed for."""
    missing = [method for method in methods if not hasattr(model, method)]
    if missing:
        raise TypeError(
            message(
                f"`{name}` must read several tokens at once, and forget them.",
                fix="The Transformers of `kseq.models` do; a recurrent state can't.",
                model=type(model).__name__,
                missing=missing,
            )
        )
