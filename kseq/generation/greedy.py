"""Greedy decoding in one loop."""

from collections.abc import Callable
from typing import Any

from keras import ops

from kseq._typing import Tensor

Tree = Any  # nested lists, tuples and dictionaries of tensors


def greedy_decode(
    step: Callable[[Tensor, Tree], tuple[Tensor, Tree]],
    state: Tree,
    *,
    batch_size: Any,
    start_id: int,
    end_id: int,
    max_length: int,
    pad_id: int = 0,
) -> Tensor:
    """Takes the most probable token at each step, until every row has ended.

        y_0 = start;  logits_t, state_t = step(y_{t-1}, state_{t-1})
        y_t = argmax logits_t, padding left out

    Args:
        step: function of `(token_ids (B,), state)` that returns logits `(B, N)` and
            the new state, of the old one's structure, shapes and dtypes.
        state: tree of tensors, the state before the first token.
        batch_size: B.
        start_id: id that every row starts from; it is not returned.
        end_id: id that ends a row; it is returned as the last id of the row.
        max_length: int, the most ids of a row, the end included.
        pad_id: id that fills a row after its end. Defaults to `0`.

    Returns:
        int32 `(B, max_length)`.
    """
    tokens = ops.full((batch_size, max_length), pad_id, dtype="int32")
    last = ops.full((batch_size,), start_id, dtype="int32")
    ended = ops.zeros((batch_size,), dtype="bool")

    def more(t: Tensor, tokens: Tensor, last: Tensor, ended: Tensor, _: Tree) -> Tensor:
        return ops.logical_and(t < max_length, ops.any(ops.logical_not(ended)))

    def body(
        t: Tensor, tokens: Tensor, last: Tensor, ended: Tensor, state: Tree
    ) -> Any:
        logits, state = step(last, state)
        padding = ops.arange(logits.shape[-1]) == pad_id
        logits = ops.where(padding, float("-inf"), ops.cast(logits, "float32"))
        last = ops.cast(ops.argmax(logits, axis=-1), "int32")
        last = ops.where(ended, pad_id, last)
        tokens = ops.slice_update(tokens, (0, t), ops.expand_dims(last, 1))
        return t + 1, tokens, last, ops.logical_or(ended, last == end_id), state

    start = (ops.convert_to_tensor(0, "int32"), tokens, last, ended, state)
    return ops.while_loop(more, body, start)[1]
