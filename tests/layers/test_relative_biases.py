"""AlibiBias and T5RelativeBias: values, forms, what attention gets."""

import keras
import numpy as np
import pytest
from helpers import DTYPES, assert_close, assert_same, gradients, to_numpy
from keras import ops
from reference import positions as reference

import kseq
from kseq.layers.positions.relative_bias import RelativeBias

H, T, S = 6, 5, 7
RELATIVE = np.arange(S) - np.arange(T)[:, None] - 1  # (T, S): one key before them


def t5(dtype="float32", **options):
    """And its table."""
    layer = kseq.layers.T5RelativeBias(H, dtype=dtype, **options)
    layer.build((T, S))
    table = np.random.default_rng(0).normal(size=(layer.num_buckets, H))
    layer.set_weights([table])
    return layer, table


@pytest.mark.parametrize("dtype", DTYPES)
def test_alibi(dtype):
    got = kseq.layers.AlibiBias(H, dtype=dtype)(RELATIVE)
    slopes = reference.slopes(H)
    want = np.zeros((H, T, S))
    for h, t, s in np.ndindex(H, T, S):
        q, k = t + 1, s
        want[h, t, s] = -slopes[h] * (q - k if k <= q else k - q)
    assert got.dtype == dtype
    assert_close("bias", got, want, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "options",
    [{}, {"num_buckets": 8, "max_distance": 3}, {"bidirectional": False}],
    ids=str,
)
def test_t5(options, dtype):
    layer, table = t5(dtype, **options)
    got = layer(RELATIVE)
    want = np.zeros((H, T, S))
    for h, t, s in np.ndindex(H, T, S):
        want[h, t, s] = table[reference.bucket(int(RELATIVE[t, s]), **options), h]
    assert got.dtype == dtype
    assert_close("bias", got, want, dtype)


@pytest.mark.parametrize("mode", ["eager", "compiled", "forward"])
def test_the_gradient_of_t5s_table(mode):
    """How many pairs are in each bucket."""
    layer, _ = t5(num_buckets=8, max_distance=4)
    _, _, (got,) = gradients(
        layer, [RELATIVE.astype("int32")], layer.trainable_variables,
        mode=mode, loss=ops.sum,
    )  # fmt: skip
    want = np.zeros((8, H))
    for r in RELATIVE.ravel():
        want[reference.bucket(int(r), 8, 4)] += 1
    assert_close("table", got, want, gradient=True)


MAKERS = {
    "AlibiBias": kseq.layers.AlibiBias,
    "T5RelativeBias": kseq.layers.T5RelativeBias,
}
BOTH = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@BOTH
@pytest.mark.parametrize("shape", [(), (S,), (T, S), (2, T, S), (2, 1, S)], ids=str)
def test_any_shape(make, shape):
    """Heads first, each entry as if it stood alone."""
    layer = make(H)
    relative = np.random.default_rng(0).integers(-200, 200, shape)
    got = to_numpy(layer(relative))
    assert got.shape == (H, *shape)
    assert layer.compute_output_shape(shape) == (H, *shape)
    flat = to_numpy(layer(relative.reshape(-1)))
    assert_same("bias", got, flat.reshape(H, *shape))


@BOTH
def test_a_bias_depends_on_the_difference_and_the_cached_row_is_that_of_the_full(make):
    layer = make(H)
    positions = np.arange(9)
    full = to_numpy(layer(positions - positions[:, None]))
    for t in (0, 4, 8):
        row = to_numpy(layer((positions - t)[None]))
        assert_same("row", row[:, 0], full[:, t])
    assert_same("shifted", full[:, :-1, :-1], full[:, 1:, 1:])


@BOTH
@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_float16"])
def test_half_precision_has_a_bias_in_float32(make, dtype):
    """ALiBi's neighbors at 256 and 257, which bfloat16 cannot tell apart."""
    layer = make(H, dtype=dtype)
    relative = np.array([-257, -256])
    got = layer(relative)
    symbolic = layer(keras.Input((), dtype="int32"))
    assert got.dtype == symbolic.dtype == "float32"
    if isinstance(layer, kseq.layers.AlibiBias):
        want = -np.outer(reference.slopes(H), [257, 256])
        assert_close("bias", got, want)


def test_mixed_precision_takes_the_rows_of_t5_as_they_are():
    layer, table = t5("mixed_bfloat16")
    want = table.astype("float32")[[reference.bucket(r) for r in (-9, 3)]].T
    assert_same("bias", layer(np.array([-9, 3])), want)


@BOTH
def test_what_attention_reads(make):
    assert make(H).num_heads == H
    assert isinstance(make(H), RelativeBias)


@BOTH
@pytest.mark.parametrize("heads", [0, 1.5, None])
def test_heads_are_checked(make, heads):
    with pytest.raises(ValueError, match="`num_heads` must be a positive integer"):
        make(heads)


@BOTH
def test_distances_are_integers(make):
    with pytest.raises(TypeError, match="`relative_positions` must be integers"):
        make(H)(RELATIVE.astype("float32"))


def test_sizes_of_t5_are_checked():
    with pytest.raises(ValueError, match="`num_buckets` must be even and at least 4"):
        kseq.layers.T5RelativeBias(H, num_buckets=7)
    with pytest.raises(ValueError, match="`max_distance` must be greater"):
        kseq.layers.T5RelativeBias(H, max_distance=8)


def test_the_initializer():
    layer = kseq.layers.T5RelativeBias(H, embeddings_initializer="ones")
    assert_same("bias", layer(RELATIVE), np.ones((H, T, S)))
