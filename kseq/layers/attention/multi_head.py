"""What attention with heads shares: projections to the heads and back."""

import math
from typing import Any

import keras
from keras import ops

from kseq._checks import check_mask, check_rank, check_size, message
from kseq._typing import Shape, Tensor


class MultiHead(keras.layers.Layer):
    """Base: projects queries, keys and values to heads, and the heads to an output.

    The weights have the shapes and the order of `keras.layers.MultiHeadAttention`:
    `query_dense` `(D, H, K)`, `key_dense` `(D, G, K)`, `value_dense` `(D, G, V)` and
    `output_dense` `(H, V, O)`, each with its bias. The kernels are drawn as the
    matrices that they are, `(D, H K)` and `(H V, O)`: Keras takes D for the area of a
    convolution, and draws them smaller by a factor of 4 and more.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        *,
        num_key_value_heads: int | None = None,
        use_bias: bool = True,
        output_shape: int | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = check_size("num_heads", num_heads)
        self.key_dim = check_size("key_dim", key_dim)
        value_dim = key_dim if value_dim is None else value_dim
        self.value_dim = check_size("value_dim", value_dim)
        groups = num_heads if num_key_value_heads is None else num_key_value_heads
        self.num_key_value_heads = check_size("num_key_value_heads", groups)
        if self.num_heads % self.num_key_value_heads:
            raise ValueError(
                message(
                    "`num_key_value_heads` must divide `num_heads`.",
                    num_key_value_heads=num_key_value_heads,
                    num_heads=num_heads,
                )
            )
        self.use_bias = use_bias
        if output_shape is not None:
            output_shape = check_size("output_shape", output_shape)
        # as `layer.output_shape` Keras would take it for the shape of the output
        self._output_shape = output_shape
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.supports_masking = True

    def build_projections(
        self,
        query_shape: Shape,
        value_shape: Shape | None,
        key_shape: Shape | None = None,
    ) -> None:
        """Makes the projections; without `value_shape` those of key and value not."""
        for name, shape, layout in (
            ("query", query_shape, "(B, T, D)"),
            ("value", value_shape, "(B, S, E)"),
            ("key", key_shape, "(B, S, F)"),
        ):
            if shape is not None:
                check_rank(name, shape, (3,), layout)
        heads, groups = self.num_heads, self.num_key_value_heads
        self.query_dense = self._to_heads("query_dense", heads, self.key_dim)
        self.query_dense.build(query_shape)
        if value_shape is not None:
            self.key_dense = self._to_heads("key_dense", groups, self.key_dim)
            self.key_dense.build(key_shape or value_shape)
            self.value_dense = self._to_heads("value_dense", groups, self.value_dim)
            self.value_dense.build(value_shape)
        width = self.compute_output_shape(query_shape)[-1]
        self.output_dense = self._dense("output_dense", "bthv,hvd->btd", "d", width)
        self.output_dense.build((*query_shape[:2], heads, self.value_dim))

    def _to_heads(self, name: str, heads: int, width: int) -> Any:
        return self._dense(name, "btd,dhk->bthk", "hk", heads, width)

    def _dense(self, name: str, equation: str, axes: str, *sizes: int | None) -> Any:
        inputs = 1 if len(sizes) == 2 else 2  # axes of the kernel that are inputs
        return keras.layers.EinsumDense(
            equation,
            (None, *sizes),
            bias_axes=axes if self.use_bias else None,
            kernel_initializer=_AsMatrix(self.kernel_initializer.clone(), inputs),
            bias_initializer=self.bias_initializer.clone(),
            dtype=self.dtype_policy,
            name=name,
        )

    def compute_output_shape(
        self,
        query_shape: Shape,
        value_shape: Shape | None = None,
        key_shape: Shape | None = None,
    ) -> Shape:
        del value_shape, key_shape
        width = query_shape[-1] if self._output_shape is None else self._output_shape
        return (*query_shape[:-1], width)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "num_key_value_heads": self.num_key_value_heads,
            "use_bias": self.use_bias,
            "output_shape": self._output_shape,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }


def key_value_mask(value_mask: Tensor | None, key_mask: Tensor | None) -> Tensor | None:
    """The AND of both masks, for a key and a value that are seen together."""
    value_mask = check_mask("value_mask", value_mask)
    key_mask = check_mask("key_mask", key_mask)
    if value_mask is None or key_mask is None:
        return key_mask if value_mask is None else value_mask
    return ops.logical_and(value_mask, key_mask)


class _AsMatrix(keras.initializers.Initializer):
    """Draws a kernel of several axes as the matrix of its inputs and outputs."""

    def __init__(
        self, initializer: keras.initializers.Initializer, inputs: int
    ) -> None:
        self.initializer = initializer
        self.inputs = inputs

    def __call__(self, shape: tuple[int, ...], dtype: Any = None) -> Tensor:
        sizes = math.prod(shape[: self.inputs]), math.prod(shape[self.inputs :])
        return ops.reshape(self.initializer(sizes, dtype=dtype), shape)
