"""How a sublayer joins the residual stream: what alone knows where the norms stand."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from kseq._checks import check_choice, check_floating, check_rate, message
from kseq._typing import Shape, Tensor
from kseq.layers.blocks.normalization import NORMS, make_norm
from kseq.layers.dropout import Dropout

PLACEMENTS = ("pre", "post", "sandwich", "none")


@keras.saving.register_keras_serializable(package="kseq")
class SublayerConnection(keras.layers.Layer):
    """Residual connection around a sublayer f, with its norms and scales.

        "pre":       x' = a x + g f(LN(x))
        "post":      x' = LN(a x + g f(x))
        "sandwich":  x' = a x + g LN(f(LN(x)))
        "none":      x' = a x + g f(x)

    a is `residual_scale`, g is 1 or learned, and dropout acts on f's output. Pre-LN
    leaves an identity path from the last layer to the first, so deep stacks train
    from the start, and needs one more norm after the last. Post-LN, as in Vaswani et
    al., has no such path: it needs a warm-up, or DeepNorm's a > 1.

    It is called as the sublayers of "The annotated transformer" are, with the sublayer
    as an argument, by keyword: inside a layer of your own,
    `x = self.connection(x, sublayer=self.feed_forward)`.

    Args:
        placement: `"pre"`, `"post"`, `"sandwich"` or `"none"`. Defaults to `"pre"`.
        norm: `"layer"` or `"rms"`. Defaults to `"layer"`.
        norm_epsilon: float, inside the root of the norm. Defaults to `1e-5`.
        residual_scale: a, a float above 0: DeepNorm's alpha. Defaults to `1.0`.
        layer_scale: float or None. Where g, learned for each channel, starts; some
            0.1 for a shallow stack to 1e-6 for a deep one. None has g = 1. Defaults
            to `None`.
        rezero: bool. True learns one g, which starts at 0. Defaults to `False`.
        dropout: probability in [0, 1) that an element of f's output is dropped.
            Defaults to `0.0`.
        stochastic_depth: probability in [0, 1) that all of f's output is dropped for
            a row of the batch, in training; the kept ones are divided by 1 minus it.
            Defaults to `0.0`.
        seed: int. Of both. Defaults to `None`.

    Call arguments:
        inputs: x, float `(B, T, D)`.
        sublayer: f, a layer or function from `(B, T, D)` to `(B, T, D)`, or to a tuple
            of that and what is to be returned with x'.
        training: bool. True drops; it is not handed to f.

    Returns:
        x' `(B, T, D)`, or a tuple of it and what f returned besides.

    Masking: the mask of `inputs` is passed on; f is to be told of it.

    Numerics: the norms' statistics are at least float32.

    Raises:
        ValueError: `` `placement` must be one of 'pre', 'post', ... ``,
            `` `norm` must be one of 'layer', 'rms'. ``,
            `` `layer_scale` and `rezero` exclude each other. ``,
            `` `residual_scale` must be above 0. `` and
            `` The outputs of `sublayer` must have the shape of its inputs. ``
        TypeError: `` `inputs` must be floating-point... ``

    Example:

    >>> connection = kseq.layers.SublayerConnection(placement="pre", norm="rms")
    >>> feed_forward = kseq.layers.FeedForward(32)
    >>> tuple(connection(keras.ops.ones((2, 5, 8)), sublayer=feed_forward).shape)
    (2, 5, 8)

    References:
        Vaswani et al., 2017, arXiv:1706.03762 (post); Xiong et al., 2020, "On layer
        normalization in the transformer architecture", arXiv:2002.04745 (pre); Ding
        et al., 2021, "CogView", arXiv:2105.13290 (sandwich); Wang et al., 2022,
        "DeepNet", arXiv:2203.00555; Touvron et al., 2021, arXiv:2103.17239
        (LayerScale); Bachlechner et al., 2020, "ReZero is all you need",
        arXiv:2003.04887; Huang et al., 2016, "Deep networks with stochastic depth",
        arXiv:1603.09382.
    """

    def __init__(
        self,
        *,
        placement: str = "pre",
        norm: str = "layer",
        norm_epsilon: float = 1e-5,
        residual_scale: float = 1.0,
        layer_scale: float | None = None,
        rezero: bool = False,
        dropout: float = 0.0,
        stochastic_depth: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.placement = check_choice("placement", placement, PLACEMENTS)
        if not residual_scale > 0:
            raise ValueError(
                message(
                    "`residual_scale` must be above 0.", residual_scale=residual_scale
                )
            )
        if layer_scale is not None and rezero:
            raise ValueError(
                message(
                    "`layer_scale` and `rezero` exclude each other.",
                    layer_scale=layer_scale,
                    rezero=rezero,
                )
            )
        self.norm = check_choice("norm", norm, NORMS)
        self.norm_epsilon = norm_epsilon
        self.residual_scale = residual_scale
        self.layer_scale = layer_scale
        self.rezero = rezero
        self.seed = seed
        options = {"dtype": self.dtype_policy}
        self.input_norm: Any = None
        self.output_norm: Any = None
        if placement in ("pre", "sandwich"):
            self.input_norm = make_norm(
                norm, norm_epsilon, name="input_norm", **options
            )
        if placement in ("post", "sandwich"):
            self.output_norm = make_norm(
                norm, norm_epsilon, name="output_norm", **options
            )
        self.dropout = Dropout(dropout, seed=seed, **options)
        self.stochastic_depth = check_rate("stochastic_depth", stochastic_depth)
        # one element a row, dropped or kept
        rows = part_seed(seed, 1)
        self.row_dropout = Dropout(stochastic_depth, seed=rows, **options)
        self.supports_masking = True

    def build(self, inputs_shape: Shape) -> None:
        for norm in (self.input_norm, self.output_norm):
            if norm is not None:
                norm.build(inputs_shape)
        self.gain = None
        if self.rezero:
            self.gain = self.add_weight(name="gain", shape=(), initializer="zeros")
        elif self.layer_scale is not None:
            self.gain = self.add_weight(
                name="gain",
                shape=(inputs_shape[-1],),
                initializer=keras.initializers.Constant(self.layer_scale),
            )

    def call(
        self,
        inputs: Tensor,
        sublayer: Callable[[Tensor], Any],
        training: bool = False,
    ) -> Any:
        check_floating("inputs", inputs)
        x = inputs if self.input_norm is None else self.input_norm(inputs)
        branch = sublayer(x)
        branch, *others = branch if isinstance(branch, list | tuple) else (branch,)
        _check_shape(branch, inputs)
        if self.placement == "sandwich":
            branch = self.output_norm(branch)
        branch = self._dropped(branch, training)
        if self.gain is not None:
            branch = branch * ops.cast(self.gain, branch.dtype)
        if self.residual_scale != 1:
            inputs = inputs * self.residual_scale
        outputs = inputs + branch
        if self.placement == "post":
            outputs = self.output_norm(outputs)
        return (outputs, *others) if others else outputs

    def _dropped(self, branch: Tensor, training: bool) -> Tensor:
        branch = self.dropout(branch, training=training)
        if training and self.stochastic_depth:
            ones = ops.ones_like(branch[:, :1, :1])  # (B, 1, 1)
            branch = branch * self.row_dropout(ones, training=True)
        return branch

    def compute_output_spec(
        self, inputs: Any, sublayer: Callable[[Tensor], Any], training: bool = False
    ) -> Any:
        """Symbolic outputs: JAX can't trace a call that is given a function."""
        outputs = self.call(inputs, sublayer, training)
        return keras.tree.map_structure(
            lambda y: keras.KerasTensor(y.shape, y.dtype), outputs
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "placement": self.placement,
            "norm": self.norm,
            "norm_epsilon": self.norm_epsilon,
            "residual_scale": self.residual_scale,
            "layer_scale": self.layer_scale,
            "rezero": self.rezero,
            "dropout": self.dropout.rate,
            "stochastic_depth": self.stochastic_depth,
            "seed": self.seed,
        }


def part_seed(seed: int | None, part: int) -> int | None:
    """A seed for a part of a layer: parts of one seed draw unlike each other."""
    # far from the seeds that a stack of layers has: 0, 1, 2, ...
    return None if seed is None else (seed + part * 0x9E3779B1) % 2**31


def _check_shape(outputs: Tensor, inputs: Tensor) -> None:
    """Their sum would be of another shape, or none."""
    shapes = tuple(outputs.shape), tuple(inputs.shape)
    known = [a == b for a, b in zip(*shapes, strict=False) if None not in (a, b)]
    if len(outputs.shape) != len(inputs.shape) or not all(known):
        raise ValueError(
            message(
                "The outputs of `sublayer` must have the shape of its inputs.",
                fix="A recurrent layer needs `return_sequences=True` and the width of "
                "the inputs.",
                inputs_shape=shapes[1],
                outputs_shape=shapes[0],
            )
        )
