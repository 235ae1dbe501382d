"""Tokens after a prompt, in one compiled loop."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from kseq._checks import check_size, message
from kseq._typing import Tensor
from kseq.backend import compiled
from kseq.generation.beam_search import BeamSearch, beam_search
from kseq.generation.checks import check_prompt_array, check_seed, check_stop_ids
from kseq.generation.decode_step import DecodeStep
from kseq.generation.speculative import Speculative, check_methods, speculate
from kseq.generation.token_choice import Greedy, Sampling
from kseq.generation.token_loop import Progress, advance, first_progress

# XLA multiplies a single row on one core of a CPU, two rows on all: a third faster
_FEWEST_ROWS = 2

Strategy = Greedy | Sampling | BeamSearch | Speculative


class Generated(NamedTuple):
    """Rows of tokens after B prompts; with `num_return` R, the axis `(B, R)` for B.

    Attributes:
        token_ids: int32 `(B, L)`. Each row ends with one of the stop ids, unless it
            was cut, and is filled with 0. L is the longest row's length.
        lengths: int32 `(B,)`. How many they are, the stop id included.
        log_probabilities: float32 `(B, L)`. Of each of them by the model itself,
            whatever filters did; 0 behind the end.
        scores: float32 `(B,)`. Their sum, or the score of `BeamSearch`.
    """

    token_ids: np.ndarray
    lengths: np.ndarray
    log_probabilities: np.ndarray
    scores: np.ndarray


def generate(
    model: DecodeStep,
    prompt_ids: Any,
    max_new_tokens: int,
    *,
    strategy: Strategy = Greedy(),  # noqa: B008 it can't change
    stop_ids: Sequence[int] = (),
    seed: int = 0,
    batch_size: int = 128,
) -> Generated:
    """Continues each prompt, in one compiled loop for each batch of them.

    It compiles once for each number of rows up to `batch_size`, length of the prompt,
    `max_new_tokens`, `strategy` and `stop_ids`; the models of `kseq.models` round
    lengths of prompts up in their own `generate`. What was attended to on the way is
    what `kseq.diagnostics.attention_maps` finds in the finished rows, which those
    models make inputs of with `whole_inputs`.

    Args:
        model: a `kseq.generation.DecodeStep`.
        prompt_ids: int array `(B, P)`, as the model's `start` takes it.
        max_new_tokens: int, the most tokens of a row, a stop id included. Id 0,
            padding, is never one of them.
        strategy: `Greedy()`, `Sampling()`, `BeamSearch(4)` or `Speculative(draft)`.
            Defaults to `Greedy()`.
        stop_ids: ids that end a row. Defaults to none.
        seed: int, of `Sampling`: the same one gives the same tokens. Defaults to `0`.
        batch_size: int, prompts decoded at once. Defaults to `128`.

    Returns:
        `Generated(token_ids, lengths, log_probabilities, scores)`.

    Raises:
        ValueError: `` `max_new_tokens` must be a positive integer... `` (`batch_size`
            and `stop_ids` alike).
        TypeError: `` `strategy` must be a Greedy, ... `` and, with `Speculative`,
            `` `model` must read several tokens at once... ``
    """
    prompts, key_of_seed = check_prompt_array(prompt_ids), check_seed(seed)
    if not isinstance(strategy, Strategy):
        raise TypeError(
            message(
                "`strategy` must be a Greedy, Sampling, BeamSearch or Speculative of "
                "kseq.generation.",
                strategy=strategy,
            )
        )
    length, stops = (
        check_size("max_new_tokens", max_new_tokens),
        check_stop_ids(stop_ids),
    )
    variables = list(model.variables)
    if isinstance(strategy, BeamSearch):
        function = _search(model, strategy, length, stops)
    elif isinstance(strategy, Speculative):
        function = _speculate(model, strategy, length, stops)
        variables += strategy.draft.variables
    else:
        function = _choose(model, strategy, length, stops)
    key = ("generate", length, strategy, stops)
    decode = _cached(model, key, function, variables)
    if not len(prompts):
        return _nothing(strategy)
    size = min(check_size("batch_size", batch_size), len(prompts))
    if not isinstance(strategy, BeamSearch):
        size = max(size, _FEWEST_ROWS)
    batches = [
        [ops.convert_to_numpy(x)[:rows] for x in decode(batch, numbers, key_of_seed)]
        for batch, numbers, rows in _batches(prompts, size)
    ]
    token_ids, log_probabilities, scores = map(
        np.concatenate, zip(*batches, strict=True)
    )
    lengths = np.count_nonzero(token_ids, axis=-1).astype("int32")
    longest = max(1, int(lengths.max()))
    return Generated(
        token_ids[..., :longest], lengths, log_probabilities[..., :longest], scores
    )


def stream(
    model: DecodeStep,
    prompt_ids: Any,
    max_new_tokens: int,
    *,
    strategy: Greedy | Sampling = Greedy(),  # noqa: B008 it can't change
    stop_ids: Sequence[int] = (),
    seed: int = 0,
    chunk_size: int = 8,
) -> Iterator[np.ndarray]:
    """Yields tokens as they are made, `chunk_size` of each row at a time.

    They are those of `generate`. To stop, leave the loop.

    Args:
        model: a `kseq.generation.DecodeStep`.
        prompt_ids: int array `(B, P)`, as the model's `start` takes it.
        max_new_tokens: int, the most tokens of a row, a stop id included.
        strategy: `Greedy()` or `Sampling()`. Defaults to `Greedy()`.
        stop_ids: ids that end a row. Defaults to none.
        seed: int, of `Sampling`. Defaults to `0`.
        chunk_size: int, the tokens of one run of the compiled loop. Defaults to `8`.

    Yields:
        int32 `(B, n)`, n at most `chunk_size`; 0 behind the end of a row.

    Raises:
        ValueError and TypeError: as `generate`.
    """
    if not isinstance(strategy, Greedy | Sampling):
        raise TypeError(
            message("`strategy` must be a Greedy or a Sampling.", strategy=strategy)
        )
    length, stops = (
        check_size("max_new_tokens", max_new_tokens),
        check_stop_ids(stop_ids),
    )
    chunk = check_size("chunk_size", chunk_size)
    prompts, key_of_seed = check_prompt_array(prompt_ids), check_seed(seed)
    if not len(prompts):
        return
    filled, rows, count = next(_batches(prompts, max(len(prompts), _FEWEST_ROWS)))

    def begin(prompt_ids: Tensor) -> Progress:
        last, state = model.start(prompt_ids, length)
        return first_progress(_history(model, prompt_ids), last, state, length)

    def go_on(progress: Progress, rows: Tensor, seed: Tensor) -> Progress:
        until = ops.minimum(progress.t + chunk, length)
        return advance(
            model.step, strategy, progress, until, stop_ids=stops, seed=seed, rows=rows
        )

    key = (length, strategy, stops, chunk)
    first = _cached(model, ("begin", length), begin, model.variables)
    more = _cached(model, ("go on", *key), go_on, model.variables)
    progress = first(filled)
    made = 0
    while made < length and not np.all(progress.ended):
        progress = Progress(*more(progress, rows, key_of_seed))
        now = int(progress.t)
        yield ops.convert_to_numpy(progress.token_ids)[:count, -length:][:, made:now]
        made = now


def _nothing(strategy: Strategy) -> Generated:
    """What follows no prompts at all."""
    count = getattr(strategy, "num_return", None)
    shape = (0,) if count is None else (0, count)
    return Generated(
        np.zeros((*shape, 1), "int32"),
        np.zeros(shape, "int32"),
        np.zeros((*shape, 1), "float32"),
        np.zeros(shape, "float32"),
    )


def _search(
    model: DecodeStep, search: BeamSearch, length: int, stop_ids: tuple[int, ...]
) -> Callable[..., Any]:
    def decode(prompt_ids: Tensor, rows: Tensor, seed: Tensor) -> Any:
        del rows, seed
        last, state = model.start(prompt_ids, length)
        found = beam_search(model, search, last, state, length, stop_ids)
        count = search.num_return
        scores, token_ids, log_p = (
            x[:, 0] if count is None else x[:, :count] for x in found
        )
        return token_ids, log_p, scores

    return decode


def _choose(
    model: DecodeStep,
    strategy: Greedy | Sampling,
    length: int,
    stop_ids: tuple[int, ...],
) -> Callable[..., Any]:
    def decode(prompt_ids: Tensor, rows: Tensor, seed: Tensor) -> Any:
        last, state = model.start(prompt_ids, length)
        end = advance(
            model.step,
            strategy,
            first_progress(_history(model, prompt_ids), last, state, length),
            length,
            stop_ids=stop_ids,
            seed=seed,
            rows=rows,
        )
        log_p = end.log_probabilities
        return end.token_ids[:, -length:], log_p, ops.sum(log_p, axis=1)

    return decode


def _speculate(
    model: Any, strategy: Speculative, length: int, stop_ids: tuple[int, ...]
) -> Callable[..., Any]:
    check_methods("model", model, "start", "step", "read", "rewind")

    def decode(prompt_ids: Tensor, rows: Tensor, seed: Tensor) -> Any:
        history = _history(model, prompt_ids)
        end = speculate(
            model,
            strategy,
            prompt_ids,
            history,
            length,
            stop_ids=stop_ids,
            seed=seed,
            rows=rows,
        )
        log_p = end.log_probabilities[:, :length]
        first = history.shape[1]
        token_ids = end.token_ids[:, first : first + length]
        return token_ids, log_p, ops.sum(log_p, axis=1)

    return decode


def _history(model: DecodeStep, prompt_ids: Tensor) -> Tensor:
    """The ids `(B, H)` before the first new one; a source is in another language."""
    return prompt_ids if getattr(model, "continues_prompt", True) else prompt_ids[:, :0]


def _cached(
    model: DecodeStep,
    key: Any,
    function: Callable[..., Any],
    variables: Sequence[keras.Variable],
) -> Callable[..., Any]:
    """The compiled `function`, which is kept beside the model's attributes."""
    programs = vars(model).setdefault("_decoders", {})
    if key not in programs:
        programs[key] = compiled(function, variables)
    return programs[key]


def _batches(
    prompts: np.ndarray, size: int
) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Batches of one size, the numbers of their rows, how many of them are real.

    The last is filled by repeating its first row, so that no shape is new.
    """
    for first in range(0, len(prompts), size):
        count = min(size, len(prompts) - first)
        rows = np.full(size, first, "int32")
        rows[:count] = np.arange(first, first + count)
        yield prompts[rows], rows, count
