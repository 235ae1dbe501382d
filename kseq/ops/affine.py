"""The products of a layer's weights with a whole sequence."""

from typing import Any

from keras import ops

from kseq._typing import Tensor
from kseq.backend import custom_gradient


def affine(x: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
    """`x W + b` over the last axis, of `x` `(..., n)`.

    The gradient is written by hand, so that it is three products of matrices on
    either backend: dW = x^T d and db = 1^T d, where XLA would transpose d on JAX, and
    add it up more slowly than a product does.
    """
    return custom_gradient(_forward, _backward)([x, kernel, bias])


def _forward(inputs: list[Any]) -> tuple[Tensor, Any]:
    x, kernel, bias = inputs
    y = ops.matmul(x, kernel)
    return (y if bias is None else y + bias), inputs


def _backward(inputs: Any, d: Tensor) -> list[Any]:
    x, kernel, bias = inputs
    d_x = ops.matmul(d, ops.transpose(kernel))
    x, d = (ops.reshape(rows, (-1, rows.shape[-1])) for rows in (x, d))
    d_kernel = ops.matmul(ops.transpose(x), d)
    if bias is None:
        return [d_x, d_kernel, None]
    ones = ops.ones((1, ops.shape(d)[0]), d.dtype)
    return [d_x, d_kernel, ops.matmul(ones, d)[0]]
