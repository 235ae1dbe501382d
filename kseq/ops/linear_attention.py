"""Attention whose weights are products of positive features: linear in length."""

from typing import Any

import keras
import numpy as np
from keras import ops

from kseq._checks import check_mask, check_rank, check_size, message
from kseq._typing import Tensor
from kseq.backend import scan
from kseq.ops.masks import zero_padding


def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    value_mask: Tensor | None = None,
    use_causal_mask: bool = False,
    chunk_size: int = 64,
    state: tuple[Tensor, Tensor] | None = None,
) -> Any:
    """Linear attention with the features elu(x) + 1 (Katharopoulos et al.).

        f(x) = elu(x) + 1 = x + 1 where x > 0, else exp(x)
        y_t = sum_s (f(q_t) . f(k_s)) v_s / sum_s f(q_t) . f(k_s)
            = f(q_t) S / f(q_t) . z,  S = sum_s f(k_s) v_s^T,  z = sum_s f(k_s)

    The sums go over all s, or with `use_causal_mask` over s <= t. Then time is cut
    into chunks: inside one, the products of queries and keys are masked as in any
    attention; of what came before it, the sums S and z are all that is needed. So
    time and memory grow with T, not with T^2. The result does not depend on
    `chunk_size`: one chunk of T steps is the parallel form, and calls with one step
    each that hand on `state` are the recurrent form.

    Args:
        query: float `(B, T, H, K)`.
        key: float `(B, S, G, K)`. G divides H: query head h reads key and value
            head h // (H / G).
        value: float `(B, S, G, V)`.
        value_mask: bool `(B, S)`. True is a real entry. What it masks contributes
            nothing and may hold anything, NaN included.
        use_causal_mask: bool. True lets query t see s <= t only, and needs S = T.
            Defaults to `False`.
        chunk_size: int. Steps of a chunk of the causal form. Defaults to `64`, the
            fastest of 64, 128 and 256 on two cores (8 heads of 64, 4,096 steps).
        state: `(S, z)`, float `(B, G, K, V)` and `(B, G, K)`, the sums over all that
            came before, zeros at first. A call with a state is causal, whatever
            `use_causal_mask` says.

    Returns:
        `(B, T, H, V)` in the dtype of `value`; with `state` the tuple of it and the
        new state. A query that sees nothing gets 0, with finite gradients.

    Numerics: computed in at least float32, the state too. A query for which the keys
        it sees are all but 0, f(k) < 1e-31 (1e-292 in float64), sees nothing.

    Raises:
        ValueError: `` `query` must have shape (B, T, H, K). `` (each argument
            alike), `` `key` and `value` must have the same length and heads... ``,
            `` Causal attention needs as many keys as queries. ``,
            `` `state` must be (S, z)... `` and
            `` `chunk_size` must be a positive integer. ``
        TypeError: `` `value_mask` must be boolean... ``

    Example:

    >>> query, key = keras.ops.ones((2, 5, 4, 3)), keras.ops.ones((2, 5, 2, 3))
    >>> y = kseq.ops.linear_attention(query, key, key, use_causal_mask=True)
    >>> tuple(y.shape)
    (2, 5, 4, 3)

    References:
        Katharopoulos et al., 2020, "Transformers are RNNs: fast autoregressive
        transformers with linear attention", arXiv:2006.16236, eq. 4 to 12 and 16
        to 20.
    """
    value_mask = check_mask("value_mask", value_mask)
    causal = use_causal_mask or state is not None
    _check_shapes(query, key, value, value_mask, causal)
    _check_state(state, key.shape, value.shape)
    size = check_size("chunk_size", chunk_size)
    dtype, compute = value.dtype, _compute_dtype(query, key, value)
    query, key, value = (ops.cast(x, compute) for x in (query, key, value))
    (rows, length), (heads, width) = ops.shape(query)[:2], query.shape[2:]
    groups = key.shape[2]
    query = ops.reshape(query, (rows, length, groups, heads // groups, width))
    # a one behind each value makes the normalizer the last column of each sum
    value = ops.concatenate([value, ops.ones_like(value[..., :1])], axis=-1)
    value = zero_padding(value, value_mask, "value_mask")
    key = _features(zero_padding(key, value_mask, "value_mask"))
    # where all of q is below 0 the quotient is that of f(q) times any factor: one
    # that keeps exp(q) from vanishing
    top = ops.minimum(ops.max(query, axis=-1, keepdims=True), 0.0)
    query = _features(query - ops.stop_gradient(top))  # (B, T, G, H / G, K)
    if causal:
        y, sums = _causal(query, key, value, state, size)
    else:
        sums = ops.einsum("bsgk,bsgv->bgkv", key, value)
        y = ops.einsum("btgrk,bgkv->btgrv", query, sums)
    y = ops.reshape(_normalized(y), (rows, length, heads, value.shape[-1] - 1))
    y = ops.cast(y, dtype)
    return y if state is None else (y, (sums[..., :-1], sums[..., -1]))


def _compute_dtype(*inputs: Tensor) -> str:
    return keras.backend.result_type(*(x.dtype for x in inputs), "float32")


def _features(x: Tensor) -> Tensor:
    """elu(x) + 1, without the rounding of exp(x) - 1 + 1 where x is far below 0."""
    positive = x > 0
    return ops.where(positive, x + 1, ops.exp(ops.where(positive, 0.0, x)))


def _causal(
    query: Tensor, key: Tensor, value: Tensor, state: Any, size: Tensor
) -> tuple[Tensor, Tensor]:
    """The outputs with their normalizer `(B, T, G, H / G, V + 1)`; the last sums."""
    length = ops.shape(key)[1]
    size = min(size, length) if isinstance(length, int) else ops.minimum(size, length)
    query, key, value = (_chunks(x, size) for x in (query, key, value))
    steps = ops.arange(size)
    weights = ops.einsum("bnigrk,bnjgk->bngrij", query, key)
    weights = ops.where(steps[:, None] >= steps, weights, 0.0)
    y = ops.einsum("bngrij,bnjgv->bnigrv", weights, value)

    sums = ops.einsum("bnjgk,bnjgv->nbgkv", key, value)
    first = ops.zeros_like(sums[0])
    if state is not None:
        first = ops.concatenate([state[0], state[1][..., None]], axis=-1)
        first = ops.cast(first, sums.dtype)  # (B, G, K, V + 1)
    last, before = scan(lambda _, past, chunk: (past + chunk, past), first, sums)
    y = y + ops.einsum("bnigrk,nbgkv->bnigrv", query, before)
    y = ops.reshape(y, (ops.shape(y)[0], -1, *y.shape[3:]))
    return y[:, :length], last


def _chunks(x: Tensor, size: Tensor) -> Tensor:
    """`x` `(B, T, ...)` as `(B, N, C, ...)`, with zeros behind the last step."""
    (rows, length), rest = ops.shape(x)[:2], x.shape[2:]
    count = -(-length // size)
    zeros = ops.zeros((rows, count * size - length, *rest), x.dtype)
    x = ops.concatenate([x, zeros], axis=1)
    return ops.reshape(x, (rows, count, size, *rest))


def _normalized(y: Tensor) -> Tensor:
    """All columns but the last, divided by that one; 0 where that is 0."""
    y, total = y[..., :-1], y[..., -1:]
    limits = np.finfo(_compute_dtype(y))
    # the gradient divides twice: below this it could overflow
    seen = total > float(limits.tiny / limits.eps)
    return ops.where(seen, y / ops.where(seen, total, 1.0), 0.0)


def _check_shapes(
    query: Tensor, key: Tensor, value: Tensor, value_mask: Any, causal: bool
) -> None:
    check_rank("query", query, (4,), "(B, T, H, K)")
    check_rank("key", key, (4,), "(B, S, G, K)")
    check_rank("value", value, (4,), "(B, S, G, V)")
    if value_mask is not None:
        check_rank("value_mask", value_mask, (2,), "(B, S)")
    shapes: dict[str, Any] = {
        "query_shape": tuple(query.shape),
        "key_shape": tuple(key.shape),
        "value_shape": tuple(value.shape),
    }
    length = {key.shape[1], value.shape[1]} - {None}
    heads = {key.shape[2], value.shape[2]}
    if len(length) > 1 or len(heads) > 1 or query.shape[2] % key.shape[2]:
        raise ValueError(
            message(
                "`key` and `value` must have the same length and heads, and their "
                "heads must divide those of `query`.",
                **shapes,
            )
        )
    if causal and len(length | ({query.shape[1]} - {None})) > 1:
        raise ValueError(
            message("Causal attention needs as many keys as queries.", **shapes)
        )


def _check_state(state: Any, key_shape: Any, value_shape: Any) -> None:
    if state is None:
        return
    sizes = key_shape[2:]
    expected = [(*sizes, value_shape[3]), tuple(sizes)]
    received = [tuple(x.shape) for x in state]
    if [shape[1:] for shape in received] != expected:
        raise ValueError(
            message(
                "`state` must be (S, z), of the shapes (B, G, K, V) and (B, G, K).",
                shapes=received,
                expected=[("B", *shape) for shape in expected],
            )
        )
