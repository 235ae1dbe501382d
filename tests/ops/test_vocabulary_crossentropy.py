"""The crossentropy in chunks of tokens equals float64, and never holds all logits."""

import re

import keras
import numpy as np
import pytest
from helpers import (
    DTYPES,
    assert_close,
    cotangent,
    gradients,
    on_jax,
    on_tensorflow,
    to_numpy,
)
from reference.crossentropy import vocabulary_crossentropy as reference
from reference.differences import numeric_gradients

from kseq.backend import compiled
from kseq.ops import vocabulary_crossentropy
from kseq.ops.vocabulary_crossentropy import token_statistics

B, T, D, N = 2, 5, 3, 7


def make(seed=0, dtype="float32", length=T):
    rng = np.random.default_rng(seed)
    hidden, kernel, bias = (
        rng.normal(size=shape).astype(dtype) for shape in ((B, length, D), (D, N), (N,))
    )
    targets = rng.integers(0, N, (B, length)).astype("int32")
    counts = np.ones((B, length), bool)
    counts[0, -2:] = counts[1, :1] = False
    return hidden, kernel, bias, targets, counts


def run(hidden, kernel, bias, targets, counts, mode, tied=False, **options):
    """Losses, and gradients of hidden, kernel `(D, N)` and bias, if there is one."""
    dtype = str(hidden.dtype)
    values = [kernel.T if tied else kernel] + ([] if bias is None else [bias])
    variables = [keras.Variable(x, dtype=dtype) for x in values]

    def losses(hidden, targets, counts):
        kernel, *rest = [v.value for v in variables]
        return vocabulary_crossentropy(
            hidden, kernel, targets, counts, bias=rest[0] if rest else None,
            transpose_kernel=tied, **options,
        )  # fmt: skip

    y, (d_hidden,), (d_kernel, *d_bias) = gradients(
        losses, [hidden], variables, extras=[targets, counts], mode=mode
    )
    return y, [d_hidden, d_kernel.T if tied else d_kernel, *d_bias]


def check(arguments, got, smoothing=0.0, z_loss=0.0):
    hidden, kernel, bias, targets, counts = arguments
    losses, found = reference(
        hidden, kernel, targets, counts, bias,
        cotangent(targets, 0), smoothing, z_loss,
    )  # fmt: skip
    dtype = str(hidden.dtype)
    assert_close("losses", got[0], losses, dtype)
    want = list(found if bias is not None else found[:2])
    assert_close("gradients", got[1], want, dtype, gradient=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chunk", [1, 4, 10, 64])
@pytest.mark.parametrize("tied", [False, True], ids=["kernel", "table"])
def test_equals_float64(tied, chunk, dtype):
    """10 tokens: in chunks of 4 (2 tokens of the last are no tokens), in one, in 10."""
    arguments = make(chunk, dtype)
    options = dict(label_smoothing=0.1, z_loss=0.01)
    got = run(*arguments, "eager", tied, chunk_size=chunk, **options)
    check(arguments, got, 0.1, 0.01)


@pytest.mark.parametrize(
    "mode", ["compiled", "forward", pytest.param("unknown", marks=on_tensorflow)]
)
def test_compiled(mode):
    arguments = make(1)
    got = run(*arguments, mode, chunk_size=4, label_smoothing=0.1, z_loss=0.01)
    check(arguments, got, 0.1, 0.01)


@pytest.mark.parametrize(("smoothing", "z_loss"), [(0.0, 0.0), (0.2, 0.0), (0.0, 0.1)])
def test_each_option_alone_and_no_bias(smoothing, z_loss):
    arguments = list(make(2))
    arguments[2] = None
    options = dict(label_smoothing=smoothing, z_loss=z_loss, chunk_size=3)
    check(arguments, run(*arguments, "eager", **options), smoothing, z_loss)


def test_the_gradients_of_the_reference_are_its_differences():
    hidden, kernel, bias, targets, counts = make(3, "float64")
    upstream = cotangent(targets, 0)
    options = dict(smoothing=0.1, z_loss=0.1)

    def loss(hidden, kernel, bias):
        losses, _ = reference(hidden, kernel, targets, counts, bias, **options)
        return np.sum(losses * upstream)

    _, found = reference(hidden, kernel, targets, counts, bias, upstream, **options)
    want = numeric_gradients(loss, [hidden, kernel, bias])
    assert_close("gradients", list(found), want)


def test_logits_two_one_zero():
    """F: logits 2, 1, 0: -log p[0] is .40760596; smoothed by .1, .50760596."""
    hidden, kernel = np.ones((1, 1, 1), "float32"), np.float32([[2, 1, 0]])
    for smoothing, want in ((0.0, 0.40760596), (0.1, 0.50760596)):
        loss = vocabulary_crossentropy(
            hidden, kernel, np.array([[0]]), label_smoothing=smoothing
        )
        assert_close("loss", loss, [[want]])


def test_what_does_not_count_may_be_anything():
    hidden, kernel, bias, targets, counts = make(4)
    clean = run(hidden, kernel, bias, targets, counts, "eager", chunk_size=4)
    hidden[~counts], targets[~counts] = np.nan, -5
    dirty = run(hidden, kernel, bias, targets, counts, "eager", chunk_size=4)
    assert_close("losses", dirty[0], clean[0])
    assert_close("gradients", dirty[1], clean[1])
    assert not dirty[1][0][~counts].any()


def test_half_precision_sums_in_float32():
    hidden, kernel, _, targets, counts = make(5)
    half = [keras.ops.cast(x, "bfloat16") for x in (hidden, kernel)]
    losses = vocabulary_crossentropy(*half, targets, counts, chunk_size=4)
    assert keras.backend.standardize_dtype(losses.dtype) == "float32"
    want, _ = reference(*map(to_numpy, half), targets, counts)
    assert_close("losses", losses, want, "bfloat16")


def test_no_tokens():
    hidden, kernel, _, targets, _ = make(length=0)
    assert tuple(vocabulary_crossentropy(hidden, kernel, targets).shape) == (B, 0)


def test_statistics_are_those_of_the_logits():
    hidden, kernel, bias, targets, _ = make(6)
    found = token_statistics(hidden, kernel, targets, bias=bias, chunk_size=3)
    logits = hidden.astype("float64") @ kernel + bias
    normalizer = np.log(np.exp(logits).sum(-1))
    picked = np.take_along_axis(logits, targets[..., None], -1)[..., 0]
    assert_close("crossentropy", found.crossentropy, normalizer - picked)
    assert_close("uniform", found.uniform, normalizer - logits.mean(-1))
    assert_close("normalizer", found.normalizer, normalizer)


@pytest.mark.parametrize(("target", "words"), [(N, "largest=7"), (-1, "smallest=-1")])
def test_a_target_without_a_logit_is_named_or_nan(target, words):
    hidden, kernel, _, targets, counts = make()
    targets[0, 1] = target
    with pytest.raises(ValueError, match=rf"Target ids must lie in .*{words}"):
        vocabulary_crossentropy(hidden, kernel, targets, counts)
    losses = to_numpy(compiled(vocabulary_crossentropy, [])(
        hidden, kernel, targets, counts
    ))  # fmt: skip
    assert np.isnan(losses[0, 1])
    assert np.isnan(losses).sum() == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kernel": np.ones((N, D))}, r"`kernel` must be `\(D, N\)`.*\(7, 3\)"),
        ({"kernel": np.ones(D)}, r"`kernel` must be `\(D, N\)`"),
        ({"transpose_kernel": True}, r"`kernel` must be `\(N, D\)`.*\(3, 7\)"),
        ({"targets": np.ones((B, T + 1), int)}, r"The targets must be ids.*\(2, 6\)"),
        ({"targets": np.ones((B, T, 1), int)}, r"The targets must be ids"),
        ({"weights": np.ones(B)}, r"`weights` must have the shape of the.*\(2,\)"),
        ({"weights": np.ones((B, 1))}, r"`weights` must have the shape.*\(2, 1\)"),
        ({"bias": np.ones(1)}, r"`bias` must have shape \(N,\).*\(1,\), N=7"),
        ({"label_smoothing": 1.0}, r"`label_smoothing` must be a probability"),
        ({"z_loss": -1e-4}, r"`z_loss` must be a number of at least 0"),
        ({"chunk_size": 0}, r"`chunk_size` must be a positive integer"),
    ],
)
def test_arguments_are_checked(change, words):
    hidden, kernel, _, targets, _ = make()
    arguments = dict(hidden=hidden, kernel=kernel, targets=targets)
    with pytest.raises(ValueError, match=words):
        vocabulary_crossentropy(**{**arguments, **change})


TOKENS, WIDTH, VOCABULARY, CHUNK = 512, 8, 2000, 64


def mean_loss(hidden, kernel, targets):
    losses = vocabulary_crossentropy(hidden, kernel, targets, chunk_size=CHUNK)
    return keras.ops.mean(losses)


def large():
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(1, TOKENS, WIDTH)).astype("float32")
    kernel = rng.normal(size=(WIDTH, VOCABULARY)).astype("float32")
    return hidden, kernel, rng.integers(0, VOCABULARY, (1, TOKENS)).astype("int32")


@on_jax
def test_memory_is_that_of_a_chunk():
    import jax

    lowered = jax.jit(jax.grad(mean_loss, argnums=(0, 1))).lower(*large())
    size = lowered.compile().memory_analysis().temp_size_in_bytes
    assert size < TOKENS * VOCABULARY * 4 / 2  # two chunks are a fourth


@on_tensorflow
def test_no_buffer_of_all_logits():
    """In the program of the loss and its gradient."""
    import tensorflow as tf

    @tf.function(jit_compile=True, autograph=False)
    def program(hidden, kernel, targets):
        with tf.GradientTape() as tape:
            tape.watch([hidden, kernel])
            loss = mean_loss(hidden, kernel, targets)
        return tape.gradient(loss, [hidden, kernel])

    inputs = [tf.constant(x) for x in large()]
    text = program.experimental_get_compiler_ir(*inputs)(stage="optimized_hlo")
    shapes = re.findall(r"\b(?:f32|s32|u32|pred)\[([\d,]+)\]", text)
    sizes = [np.prod([int(n) for n in shape.split(",")]) for shape in shapes]
    assert max(sizes) == CHUNK * VOCABULARY
