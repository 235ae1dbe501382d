"""Beam search in one loop, with finished hypotheses set aside."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from keras import ops

from kseq._checks import check_at_least_zero, check_size, message
from kseq._typing import Tensor
from kseq.generation.checks import check_logits, check_start
from kseq.generation.decode_step import DecodeStep, State, reorder, take_rows
from kseq.ops.categorical import without_padding


@dataclass(frozen=True)
class BeamSearch:
    """Finds the most probable row of tokens, keeping `num_beams` beginnings of it.

        score(y) = log P(y) / lp(n) + cp,  lp(n) = ((5 + n) / 6)^length_penalty
        cp = coverage_penalty sum_j log min(sum_t a_tj, 1)

    n counts the tokens of y, its end included; a_tj is the attention of step t to place
    j of the source, padding left out. A hypothesis that has ended leaves the
    beam for a list of the best, and its place goes to another that has not. The search
    stops when no beginning can still become better than the list: as log P and cp only
    fall or stay, and lp grows, none scores more than log P / lp(longest).

    With as many beams as there are beginnings it is exhaustive search; with one and
    `length_penalty=0` it finds what `Greedy` finds, or better.

    Args:
        num_beams: int. K.
        length_penalty: float, at least 0: alpha of Wu et al., who took 0.6 to 1. Above
            0 long rows gain. Defaults to `0.0`.
        coverage_penalty: float, at least 0: beta of Wu et al., who took 0.2. Above 0
            rows lose that leave places of the source without attention. For a model
            with a `coverage`, such as `kseq.models.RecurrentSeq2Seq`. Defaults to
            `0.0`.
        num_return: int, at most K. How many rows to return for each prompt, the best
            first, on a new axis; where there are fewer, the rest have score -inf and
            length 0. None returns the best, without the axis.

    References:
        Wu et al., 2016, "Google's neural machine translation system",
        arXiv:1609.08144, section 7.
    """

    num_beams: int
    length_penalty: float = 0.0
    coverage_penalty: float = 0.0
    num_return: int | None = None

    def __post_init__(self) -> None:
        check_size("num_beams", self.num_beams)
        check_at_least_zero("length_penalty", self.length_penalty)
        check_at_least_zero("coverage_penalty", self.coverage_penalty)
        if self.num_return is not None:
            check_size("num_return", self.num_return)
            if self.num_return > self.num_beams:
                raise ValueError(
                    message(
                        "`num_return` must be at most `num_beams`.",
                        num_return=self.num_return,
                        num_beams=self.num_beams,
                    )
                )

    def lengths_penalty(self, length: Tensor) -> Tensor:
        """The lp of a number of tokens."""
        return ((5.0 + ops.cast(length, "float32")) / 6.0) ** self.length_penalty

    def coverages_penalty(self, model: Any, state: State) -> Tensor:
        """The cp of each row of a state, `(B K,)`."""
        if not hasattr(model, "coverage"):
            raise TypeError(
                message(
                    "`coverage_penalty` needs a model with a `coverage`.",
                    fix="Its sum of attention weights over the steps, and its mask.",
                    model=type(model).__name__,
                )
            )
        coverage, mask = model.coverage(state)
        # weights that are exactly 0 all along would outweigh everything
        logs = ops.log(ops.clip(coverage, 1e-9, 1.0))
        return self.coverage_penalty * ops.sum(ops.where(mask, logs, 0.0), axis=-1)


class Hypotheses(NamedTuple):
    """K rows of tokens for each of B prompts.

    Attributes:
        scores: float32 `(B, K)`; -inf where there is none.
        token_ids: int `(B, K, L)`.
        log_probabilities: float32 `(B, K, L)`.
    """

    scores: Tensor
    token_ids: Tensor
    log_probabilities: Tensor


class _Search(NamedTuple):
    t: Tensor
    live: Hypotheses  # their scores are log P
    ended: Hypotheses
    last: Tensor  # (B K,)
    state: State


def beam_search(
    model: DecodeStep,
    search: BeamSearch,
    last: Tensor,
    state: State,
    length: int,
    stop_ids: tuple[int, ...],
) -> Hypotheses:
    """The best rows after `last` `(B,)`, best first, of at most `length` tokens."""
    batch, beams = ops.shape(last)[0], search.num_beams
    first_row = ops.arange(batch, dtype="int32")[:, None] * beams
    longest = search.lengths_penalty(length)

    def coverage(state: State) -> Any:
        if not search.coverage_penalty:
            return 0.0
        return ops.reshape(search.coverages_penalty(model, state), (batch, beams))

    def more(*now: Any) -> Tensor:
        now = _Search(*now)
        best = ops.max(now.live.scores, axis=1) / longest
        worst_kept = now.ended.scores[:, (search.num_return or 1) - 1]
        return ops.logical_and(now.t < length, ops.any(best > worst_kept))

    def body(*now: Any) -> tuple[Any, ...]:
        now = _Search(*now)
        logits, state = model.step(now.last, now.state)
        log_p = without_padding(ops.log_softmax(check_logits(logits, stop_ids)))
        log_p = ops.reshape(log_p, (batch, beams, -1))
        ended, covered = now.ended, coverage(state)
        for stop in stop_ids:
            ends = _extended(now.live, log_p[..., stop], stop, now.t)
            scores = ends.scores / search.lengths_penalty(now.t + 1) + covered
            ended = _best(ended, ends._replace(scores=scores))
            log_p = _without(log_p, stop)
        live, beam, token = _continued(now.live, log_p, now.t)
        rows = ops.reshape(first_row + beam, (-1,))
        return _Search(
            now.t + 1,
            live,
            ended,
            ops.reshape(token, (-1,)),
            reorder(model, state, rows),
        )

    start = _Search(
        ops.convert_to_tensor(0, "int32"),
        _no_hypotheses(batch, beams, length, first=0.0),
        _no_hypotheses(batch, beams, length, first=float("-inf")),
        ops.repeat(check_start(last), beams),
        take_rows(state, ops.repeat(ops.arange(batch, dtype="int32"), beams)),
    )
    end = _Search(*ops.while_loop(more, body, tuple(start)))
    # what has not ended by then is a row only if there was no room for more
    cut = end.live.scores / longest + coverage(end.state)
    cut = ops.where(end.t < length, float("-inf"), cut)
    best = _best(end.ended, end.live._replace(scores=cut))
    there = ops.isfinite(best.scores)[..., None]
    return Hypotheses(
        best.scores,
        ops.where(there, best.token_ids, 0),
        ops.where(there, best.log_probabilities, 0.0),
    )


def _no_hypotheses(batch: Any, beams: int, length: int, first: float) -> Hypotheses:
    scores = [first] + [float("-inf")] * (beams - 1)
    return Hypotheses(
        ops.tile(ops.convert_to_tensor([scores], "float32"), (batch, 1)),
        ops.zeros((batch, beams, length), "int32"),
        ops.zeros((batch, beams, length), "float32"),
    )


def _extended(live: Hypotheses, log_p: Tensor, token: int, t: Tensor) -> Hypotheses:
    """Every live hypothesis with `token` as its t-th."""
    tokens = ops.full_like(live.token_ids[..., :1], token)
    return Hypotheses(
        live.scores + log_p,
        ops.slice_update(live.token_ids, (0, 0, t), tokens),
        ops.slice_update(live.log_probabilities, (0, 0, t), log_p[..., None]),
    )


def _continued(
    live: Hypotheses, log_p: Tensor, t: Tensor
) -> tuple[Hypotheses, Tensor, Tensor]:
    """The K best that go on, of all tokens of all beams; from which beam; by what."""
    beams, vocabulary = log_p.shape[1:]
    totals = ops.reshape(live.scores[..., None] + log_p, (-1, beams * vocabulary))
    scores, places = ops.top_k(totals, beams)
    places = ops.cast(places, "int32")
    beam, token = places // vocabulary, places % vocabulary
    old = _taken(live, beam)
    new = ops.take_along_axis(ops.reshape(log_p, ops.shape(totals)), places, axis=1)
    live = Hypotheses(
        scores,
        ops.slice_update(old.token_ids, (0, 0, t), token[..., None]),
        ops.slice_update(old.log_probabilities, (0, 0, t), new[..., None]),
    )
    return live, beam, token


def _best(one: Hypotheses, other: Hypotheses) -> Hypotheses:
    """The K best of two times K."""
    both = Hypotheses(
        *(ops.concatenate(pair, axis=1) for pair in zip(one, other, strict=True))
    )
    places = ops.top_k(both.scores, one.scores.shape[1])[1]
    return _taken(both, ops.cast(places, "int32"))


def _taken(hypotheses: Hypotheses, places: Tensor) -> Hypotheses:
    scores, *rows = hypotheses
    return Hypotheses(
        ops.take_along_axis(scores, places, axis=1),
        *(ops.take_along_axis(x, places[..., None], axis=1) for x in rows),
    )


def _without(log_p: Tensor, token: int) -> Tensor:
    place = ops.arange(log_p.shape[-1], dtype="int32") == token
    return ops.where(place, float("-inf"), log_p)
