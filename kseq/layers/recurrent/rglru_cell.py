"""The real-gated linear recurrent unit of Griffin."""

from typing import Any

import keras
from keras import ops

from kseq._checks import check_size, message
from kseq._typing import Shape, Tensor
from kseq.backend import custom_gradient
from kseq.layers.recurrent.linear_cell import LinearCell
from kseq.ops.affine import affine

_EXPONENT = 8.0  # the paper's c
_STEEPEST = 1000.0  # slope of the square root


@keras.saving.register_keras_serializable(package="kseq")
class RGLRUCell(LinearCell):
    """One step of a real-gated linear recurrent unit (RG-LRU).

        r = s(x_t W_r + b_r);  i = s(x_t W_i + b_i)
        a = s(L)^(8 r), that is log a = -8 r * softplus(-L)
        h_t = a * h_{t-1} + sqrt(1 - a^2) * (i * x_t)

    s is the sigmoid, L is `decay` `(U,)`. The inputs have the width of the state.
    W_r and W_i are block-diagonal, one block a head: of the units, cut into
    `num_heads` equal parts, a gate sees those of its own part. W is `kernel`
    `(U / num_heads, 2U)` and b is `bias` `(2U,)`, columns in the order recurrence
    gate r, input gate i, head by head. Neither gate depends on h, so that
    `kseq.layers.RNN` runs a whole sequence at once, in parallel over time; there is
    no recurrent kernel, no recurrent dropout and no `activation`.

    At a step that `reset_mask` marks, as the first of a segment, a is 0 and x_t's
    factor is 1 in the place of sqrt(1 - a^2), as in RecurrentGemma. At the first
    step of a sequence that it does not mark, and everywhere with
    `trainable_initial_state`, the factor is the paper's.

    Args:
        units: int. Width of the inputs, of the state and of the output.
        num_heads: int, the number of blocks. It divides `units`. Defaults to `1`.
        kernel_initializer: initializer of W. Defaults to `"lecun_normal"`.
        **kwargs: `use_bias`, the other initializers, regularizers and constraints of
            kernel and bias, `dropout` and `seed`, as in `kseq.layers.SimpleRNNCell`.
            `decay` starts with s(L)^2 uniform between 0.9^2 and 0.999^2.

    Call arguments:
        inputs: float `(B, U)`.
        states: list of one tensor, h `(B, U)`.
        training: bool. True applies dropout.

    Returns:
        `(output, states)`: `(B, U)` and the list of one tensor.

    Numerics: gates, a and h in at least float32, whatever the policy; the h of a
        sequence is rounded where it leaves it, that of the cell alone at every
        step. The slope of the square root is held to 1000.

    Raises:
        TypeError: `` `recurrent_dropout` is no argument of ... ``
        ValueError: `` `num_heads` must divide `units`. ``,
            `` The inputs must be `units` wide. ``,
            `` `units` must be a positive integer. `` and
            `` `dropout` must be a probability in [0, 1)... ``

    Example:

    >>> cell = kseq.layers.RGLRUCell(4, num_heads=2)
    >>> output, states = cell(keras.ops.ones((2, 4)), cell.get_initial_state(2))
    >>> tuple(output.shape)
    (2, 4)

    References:
        De et al., 2024, "Griffin: mixing gated linear recurrences with local
        attention for efficient language models", arXiv:2402.19427; Botev et al.,
        2024, "RecurrentGemma", arXiv:2404.07839.
    """

    def __init__(
        self,
        units: int,
        *,
        num_heads: int = 1,
        kernel_initializer: Any = "lecun_normal",
        **kwargs: Any,
    ) -> None:
        super().__init__(units, kernel_initializer=kernel_initializer, **kwargs)
        self.num_heads = check_size("num_heads", num_heads)
        if self.units % self.num_heads:
            raise ValueError(
                message(
                    "`num_heads` must divide `units`.",
                    num_heads=num_heads,
                    units=units,
                )
            )

    def build(self, input_shape: Shape) -> None:
        if input_shape[-1] not in (None, self.units):
            raise ValueError(
                message(
                    "The inputs must be `units` wide.",
                    fix="Put a Dense layer before, or change `units`.",
                    units=self.units,
                    input_shape=tuple(input_shape),
                )
            )
        super().build(input_shape)
        self.decay = self.add_weight(
            shape=(self.units,), name="decay", initializer=_initial_decay
        )

    def kernel_rows(self, width: int) -> int:
        """See `RecurrentCell.kernel_rows`."""
        return width // self.num_heads

    def coefficients(
        self, inputs: Tensor, starts: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """See `LinearCell.coefficients`."""
        r, i = map(ops.sigmoid, self.gates_of(inputs))
        log_a = -_EXPONENT * ops.softplus(-ops.cast(self.decay.value, r.dtype)) * r
        factor = _sqrt(-ops.expm1(2 * log_a))
        if starts is not None:
            factor = ops.where(starts, ops.ones_like(factor), factor)
        return ops.exp(log_a), factor * i * ops.cast(inputs, i.dtype)

    def gate(self, inputs: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
        """See `LinearCell.gate`; W is `(U / heads, U)`, of which a head sees its own.

        One product a head: on a CPU, XLA takes far longer for one einsum of all.
        """
        heads = self.num_heads
        inputs, kernels = (ops.split(x, heads, axis=-1) for x in (inputs, kernel))
        biases = [None] * heads if bias is None else ops.split(bias, heads)
        parts = [affine(*part) for part in zip(inputs, kernels, biases, strict=True)]
        return ops.concatenate(parts, axis=-1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_heads": self.num_heads}


def _initial_decay(shape: Shape, dtype: Any = None) -> Tensor:
    """L with s(L)^2 uniform: even in area between two circles."""
    compute = keras.backend.result_type(dtype, "float32")
    squares = keras.initializers.RandomUniform(0.9**2, 0.999**2)(shape, compute)
    a = ops.sqrt(squares)
    return ops.cast(ops.log(a) - ops.log1p(-a), dtype)


def _sqrt(x: Tensor) -> Tensor:
    """The square root, with a slope of at most `_STEEPEST`."""
    root = custom_gradient(
        lambda x: (ops.sqrt(x), x),
        lambda x, d: d / ops.sqrt(ops.maximum(4 * x, _STEEPEST**-2)),
    )
    return root(x)
