"""Attention that moves through the memory in one direction."""

from numbers import Real
from typing import Any

import keras
from keras import ops

from kseq._checks import message
from kseq._typing import Shape, Tensor
from kseq.backend import normal
from kseq.layers.attention.aligned_attention import AlignedAttention
from kseq.ops import linear_recurrence


@keras.saving.register_keras_serializable(package="kseq")
class MonotonicAttention(AlignedAttention):
    """Soft monotonic attention (Raffel et al.).

        e_ts = g v/|v| . tanh(W_q q_t + W_k h_s + b) + r
        p_ts = sigmoid(e_ts),  in training sigmoid(e_ts + noise * N(0, 1))
        m_ts = (1 - p_{t,s-1}) m_{t,s-1} + w_{t-1,s}
        w_ts = p_ts m_ts;  c_t = sum_s w_ts h_s

    Query t looks at the entries in turn, from where query t-1 stopped, and stops at
    each with probability p: w_ts is the probability that it stops at s, m_ts that it
    gets there. w_0 is 1 at the first entry. The weights sum to less than 1 where a
    query may run past the end. This is the expectation that the paper trains with,
    at inference too; its hard decoding is not here.

    W_q, W_k, v, g and b are those of `kseq.layers.BahdanauAttention` with
    `normalize=True`; r is `offset`, a scalar.

    Args:
        units: int. Width U of the hidden layer that compares query and memory.
        noise: float of at least 0. Deviation of the noise on e in training, which
            drives p to 0 or 1. Defaults to `1.0`.
        initial_offset: float. First value of r: the longer the memory, the more
            negative, so that a query may reach its end. Defaults to `-1.0`.
        kernel_initializer: initializer of W_q, W_k and v. Defaults to
            `"glorot_uniform"`.
        seed: int. Of the noise; `None` is a random seed. Defaults to `None`.

    Call arguments: those of `kseq.layers.BahdanauAttention`, and
        alignment: list of one float `(B, S)`, the weights w_{t-1} that earlier
            queries left. None is w_0.
        training: bool. True adds the noise.

    Returns:
        As `kseq.layers.BahdanauAttention`. The queries of one call are asked in
        order.

    Masking: as `kseq.layers.BahdanauAttention`. A query passes masked entries by
        (p is 0 there), so left, right and interior padding do not matter. A masked
        query does not move the alignment; a real one that may see nothing runs past
        the end, and so do all after it.

    Numerics: scores, p, 1 - p (as sigmoid(-e)) and alignment in at least float32.
        The recurrence over s is computed as such, in parallel
        (`kseq.ops.linear_recurrence`): the closed form of the paper divides by
        products of 1 - p, which has no right value or gradient once they underflow.

    Raises:
        ValueError: `` `units` must be a positive integer. ``, `` `noise` must be a
            number of at least 0. `` and `` `alignment` must hold one tensor of shape
            (B, S)... ``
        TypeError: `` `value_mask` must be boolean... ``

    Example:

    >>> attention = kseq.layers.MonotonicAttention(8)
    >>> query, memory = keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 6))
    >>> tuple(attention(query, memory).shape)
    (2, 3, 6)

    References:
        Raffel et al., 2017, "Online and linear-time attention by enforcing monotonic
        alignments", arXiv:1704.00784, eq. 9 to 14 and section 2.4.
    """

    def __init__(
        self,
        units: int,
        *,
        noise: float = 1.0,
        initial_offset: float = -1.0,
        kernel_initializer: Any = "glorot_uniform",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            units, normalize=True, kernel_initializer=kernel_initializer, **kwargs
        )
        self.noise = _check_noise(noise)
        self.initial_offset = float(initial_offset)
        self.seed = seed
        if self.noise:
            self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, query_shape: Shape, value_shape: Shape) -> None:
        super().build(query_shape, value_shape)
        self.offset = self.add_weight(
            shape=(),
            name="offset",
            initializer=keras.initializers.Constant(self.initial_offset),
        )

    @property
    def step_variables(self) -> list[keras.Variable]:
        """See `MemoryAttention.step_variables`."""
        return [*super().step_variables, self.offset]

    def initial_alignment(self, value: Tensor) -> list[Tensor]:
        """See `MemoryAttention.initial_alignment`: 1 at the first entry."""
        (zeros,) = super().initial_alignment(value)
        first = ops.equal(ops.arange(ops.shape(value)[1]), 0)
        return [zeros + ops.cast(first, zeros.dtype)]

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """See `MemoryAttention.scores`."""
        scores = super().scores(query, key)
        return scores + ops.cast(self.in_step(self.offset), scores.dtype)

    def align(
        self,
        query: Tensor,
        key: Tensor,
        mask: Tensor | None,
        alignment: Tensor,
        training: bool,
    ) -> Tensor:
        """See `AlignedAttention.align`."""
        scores = self.scores(query, key)  # (B, 1, S)
        if training and self.noise:
            noise = normal(ops.shape(scores), self.weights_dtype, self.seed_generator)
            scores = scores + self.noise * noise
        stops, passes = ops.sigmoid(scores), ops.sigmoid(-scores)
        if mask is not None:
            stops, passes = ops.where(mask, stops, 0.0), ops.where(mask, passes, 1.0)
        passes = ops.swapaxes(passes, 1, 2)  # (B, S, 1)
        reaches = linear_recurrence(
            ops.pad(passes[:, :-1], [[0, 0], [1, 0], [0, 0]]),
            ops.expand_dims(alignment, -1),
            ops.zeros_like(passes[:, 0]),
        )
        return stops * ops.swapaxes(reaches, 1, 2)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "noise": self.noise,
            "initial_offset": self.initial_offset,
            "seed": self.seed,
        }


def _check_noise(noise: Any) -> float:
    if not isinstance(noise, Real) or not float(noise) >= 0:
        raise ValueError(
            message("`noise` must be a number of at least 0.", noise=noise)
        )
    return float(noise)
