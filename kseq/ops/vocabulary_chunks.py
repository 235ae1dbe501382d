"""Logits of a chunk of tokens at a time, and what is made of them."""

from typing import Any, NamedTuple

import keras
from keras import ops

from kseq._checks import check_size, message
from kseq._typing import Tensor
from kseq.ops.target_ids import check_target_shape, known_targets


class TokenStatistics(NamedTuple):
    """What a crossentropy is made of, for each token, in nats.

    Attributes:
        crossentropy: `logsumexp(z) - z[y]`.
        uniform: `logsumexp(z) - mean(z)`, that of the uniform distribution.
        normalizer: `logsumexp(z)`.
    """

    crossentropy: Tensor
    uniform: Tensor
    normalizer: Tensor

    @classmethod
    def of(cls, logits: Tensor, targets: Tensor) -> "TokenStatistics":
        """Those of logits `(c, N)` and targets `(c,)`."""
        largest = ops.max(logits, axis=-1)
        rest = ops.log(ops.sum(ops.exp(logits - largest[:, None]), axis=-1))
        target = ops.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]
        return cls(
            largest - target + rest,
            largest - ops.mean(logits, axis=-1) + rest,
            largest + rest,
        )

    def loss(self, label_smoothing: float = 0.0, z_loss: float = 0.0) -> Tensor:
        """`(1 - e) crossentropy + e uniform + zeta normalizer^2`."""
        losses = self.crossentropy
        if label_smoothing:
            losses = (1 - label_smoothing) * losses + label_smoothing * self.uniform
        return losses + z_loss * self.normalizer**2 if z_loss else losses


class Chunks(NamedTuple):
    """Tokens in chunks of c, and what makes logits of them; a tree of gradients too."""

    hidden: Tensor  # (chunks, c, D)
    kernel: Tensor  # (D, N), or (N, D) of a table
    bias: Tensor | None  # (N,)
    targets: Tensor | None  # (chunks, c)
    weights: Tensor | None  # (chunks, c), 0 where a token does not count


class Kernel:
    """Products with a kernel that is `(D, N)`, or transposed `(N, D)`."""

    def __init__(self, transposed: bool) -> None:
        self.letters = "nd" if transposed else "dn"

    def logits(self, chunks: Chunks, hidden: Tensor) -> Tensor:
        """Those of one chunk `(c, D)`: `(c, N)`, at least float32."""
        logits = ops.einsum(f"td,{self.letters}->tn", hidden, chunks.kernel)
        logits = ops.cast(logits, compute_dtype(hidden))
        if chunks.bias is None:
            return logits
        return logits + ops.cast(chunks.bias, logits.dtype)

    def zero_gradients(self, chunks: Chunks) -> list[Any]:
        """Zeros to add to: of the kernel, and of the bias if there is one."""
        parts = [chunks.kernel] + ([] if chunks.bias is None else [chunks.bias])
        dtype = compute_dtype(chunks.hidden)
        return [ops.zeros_like(part, dtype=dtype) for part in parts]

    def add_gradients(
        self, chunks: Chunks, hidden: Tensor, d_logits: Tensor, sums: list[Any]
    ) -> tuple[Tensor, list[Any]]:
        """The gradient of one chunk's hidden states, and `sums` with its share."""
        d_bias = [d + ops.sum(d_logits, axis=0) for d in sums[1:]]
        d_logits = ops.cast(d_logits, hidden.dtype)
        d_hidden = ops.einsum(f"tn,{self.letters}->td", d_logits, chunks.kernel)
        if self.letters == "dn":
            d_kernel = ops.einsum("td,tn->dn", hidden, d_logits)
        else:
            d_kernel = ops.einsum("tn,td->nd", d_logits, hidden)
        return d_hidden, [sums[0] + ops.cast(d_kernel, sums[0].dtype), *d_bias]

    def gradients(self, chunks: Chunks, d_hidden: Tensor, sums: list[Any]) -> Chunks:
        """The tree that a custom gradient returns."""
        return Chunks(
            hidden=d_hidden,
            kernel=ops.cast(sums[0], chunks.kernel.dtype),
            bias=None if chunks.bias is None else ops.cast(sums[1], chunks.bias.dtype),
            targets=None,
            weights=None,
        )


def logit_gradients(
    logits: Tensor, targets: Tensor, normalizer: Tensor, upstream: TokenStatistics
) -> Tensor:
    """The gradient `(c, N)` of the logits, by those of their statistics `(c,)`.

    dz = (du + dv + dw) p - du 1[y] - dv / N, for crossentropy, uniform, normalizer
    """
    size = logits.shape[-1]
    of_target, of_mean, of_normalizer = (x[:, None] for x in upstream)
    probabilities = ops.exp(logits - normalizer[:, None])
    here = ops.equal(targets[:, None], ops.arange(size, dtype="int32"))
    d_logits = probabilities * (of_target + of_mean + of_normalizer) - of_mean / size
    return d_logits - ops.where(here, of_target, 0.0)


class Tokens(NamedTuple):
    """Tokens in chunks, and of `(B, T)` which count and have a known target."""

    chunks: Chunks
    counts: Tensor
    known: Tensor

    def joined(self, statistics: Tensor) -> TokenStatistics:
        """Those of chunks `(chunks, 3, c)`, `(B, T)`.

        They are NaN where the target is none, and 0 where a token does not count.
        """
        shape = ops.shape(self.counts)
        statistics = ops.reshape(ops.moveaxis(statistics, 1, 0), (3, -1))
        statistics = statistics[:, : ops.size(self.counts)]
        statistics = ops.reshape(statistics, (3, *shape))
        statistics = ops.where(self.known, statistics, float("nan"))
        statistics = ops.where(self.counts, statistics, 0.0)
        return TokenStatistics(*ops.unstack(statistics, 3))


def cut(
    hidden: Tensor,
    kernel: Tensor,
    targets: Tensor,
    weights: Tensor | None,
    bias: Tensor | None,
    transpose_kernel: bool,
    chunk_size: int,
) -> Tokens:
    """The arguments of `vocabulary_crossentropy`, checked, in chunks."""
    hidden, kernel, targets = map(ops.convert_to_tensor, (hidden, kernel, targets))
    _check_shapes(hidden, kernel, targets, transpose_kernel)
    size = kernel.shape[0 if transpose_kernel else 1]
    if bias is not None and tuple(bias.shape) != (size,):
        raise ValueError(
            message("`bias` must have shape (N,).", shape=tuple(bias.shape), N=size)
        )
    dtype = compute_dtype(hidden)
    if weights is None:
        weights = ops.ones_like(targets, dtype)
    weights = ops.cast(weights, dtype)
    _check_weights(weights, targets)
    counts = weights > 0
    hidden = ops.where(counts[..., None], hidden, ops.zeros_like(hidden))
    ids, known = known_targets(targets, counts, size)
    rows = ops.reshape(hidden, (-1, hidden.shape[-1]))
    share = _even_share(ops.shape(rows)[0], check_size("chunk_size", chunk_size))
    chunks = Chunks(
        hidden=_chunks(rows, share),
        kernel=ops.cast(kernel, hidden.dtype),
        bias=None if bias is None else ops.convert_to_tensor(bias),
        targets=_chunks(ops.reshape(ids, (-1,)), share),
        weights=_chunks(ops.reshape(ops.where(counts, weights, 0.0), (-1,)), share),
    )
    return Tokens(chunks, counts, known)


def compute_dtype(hidden: Tensor) -> str:
    """That of losses and of sums of gradients."""
    return keras.backend.result_type(hidden.dtype, "float32")


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


def _check_weights(weights: Tensor, targets: Tensor) -> None:
    pairs = zip(weights.shape, targets.shape, strict=False)
    if len(weights.shape) != len(targets.shape) or any(
        None not in pair and pair[0] != pair[1] for pair in pairs
    ):
        raise ValueError(
            message(
                "`weights` must have the shape of the targets.",
                shape=tuple(weights.shape),
                targets_shape=tuple(targets.shape),
            )
        )


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
    check_target_shape(targets, hidden, "`hidden`")
