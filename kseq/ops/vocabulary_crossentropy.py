"""Crossentropy over a vocabulary so large that the logits are never held."""

from functools import partial
from typing import Any, NamedTuple

import keras
from keras import ops

from kseq._checks import check_at_least_zero, check_rate, check_size, message
from kseq._typing import Tensor
from kseq.backend import custom_gradient, empty, filled, loop, stacked
from kseq.ops.target_ids import known_targets


class TokenStatistics(NamedTuple):
    """What a crossentropy is made of, for each token, `(B, T)`, in nats.

    Attributes:
        crossentropy: `logsumexp(z) - z[y]`.
        uniform: `logsumexp(z) - mean(z)`, that of the uniform distribution.
        normalizer: `logsumexp(z)`.
    """

    crossentropy: Tensor
    uniform: Tensor
    normalizer: Tensor

    def loss(self, label_smoothing: float = 0.0, z_loss: float = 0.0) -> Tensor:
        """`(1 - e) crossentropy + e uniform + zeta normalizer^2`, `(B, T)`."""
        losses = self.crossentropy
        if label_smoothing:
            losses = (1 - label_smoothing) * losses + label_smoothing * self.uniform
        return losses + z_loss * self.normalizer**2 if z_loss else losses


def vocabulary_crossentropy(
    hidden: Tensor,
    kernel: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    transpose_kernel: bool = False,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    chunk_size: int = 256,
) -> Tensor:
    """Crossentropy of each token, without the `(B, T, N)` logits in memory.

        z = h W + b;  p = softmax(z);  Z = sum_k exp z_k
        l = -(1 - e) log p[y] - e/N sum_k log p[k] + zeta (log Z)^2

    e is `label_smoothing` and zeta `z_loss`, which keeps log Z near 0. A loop makes
    the logits of `chunk_size` tokens at a time, and the gradient makes them again: a
    third product more than those of the plain loss, and a memory of `chunk_size` rows
    of logits and of the gradients themselves. `W` may be the table of an embedding.

    Args:
        hidden: float `(B, T, D)`, h.
        kernel: float `(D, N)`, W.
        targets: integer `(B, T)`, y, ids below N.
        weights: float `(B, T)`. What stands where it is 0 may be anything. None
            counts every token.
        bias: float `(N,)`, b. None is 0.
        transpose_kernel: bool. True says that `kernel` is `(N, D)`, as a table is.
            Defaults to `False`.
        label_smoothing: e, in [0, 1). Defaults to `0.0`.
        z_loss: zeta, at least 0. Defaults to `0.0`.
        chunk_size: int. The most tokens whose logits are held. Defaults to `256`.

    Returns:
        `(B, T)`, at least float32; 0 where a token does not count, and not multiplied
        by `weights`. A target out of range is an error when eager, and NaN in a
        compiled program. There is a gradient, but none of the gradient.

    Numerics: products are made in the dtype of `hidden`; what follows, the losses and
        the sums of the gradients are at least float32.

    Raises:
        ValueError: `` `kernel` must be `(D, N)`... ``, `` The targets must be ids, of
            the shape of... `` and `` Target ids must lie in [0, N)... ``; those of a
            bad `label_smoothing`, `z_loss` or `chunk_size`.

    Example:

    >>> hidden, table = keras.ops.zeros((2, 3, 5)), keras.ops.ones((7, 5))
    >>> targets = np.array([[1, 2, 3], [6, 0, 0]])
    >>> losses = kseq.ops.vocabulary_crossentropy(
    ...     hidden, table, targets, targets > 0, transpose_kernel=True)
    >>> print(np.asarray(losses).round(4))  # ln 7
    [[1.9459 1.9459 1.9459]
     [1.9459 0.     0.    ]]

    References:
        Szegedy et al., 2016, arXiv:1512.00567, section 7, for the smoothing.
        Chowdhery et al., 2022, "PaLM", arXiv:2204.02311, section 5, for the z-loss.
    """
    label_smoothing = check_rate("label_smoothing", label_smoothing)
    z_loss = check_at_least_zero("z_loss", z_loss)
    statistics = token_statistics(
        hidden,
        kernel,
        targets,
        weights,
        bias=bias,
        transpose_kernel=transpose_kernel,
        chunk_size=chunk_size,
    )
    return statistics.loss(label_smoothing, z_loss)


def token_statistics(
    hidden: Tensor,
    kernel: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    transpose_kernel: bool = False,
    chunk_size: int = 256,
) -> TokenStatistics:
    """What `vocabulary_crossentropy` adds up; each has a gradient."""
    hidden, kernel, targets = map(ops.convert_to_tensor, (hidden, kernel, targets))
    _check_shapes(hidden, kernel, targets, transpose_kernel)
    size = kernel.shape[0 if transpose_kernel else 1]
    if weights is None:
        counts = ops.ones_like(targets, "bool")
    else:
        counts = ops.greater(weights, 0)
    hidden = ops.where(counts[..., None], hidden, ops.zeros_like(hidden))
    ids, known = known_targets(targets, counts, size)

    tokens = ops.reshape(hidden, (-1, hidden.shape[-1]))
    count = ops.shape(tokens)[0]
    chunk = _even_share(count, check_size("chunk_size", chunk_size))
    inputs = _Inputs(
        hidden=_chunks(tokens, chunk),
        kernel=ops.cast(kernel, hidden.dtype),
        targets=_chunks(ops.reshape(ids, (-1,)), chunk),
        bias=None if bias is None else ops.convert_to_tensor(bias),
    )
    letters = "nd" if transpose_kernel else "dn"
    run = custom_gradient(partial(_forward, letters), partial(_backward, letters))
    found = ops.moveaxis(run(inputs), 1, 0)  # (3, chunks, c)
    found = ops.reshape(found, (3, -1))[:, :count]
    found = ops.reshape(found, (3, *ops.shape(targets)))
    found = ops.where(known, found, float("nan"))
    return TokenStatistics(*ops.unstack(ops.where(counts, found, 0.0), 3))


class _Inputs(NamedTuple):
    hidden: Tensor  # (chunks, c, D)
    kernel: Tensor
    targets: Tensor | None  # (chunks, c)
    bias: Tensor | None


def _forward(letters: str, inputs: _Inputs) -> tuple[Tensor, Any]:
    hidden, targets = filled(inputs.hidden), filled(inputs.targets)
    count = ops.shape(inputs.hidden)[0]

    def step(i: Tensor, statistics: Any) -> list[Any]:
        logits = _logits(letters, inputs, hidden.read(i))
        largest = ops.max(logits, axis=-1)
        rest = ops.log(ops.sum(ops.exp(logits - largest[:, None]), axis=-1))
        target = ops.take_along_axis(logits, targets.read(i)[:, None], axis=-1)[:, 0]
        found = (
            largest - target + rest,
            largest - ops.mean(logits, axis=-1) + rest,
            largest + rest,
        )
        return [statistics.write(i, ops.stack(found))]

    # (3, c)
    like = ops.zeros((3, *ops.shape(inputs.targets)[1:]), _compute_dtype(inputs))
    (statistics,) = loop(count, step, [empty(count, like)])
    statistics = stacked(statistics, count)
    return statistics, (inputs, statistics[:, 2])


def _backward(letters: str, residuals: Any, upstream: Tensor) -> _Inputs:
    inputs, normalizers = residuals
    dtype = inputs.hidden.dtype
    hidden, targets = filled(inputs.hidden), filled(inputs.targets)
    normalizers, upstream = filled(normalizers), filled(upstream)
    count = ops.shape(inputs.hidden)[0]
    size = inputs.kernel.shape[letters.index("n")]

    def step(i: Tensor, d_hidden: Any, d_kernel: Tensor, d_bias: list[Any]) -> Any:
        tokens = hidden.read(i)
        logits = _logits(letters, inputs, tokens)
        probabilities = ops.exp(logits - normalizers.read(i)[:, None])
        of_target, of_mean, of_normalizer = ops.unstack(upstream.read(i)[..., None], 3)
        of_all = of_target + of_mean + of_normalizer
        here = ops.equal(targets.read(i)[:, None], ops.arange(size, dtype="int32"))
        d_logits = probabilities * of_all - of_mean / size
        d_logits = d_logits - ops.where(here, of_target, 0.0)  # (c, N)
        d_bias = [d + ops.sum(d_logits, axis=0) for d in d_bias]
        d_logits = ops.cast(d_logits, dtype)
        d_tokens = ops.einsum(f"tn,{letters}->td", d_logits, inputs.kernel)
        if letters == "dn":
            d_share = ops.einsum("td,tn->dn", tokens, d_logits)
        else:
            d_share = ops.einsum("tn,td->nd", d_logits, tokens)
        d_kernel = d_kernel + ops.cast(d_share, d_kernel.dtype)
        return [d_hidden.write(i, d_tokens), d_kernel, d_bias]

    compute = _compute_dtype(inputs)
    biases = [] if inputs.bias is None else [inputs.bias]
    d_hidden, d_kernel, d_bias = loop(
        count,
        step,
        [
            empty(count, ops.zeros_like(inputs.hidden[0])),
            ops.zeros_like(inputs.kernel, dtype=compute),
            [ops.zeros_like(bias, dtype=compute) for bias in biases],
        ],
    )
    return _Inputs(
        hidden=stacked(d_hidden, count),
        kernel=ops.cast(d_kernel, dtype),
        targets=None,
        bias=ops.cast(d_bias[0], inputs.bias.dtype) if biases else None,
    )


def _logits(letters: str, inputs: _Inputs, hidden: Tensor) -> Tensor:
    logits = ops.einsum(f"td,{letters}->tn", hidden, inputs.kernel)
    logits = ops.cast(logits, _compute_dtype(inputs))
    return (
        logits if inputs.bias is None else logits + ops.cast(inputs.bias, logits.dtype)
    )


def _compute_dtype(inputs: _Inputs) -> str:
    return keras.backend.result_type(inputs.hidden.dtype, "float32")


def _even_share(count: Tensor, most: int) -> int:
    """The tokens of a chunk: as few chunks as possible, all alike."""
    if not isinstance(count, int):
        return most
    count = max(count, 1)
    chunks = -(-count // most)
    return -(-count // chunks)


def _chunks(x: Tensor, size: int) -> Tensor:
    """`(M, ...)` as `(M / size, size, ...)`, with zeros after the last row."""
    count = ops.shape(x)[0]
    # no tokens are one chunk too: a loop of JAX traces what it does not run
    none = isinstance(count, int) and count == 0
    missing = size if none else -count % size
    if not isinstance(missing, int) or missing:
        x = ops.concatenate([x, ops.zeros((missing, *x.shape[1:]), x.dtype)], axis=0)
    return ops.reshape(x, (-1, size, *x.shape[1:]))


def _check_shapes(
    hidden: Tensor, kernel: Tensor, targets: Tensor, transpose_kernel: bool
) -> None:
    layout = "(N, D)" if transpose_kernel else "(D, N)"
    if (
        len(kernel.shape) != 2
        or hidden.shape[-1] != kernel.shape[int(transpose_kernel)]
    ):
        raise ValueError(
            message(
                f"`kernel` must be `{layout}`, D the last size of `hidden`.",
                hidden_shape=tuple(hidden.shape),
                kernel_shape=tuple(kernel.shape),
            )
        )
    pairs = zip(targets.shape, hidden.shape[:-1], strict=False)
    if len(targets.shape) != len(hidden.shape) - 1 or any(
        None not in pair and pair[0] != pair[1] for pair in pairs
    ):
        raise ValueError(
            message(
                "The targets must be ids, of the shape of `hidden` without the last "
                "axis.",
                targets_shape=tuple(targets.shape),
                hidden_shape=tuple(hidden.shape),
            )
        )
