"""The feed-forward layer of a Transformer, plain or gated."""

import math
from typing import Any

import keras
from keras import ops

from kseq._checks import check_choice, check_mask, check_size
from kseq._typing import Shape, Tensor
from kseq.layers.dropout import Dropout
from kseq.ops import zero_padding

# TensorFlow's own gelu rounds its constants to float32
ACTIVATIONS = {
    "relu": ops.relu,
    "gelu": lambda x: 0.5 * x * (1 + ops.erf(x * math.sqrt(0.5))),
    "gelu_tanh": lambda x: (
        0.5 * x * (1 + ops.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    ),
    "silu": ops.silu,
}
GATED = {"reglu": "relu", "geglu": "gelu", "geglu_tanh": "gelu_tanh", "swiglu": "silu"}


@keras.saving.register_keras_serializable(package="kseq")
class FeedForward(keras.layers.Layer):
    """Position-wise feed-forward network, plain (Vaswani et al.) or gated (Shazeer).

        plain:  y = f(x W_1 + b_1) W_2 + b_2
        gated:  [g, u] = x W_1 + b_1;  y = (f(g) * u) W_2 + b_2

    W_1 is the kernel of `input_dense`, `(D, F)`, or `(D, 2 F)` with the columns of g
    before those of u; W_2 is that of `output_dense`, `(F, D)`. A gated network has
    half as many parameters again as a plain one of the same F: Shazeer takes 2/3 of F.

    Args:
        intermediate_dim: int. F.
        activation: `"relu"`, `"gelu"` (exact), `"gelu_tanh"` (its approximation by
            tanh) or `"silu"`, plain; `"reglu"`, `"geglu"`, `"geglu_tanh"` or
            `"swiglu"`, which gate by the same four. Defaults to `"relu"`.
        dropout: probability in [0, 1) that an element before W_2 is dropped. Defaults
            to `0.0`.
        use_bias: bool. Whether there are b_1 and b_2. Defaults to `True`.
        kernel_initializer: initializer of both kernels. Defaults to
            `"glorot_uniform"`.
        bias_initializer: initializer of the biases. Defaults to `"zeros"`.
        seed: int. Of the dropout. Defaults to `None`.

    Call arguments:
        inputs: float `(..., D)`.
        mask: bool `(B, T)`, where the inputs are `(B, T, D)`. True is a real token.
            Filled from the Keras mask.
        training: bool. True applies dropout.

    Returns:
        The shape of `inputs`.

    Masking: a padded input counts as zeros, so it may hold anything. The mask is
        passed on.

    Raises:
        ValueError: `` `activation` must be one of 'relu', 'gelu', ... `` and
            `` `intermediate_dim` must be a positive integer. ``

    Example:

    >>> layer = kseq.layers.FeedForward(32, activation="swiglu")
    >>> tuple(layer(keras.ops.ones((2, 5, 8))).shape)
    (2, 5, 8)

    References:
        Vaswani et al., 2017, "Attention is all you need", arXiv:1706.03762,
        section 3.3.
        Shazeer, 2020, "GLU variants improve transformer", arXiv:2002.05202.
        Hendrycks & Gimpel, 2016, "Gaussian error linear units", arXiv:1606.08415.
    """

    def __init__(
        self,
        intermediate_dim: int,
        *,
        activation: str = "relu",
        dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.intermediate_dim = check_size("intermediate_dim", intermediate_dim)
        self.activation = check_choice("activation", activation, [*ACTIVATIONS, *GATED])
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.dropout = Dropout(dropout, seed=seed, dtype=self.dtype_policy)
        self.supports_masking = True

    @property
    def is_gated(self) -> bool:
        """Whether the activation gates a second projection."""
        return self.activation in GATED

    def build(self, inputs_shape: Shape) -> None:
        width = self.intermediate_dim
        self.input_dense = self._dense("input_dense", width * (1 + self.is_gated))
        self.input_dense.build(inputs_shape)
        self.output_dense = self._dense("output_dense", inputs_shape[-1])
        self.output_dense.build((*inputs_shape[:-1], width))

    def _dense(self, name: str, units: int | None) -> keras.layers.Dense:
        return keras.layers.Dense(
            units,
            use_bias=self.use_bias,
            kernel_initializer=self.kernel_initializer.clone(),
            bias_initializer=self.bias_initializer.clone(),
            dtype=self.dtype_policy,
            name=name,
        )

    def call(
        self, inputs: Tensor, mask: Tensor | None = None, training: bool = False
    ) -> Tensor:
        # a NaN in the padding must not reach the gradient of a weight
        x = self.input_dense(zero_padding(inputs, check_mask("mask", mask)))
        if self.is_gated:
            gate, x = ops.split(x, 2, axis=-1)  # (..., F) each
            x = ACTIVATIONS[GATED[self.activation]](gate) * x
        else:
            x = ACTIVATIONS[self.activation](x)
        return self.output_dense(self.dropout(x, training=training))

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        return inputs_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "activation": self.activation,
            "dropout": self.dropout.rate,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "seed": self.dropout.seed,
        }
