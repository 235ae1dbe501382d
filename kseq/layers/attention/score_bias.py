"""What a relative bias adds to the scores of queries and keys."""

from keras import ops

from kseq._typing import Tensor
from kseq.layers.positions.relative_bias import RelativeBias


def score_bias(
    bias: RelativeBias | None,
    queries: Tensor,
    keys: Tensor,
    positions: Tensor | None,
    key_positions: Tensor | None,
) -> dict[str, Tensor]:
    """The bias as an option of `kseq.ops.attention`.

    Where both positions count from 0 it is given by distance, which is short, else
    for each pair.

    Args:
        bias: maps key position - query position to `(H, ...)`. None adds nothing.
        queries: float `(B, T, H, K)`.
        keys: float `(B, S, G, K)`.
        positions: int32 `(T,)` or `(B, T)`. Those of the queries; None counts from 0.
        key_positions: int32 `(S,)` or `(B, S)`. Those of the keys, alike; negative in
            the empty slots of a ring.

    Returns:
        `distance_bias` `(H, T + S - 1)`, or `attention_bias` `(1, H, T, S)` or
        `(B, H, T, S)`, or no option.
    """
    if bias is None:
        return {}
    length, source = ops.shape(queries)[1], ops.shape(keys)[1]
    if positions is None and key_positions is None:
        distances = ops.arange(length + source - 1) - (length - 1)
        return {"distance_bias": bias(distances)}
    i, j = (
        ops.arange(size, dtype="int32") if given is None else given
        for given, size in ((positions, length), (key_positions, source))
    )
    pairs = bias(ops.expand_dims(j, -2) - ops.expand_dims(i, -1))
    if len(pairs.shape) == 3:
        return {"attention_bias": pairs[None]}  # (1, H, T, S)
    return {"attention_bias": ops.swapaxes(pairs, 0, 1)}  # (B, H, T, S)
