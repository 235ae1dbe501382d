"""Crossentropy over a vocabulary so large that the logits are never held."""

from typing import Any

from keras import ops

from kseq._checks import check_at_least_zero, check_rate
from kseq._typing import Tensor
from kseq.backend import custom_gradient, empty, filled, loop, stacked
from kseq.ops.vocabulary_chunks import (
    Chunks,
    Kernel,
    TokenStatistics,
    compute_dtype,
    cut,
    logit_gradients,
)


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
    of logits and of the gradients themselves. Where only the sum is trained,
    `summed_vocabulary_crossentropy` spares that product. `W` may be the table of an
    embedding.

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
        ValueError: `` `kernel` must be `(D, N)`... ``, `` `bias` must have shape
            (N,). ``, `` `weights` must have the shape of the targets. ``, `` The
            targets must be ids, of the shape of... `` and `` Target ids must lie in
            [0, N)... ``; those of a bad `label_smoothing`, `z_loss` or `chunk_size`.

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
    """What `vocabulary_crossentropy` adds up, `(B, T)`; each has a gradient."""
    tokens = cut(hidden, kernel, targets, weights, bias, transpose_kernel, chunk_size)
    statistics = _Statistics(Kernel(transpose_kernel))
    run = custom_gradient(statistics.forward, statistics.backward)
    return tokens.joined(run(tokens.chunks))


class _Statistics:
    """Statistics of tokens `(chunks, 3, c)`, and their gradient."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def forward(self, chunks: Chunks) -> tuple[Tensor, Any]:
        hidden, targets = filled(chunks.hidden), filled(chunks.targets)
        count, chunk = ops.shape(chunks.hidden)[:2]

        def step(i: Tensor, statistics: Any) -> list[Any]:
            logits = self.kernel.logits(chunks, hidden.read(i))
            found = TokenStatistics.of(logits, targets.read(i))
            return [statistics.write(i, ops.stack(found))]

        like = ops.zeros((3, chunk), compute_dtype(chunks.hidden))
        (statistics,) = loop(count, step, [empty(count, like)])
        statistics = stacked(statistics, count)
        return statistics, (chunks, statistics[:, 2])

    def backward(self, residuals: Any, upstream: Tensor) -> Chunks:
        chunks, normalizers = residuals
        hidden, targets = filled(chunks.hidden), filled(chunks.targets)
        normalizers, upstream = filled(normalizers), filled(upstream)
        count = ops.shape(chunks.hidden)[0]

        def step(i: Tensor, d_hidden: Any, sums: list[Any]) -> Any:
            tokens = hidden.read(i)
            d_logits = logit_gradients(
                self.kernel.logits(chunks, tokens),
                targets.read(i),
                normalizers.read(i),
                TokenStatistics(*ops.unstack(upstream.read(i), 3)),
            )
            d_tokens, sums = self.kernel.add_gradients(chunks, tokens, d_logits, sums)
            return [d_hidden.write(i, d_tokens), sums]

        start = [
            empty(count, ops.zeros_like(chunks.hidden[0])),
            self.kernel.zero_gradients(chunks),
        ]
        d_hidden, sums = loop(count, step, start)
        return self.kernel.gradients(chunks, stacked(d_hidden, count), sums)
