"""Where the sequences of a batch start: after padding, or inside a packed row."""

from keras import ops

from kseq._checks import check_rank
from kseq._typing import Tensor


def segment_starts(segment_ids: Tensor, go_backwards: bool = False) -> Tensor:
    """The first step of every segment of a packed row.

    Args:
        segment_ids: int `(B, T)`. Neighbors with the same id are one segment.
        go_backwards: bool. True for a layer that runs from the last step to the
            first, where a segment starts at its end. Defaults to `False`.

    Returns:
        bool `(B, T)`, the `reset_mask` of a recurrent layer.

    Raises:
        ValueError: `` `segment_ids` must have shape (B, T). ``

    Example:

    >>> starts = kseq.ops.segment_starts([[1, 1, 2, 2, 2, 0]])
    >>> keras.ops.convert_to_numpy(starts).astype(int).tolist()
    [[1, 0, 1, 0, 0, 1]]
    """
    ids = ops.convert_to_tensor(segment_ids)
    check_rank("segment_ids", ids, (2,), "(B, T)")
    change = ops.not_equal(ids[:, 1:], ids[:, :-1])
    edge = ops.ones_like(ids[:, :1], dtype="bool")
    parts = [change, edge] if go_backwards else [edge, change]
    return ops.concatenate(parts, axis=1)


def segment_mask(segment_ids: Tensor) -> Tensor:
    """Which tokens of a packed row are of one segment.

    Args:
        segment_ids: int `(B, T)`. 0 is padding.

    Returns:
        bool `(B, T, T)`, the `attention_mask` of an attention layer: True where both
        tokens are of the same segment, and neither is padding.

    Raises:
        ValueError: `` `segment_ids` must have shape (B, T). ``

    Example:

    >>> mask = kseq.ops.segment_mask([[1, 2, 2, 0]])
    >>> keras.ops.convert_to_numpy(mask[0]).astype(int).tolist()
    [[1, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
    """
    ids = ops.convert_to_tensor(segment_ids)
    check_rank("segment_ids", ids, (2,), "(B, T)")
    rows, columns = ops.expand_dims(ids, 2), ops.expand_dims(ids, 1)
    return ops.logical_and(ops.equal(rows, columns), ops.not_equal(rows, 0))


def started(mask: Tensor, go_backwards: bool = False) -> Tensor:
    """True from the first True of each row of `mask` `(B, T)` on.

    With `go_backwards` a row runs from its last step to its first.
    """
    mask = ops.convert_to_tensor(mask)
    if go_backwards:
        return ops.flip(started(ops.flip(mask, axis=1)), axis=1)
    first = ops.argmax(mask, axis=1, keepdims=True)  # 0 for a row of False
    steps = ops.arange(ops.shape(mask)[1], dtype=first.dtype)
    some = ops.any(mask, axis=1, keepdims=True)
    return ops.logical_and(steps[None] >= first, some)
