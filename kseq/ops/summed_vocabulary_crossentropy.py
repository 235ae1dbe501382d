"""The sum of a crossentropy over a large vocabulary, made with its gradient."""

from typing import Any, NamedTuple

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


class SummedCrossentropy(NamedTuple):
    """What `summed_vocabulary_crossentropy` returns.

    Attributes:
        total: `sum_t w_t l_t`, a scalar, at least float32.
        crossentropy: `-log p[y]` of each token, `(B, T)`, without smoothing and z-loss,
            and without a gradient; 0 where a token does not count.
    """

    total: Tensor
    crossentropy: Tensor


def summed_vocabulary_crossentropy(
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
) -> SummedCrossentropy:
    """Sum over tokens of their `vocabulary_crossentropy`, for training.

        L = sum_t w_t l_t

    How each token weighs in the sum is known before its logits are made, so that the
    loop that makes them makes their gradient as well: as many products as the plain
    loss has. That is wasted where nothing is differentiated; `vocabulary_crossentropy`
    is for evaluation, and for losses of single tokens.

    Args:
        hidden: float `(B, T, D)`.
        kernel: float `(D, N)`.
        targets: integer `(B, T)`, ids below N.
        weights: float `(B, T)`, w. What stands where it is 0 may be anything. None
            counts every token once. There is no gradient of it.
        bias: float `(N,)`. None is 0.
        transpose_kernel: bool. True says that `kernel` is `(N, D)`, as a table is.
            Defaults to `False`.
        label_smoothing: in [0, 1). Defaults to `0.0`.
        z_loss: at least 0. Defaults to `0.0`.
        chunk_size: int. The most tokens whose logits are held. Defaults to `256`.

    Returns:
        `SummedCrossentropy(total, crossentropy)`. A target out of range is an error
        when eager, and makes the sum of a compiled program NaN.

    Raises:
        ValueError: as `vocabulary_crossentropy`.

    Example:

    >>> hidden, table = keras.ops.zeros((2, 3, 5)), keras.ops.ones((7, 5))
    >>> targets = np.array([[1, 2, 3], [6, 0, 0]])
    >>> found = kseq.ops.summed_vocabulary_crossentropy(
    ...     hidden, table, targets, targets > 0, transpose_kernel=True)
    >>> print(np.asarray(found.total).round(4))  # 4 ln 7
    7.7836

    References:
        Hsu et al., 2024, "Liger kernel", arXiv:2410.10989, section 3, makes the
        gradient in the forward pass.
    """
    tokens = cut(hidden, kernel, targets, weights, bias, transpose_kernel, chunk_size)
    sum_of = _Sum(
        Kernel(transpose_kernel),
        check_rate("label_smoothing", label_smoothing),
        check_at_least_zero("z_loss", z_loss),
    )
    run = custom_gradient(sum_of.forward, sum_of.backward)
    total, statistics = run(tokens.chunks)
    total = ops.where(ops.all(tokens.known), total, float("nan"))
    crossentropy = tokens.joined(statistics).crossentropy
    return SummedCrossentropy(total, ops.stop_gradient(crossentropy))


class _Sum:
    """The sum, with statistics of tokens `(chunks, 3, c)`, and its gradient."""

    def __init__(self, kernel: Kernel, label_smoothing: float, z_loss: float) -> None:
        self.kernel = kernel
        self.label_smoothing = label_smoothing
        self.z_loss = z_loss

    def forward(self, chunks: Chunks) -> tuple[Any, Any]:
        hidden, targets, weights = map(
            filled, (chunks.hidden, chunks.targets, chunks.weights)
        )
        count, chunk = ops.shape(chunks.hidden)[:2]

        def step(
            i: Tensor, total: Any, statistics: Any, d_hidden: Any, sums: Any
        ) -> Any:
            rows, ids, share = hidden.read(i), targets.read(i), weights.read(i)
            logits = self.kernel.logits(chunks, rows)
            found = TokenStatistics.of(logits, ids)
            upstream = TokenStatistics(
                crossentropy=share * (1 - self.label_smoothing),
                uniform=share * self.label_smoothing,
                normalizer=share * (2 * self.z_loss) * found.normalizer,
            )
            d_logits = logit_gradients(logits, ids, found.normalizer, upstream)
            d_rows, sums = self.kernel.add_gradients(chunks, rows, d_logits, sums)
            losses = found.loss(self.label_smoothing, self.z_loss)
            return [
                total + ops.sum(share * losses),
                statistics.write(i, ops.stack(found)),
                d_hidden.write(i, d_rows),
                sums,
            ]

        like = ops.zeros((3, chunk), compute_dtype(chunks.hidden))
        start = [
            ops.zeros_like(like[0, 0]),
            empty(count, like),
            empty(count, ops.zeros_like(chunks.hidden[0])),
            self.kernel.zero_gradients(chunks),
        ]
        total, statistics, d_hidden, sums = loop(count, step, start)
        residuals = chunks, stacked(d_hidden, count), sums
        return (total, stacked(statistics, count)), residuals

    def backward(self, residuals: Any, upstream: Any) -> Chunks:
        chunks, d_hidden, sums = residuals
        scale, _ = upstream  # the statistics have no gradient
        d_hidden = d_hidden * ops.cast(scale, d_hidden.dtype)
        return self.kernel.gradients(chunks, d_hidden, [x * scale for x in sums])
