"""Activations that are computed again: the same numbers, and less memory."""

import re

import keras
import numpy as np
import pytest
from helpers import (
    assert_close,
    assert_same,
    gradients,
    on_jax,
    on_tensorflow,
    to_numpy,
)
from keras import ops

from kseq.backend import remat
from kseq.layers import (
    GRU,
    FeedForward,
    MultiHeadAttention,
    TransformerDecoderBlock,
    TransformerEncoderBlock,
)

B, T, S, D = 2, 5, 4, 6


def draw(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype("float32")


def make(remat, mixer="attention", dtype="float32"):
    """With every kind of dropout that a block has."""
    keras.utils.set_random_seed(5)
    options = {"dropout": 0.3, "dtype": dtype}
    if mixer == "attention":
        layer = MultiHeadAttention(2, 3, seed=1, **options)
    else:
        layer = GRU(D, return_sequences=True, recurrent_dropout=0.2, seed=1, **options)
    block = TransformerDecoderBlock(
        layer,
        FeedForward(7, seed=2, **options),
        cross_attention=MultiHeadAttention(2, 3, seed=4, **options),
        stochastic_depth=0.3,
        remat=remat,
        seed=3,
        **options,
    )
    block.build((B, T, D), (B, S, D))
    return block


def run(block, mode, times=1):
    """Outputs and gradients of the last call, and the seeds after it."""
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], bool)

    def call(x, memory, mask):
        for _ in range(times):
            y = block(x, memory, mask=mask, training=True)
        seeds = [ops.convert_to_tensor(v.value) for v in block.non_trainable_variables]
        return y, seeds

    return gradients(
        call,
        [draw(B, T, D), draw(B, S, D)],
        block.trainable_variables,
        mode=mode,
        loss=lambda outputs: ops.sum(ops.sin(ops.cast(outputs[0], "float32"))),
        extras=[mask],
        state=block.non_trainable_variables,
    )


@pytest.mark.parametrize(
    ("mixer", "mode"),
    [
        ("attention", "eager"),
        ("GRU", "eager"),
        pytest.param("attention", "compiled", marks=pytest.mark.slow),
        pytest.param("GRU", "compiled", marks=pytest.mark.slow),
        pytest.param("attention", "forward", marks=pytest.mark.slow),
        pytest.param("GRU", "forward", marks=pytest.mark.slow),
    ],
)
def test_outputs_and_gradients_are_the_same(mixer, mode):
    """With dropout: the second computation draws what the first drew."""
    want, got = (run(make(on, mixer), mode, times=2) for on in (False, True))
    assert_close("y", got[0][0], want[0][0])
    assert_close("gradients", got[1:], want[1:], gradient=True)
    assert_same("seeds", got[0][1], want[0][1])
    assert any(g.any() for g in got[2])


@pytest.mark.parametrize(
    "mode", ["eager", pytest.param("compiled", marks=pytest.mark.slow)]
)
def test_mixed_precision(mode):
    """Weights are kept as they are stored, not as a layer casts them."""
    want, got = (run(make(on, dtype="mixed_bfloat16"), mode) for on in (False, True))
    assert_close("y", got[0][0], want[0][0], "bfloat16")
    assert_close("gradients", got[1:], want[1:], "bfloat16", gradient=True)
    assert_same("seeds", got[0][1], want[0][1])


def test_seeds_advance_once_a_step():
    """In eager mode, where the variables themselves are assigned."""
    blocks = [make(on) for on in (False, True)]
    x, memory = draw(B, T, D), draw(B, S, D)
    for _ in range(2):
        want, got = (to_numpy(b(x, memory, training=True)) for b in blocks)
        assert_same("y", got, want)
    want, got = ([to_numpy(v) for v in b.non_trainable_variables] for b in blocks)
    assert_same("seeds", got, want)


class Penalized(keras.layers.Layer):
    """Adds a loss, counts its calls and keeps a number that is not trained."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1],), name="kernel")
        self.calls = self.add_weight(
            shape=(), name="calls", initializer="zeros", trainable=False
        )

    def call(self, x):
        def body(x):
            self.calls.assign(self.calls + 1)
            y = ops.tanh(x * self.kernel)
            self.add_loss(ops.sum(y * y))
            return y

        return remat(self, body)(x)


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_losses_and_other_variables(mode):
    """A loss is added once, has its gradient, and what is counted is counted once."""
    layer, x = Penalized(), draw(3, 2)
    layer.build(x.shape)
    layer.kernel.assign([0.5, -1.5])
    found = []

    def call(x):
        scope = keras.StatelessScope(
            [(v, v.value) for v in layer.variables], collect_losses=True
        )
        with scope:
            y = layer(x)
        found.append(len(scope.losses))
        return y, scope.losses[0], scope.get_current_value(layer.calls)

    (y, loss, calls), (d_x,), _ = gradients(
        call, [x], [], mode=mode, loss=lambda outputs: outputs[1]
    )
    want = np.tanh(x * [0.5, -1.5])
    assert_close("y", y, want)
    assert_close("loss", loss, (want**2).sum())
    slope = 2 * want * (1 - want**2) * [0.5, -1.5]
    assert_close("d x", d_x, slope, gradient=True)
    assert calls == 1
    assert set(found) == {1}


def stack(remat, length, number):
    blocks = []
    for _ in range(number):
        block = TransformerEncoderBlock(
            MultiHeadAttention(4, 4, blockwise=False), FeedForward(64), remat=remat
        )
        block.build((2, length, 16))
        blocks.append(block)
    return blocks, [v for b in blocks for v in b.trainable_variables]


def loss_of(blocks, x):
    for block in blocks:
        x = block(x, training=True)
    return ops.sum(ops.square(x))


@on_jax
def test_memory_of_a_stack_falls():
    """What XLA allocates for a step of four blocks: to less than half."""
    import jax

    found, x = [], draw(2, 128, 16)
    for on in (False, True):
        blocks, variables = stack(on, 128, 4)

        def loss(values, blocks=blocks, variables=variables):
            with keras.StatelessScope(zip(variables, values, strict=True)):
                return loss_of(blocks, x)

        step = jax.jit(jax.grad(loss))
        program = step.lower([v.value for v in variables]).compile()
        found.append(program.memory_analysis().temp_size_in_bytes)
    assert found[1] < found[0] / 2


def gradient_of(blocks, variables):
    import tensorflow as tf

    def step(x):
        with tf.GradientTape() as tape:
            loss = loss_of(blocks, x)
        return tape.gradient(loss, [v.value for v in variables])

    return step


@on_tensorflow
def test_products_are_computed_again():
    """The compiler does not find that the work is done twice, and share it."""
    import tensorflow as tf

    found, x = [], tf.constant(draw(2, 7, 16))
    for on in (False, True):
        blocks, variables = stack(on, 7, 2)

        compiled = tf.function(
            gradient_of(blocks, variables), jit_compile=True, autograph=False
        )
        hlo = compiled.experimental_get_compiler_ir(x)(stage="optimized_hlo")
        found.append(len(re.findall(r" dot\(|custom-call\(", hlo)))
    # of the 8 products of a block's forward pass
    assert found[1] >= found[0] + 2 * 6
