"""The weighted sum in chunks equals float64, with the gradient of its forward pass."""

import keras
import numpy as np
import pytest
from helpers import DTYPES, assert_close, gradients, on_tensorflow, to_numpy
from reference.crossentropy import vocabulary_crossentropy as reference

from kseq.backend import compiled
from kseq.ops import summed_vocabulary_crossentropy

B, T, D, N = 2, 5, 3, 7


def make(seed=0, dtype="float32"):
    rng = np.random.default_rng(seed)
    hidden, kernel, bias = (
        rng.normal(size=shape).astype(dtype) for shape in ((B, T, D), (D, N), (N,))
    )
    targets = rng.integers(0, N, (B, T)).astype("int32")
    weights = rng.uniform(0.5, 2, (B, T)).astype("float32")
    weights[0, -2:] = weights[1, :1] = 0
    return hidden, kernel, bias, targets, weights


def run(hidden, kernel, bias, targets, weights, mode="eager", tied=False, **options):
    """The sum, token losses, and gradients of hidden, kernel `(D, N)` and bias."""
    dtype = str(hidden.dtype)
    values = [kernel.T if tied else kernel] + ([] if bias is None else [bias])
    variables = [keras.Variable(x, dtype=dtype) for x in values]

    def function(hidden, targets, weights):
        kernel, *rest = [v.value for v in variables]
        return summed_vocabulary_crossentropy(
            hidden, kernel, targets, weights, bias=rest[0] if rest else None,
            transpose_kernel=tied, **options,
        )  # fmt: skip

    found, (d_hidden,), (d_kernel, *d_bias) = gradients(
        function, [hidden], variables, extras=[targets, weights], mode=mode, loss=total
    )
    return found, [d_hidden, d_kernel.T if tied else d_kernel, *d_bias]


def total(found):
    return found.total


def check(arguments, got, smoothing=0.0, z_loss=0.0):
    hidden, kernel, bias, targets, weights = arguments
    dtype, counts = str(hidden.dtype), weights > 0
    losses, want = reference(
        hidden, kernel, targets, counts, bias, weights, smoothing, z_loss
    )
    plain, _ = reference(hidden, kernel, targets, counts, bias)
    found, slopes = got
    assert_close("total", found.total, np.sum(losses * weights), dtype)
    assert_close("crossentropy", found.crossentropy, plain, dtype)
    want = list(want if bias is not None else want[:2])
    assert_close("gradients", slopes, want, dtype, gradient=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chunk", [1, 4, 64])
@pytest.mark.parametrize("tied", [False, True], ids=["kernel", "table"])
def test_equals_float64(tied, chunk, dtype):
    """10 tokens one by one, in chunks of 4 (2 of the last are none), at once."""
    arguments = make(chunk, dtype)
    options = dict(label_smoothing=0.1, z_loss=0.01)
    check(arguments, run(*arguments, tied=tied, chunk_size=chunk, **options), 0.1, 0.01)


@pytest.mark.parametrize(
    "mode", ["compiled", "forward", pytest.param("unknown", marks=on_tensorflow)]
)
def test_compiled(mode):
    arguments = make(1)
    options = dict(chunk_size=4, label_smoothing=0.1, z_loss=0.01)
    check(arguments, run(*arguments, mode, **options), 0.1, 0.01)


@pytest.mark.parametrize(("smoothing", "z_loss"), [(0.0, 0.0), (0.2, 0.0), (0.0, 0.1)])
def test_each_option_alone_and_no_bias(smoothing, z_loss):
    arguments = list(make(2))
    arguments[2] = None
    options = dict(label_smoothing=smoothing, z_loss=z_loss, chunk_size=3)
    check(arguments, run(*arguments, **options), smoothing, z_loss)


def test_what_does_not_count_may_be_anything():
    hidden, kernel, bias, targets, weights = make(4)
    clean = run(hidden, kernel, bias, targets, weights, chunk_size=4)
    hidden[weights == 0], targets[weights == 0] = np.nan, -5
    dirty = run(hidden, kernel, bias, targets, weights, chunk_size=4)
    assert_close("losses", list(dirty[0]), list(clean[0]))
    assert_close("gradients", dirty[1], clean[1])
    assert not dirty[1][0][weights == 0].any()


def test_sums_of_float16_do_not_overflow():
    """200,000 tokens of one target; the mean of them is trained."""
    count = 200_000
    hidden = keras.ops.ones((1, count, 1), "float16")
    kernel = keras.Variable(np.zeros((1, 2)), dtype="float16")
    targets = np.zeros((1, count), "int32")

    def function(hidden):
        return summed_vocabulary_crossentropy(
            hidden, kernel.value, targets, chunk_size=20_000
        )

    found, _, (slope,) = gradients(
        function, [hidden], [kernel], loss=lambda found: found.total / count
    )
    assert_close("loss", found.total / count, np.log(2), "float16")
    want = np.array([[-0.5, 0.5]])
    assert_close("gradient", slope, want, "float16", gradient=True)


@pytest.mark.parametrize(("target", "words"), [(N, "largest=7"), (-1, "smallest=-1")])
def test_a_target_without_a_logit_is_named_or_nan(target, words):
    hidden, kernel, _, targets, weights = make()
    targets[0, 1] = target
    with pytest.raises(ValueError, match=rf"Target ids must lie in .*{words}"):
        summed_vocabulary_crossentropy(hidden, kernel, targets, weights)
    run = compiled(summed_vocabulary_crossentropy, [])
    total, crossentropy = run(hidden, kernel, targets, weights)
    assert np.isnan(to_numpy(total))
    assert np.isnan(to_numpy(crossentropy)).sum() == 1
