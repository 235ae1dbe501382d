"""PositionEmbedding: rows, stretched rows, positions past the table."""

import keras
import numpy as np
import pytest
from helpers import DTYPES, assert_close, assert_same, gradients, to_numpy
from keras import ops
from reference.positions import stretched

import kseq
from kseq.backend import compiled

B, T, D, L = 2, 5, 3, 7
X = np.zeros((B, T, D), "float32")
STEPS = np.arange(T)
TABLE = np.random.default_rng(0).normal(size=(L, D))


def made(dtype="float32", x=X, **options):
    layer = kseq.layers.PositionEmbedding(L, dtype=dtype, **options)
    layer.build(x.shape)
    layer.set_weights([TABLE])
    return layer


@pytest.mark.parametrize(
    ("given", "positions"),
    [
        ({}, [STEPS] * B),
        ({"start_index": 2}, [STEPS + 2] * B),
        ({"start_index": np.array([2, 0])}, [STEPS + 2, STEPS]),
        ({"positions": STEPS[::-1]}, [STEPS[::-1]] * B),
        ({"positions": np.stack([STEPS, STEPS + 2])}, [STEPS, STEPS + 2]),
    ],
    ids=["none", "scalar", "(B,)", "(T,)", "(B, T)"],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows(given, positions, dtype):
    got = made(dtype)(X.astype(dtype), **given)
    assert_close("rows", got, TABLE[np.array(positions)], dtype)


@pytest.mark.parametrize("length", [7, 8, 13, 1001])
@pytest.mark.parametrize("dtype", DTYPES)
def test_stretched(length, dtype):
    layer = made(dtype, interpolated_length=length)
    positions = np.array([[0, 1, 2, 3, length - 1], [6, 5, 4, length - 2, 0]])
    want = [[stretched(TABLE, length, p) for p in row] for row in positions]
    got = layer(X.astype(dtype), positions=positions)
    assert_close("rows", got, np.array(want), dtype)


def test_one_row_is_stretched_to_all():
    layer = kseq.layers.PositionEmbedding(1, interpolated_length=T)
    assert_same("rows", layer(X), np.broadcast_to(layer.get_weights()[0], X.shape))


@pytest.mark.parametrize("mode", ["eager", "compiled", "forward"])
def test_the_gradient_of_the_table(mode):
    """Each row is taken as often as its positions say, in its share."""
    layer = made(interpolated_length=13)
    positions = np.array([[0, 2, 2, 3, 12], [2, 5, 0, 0, 1]], "int32")
    _, _, (got,) = gradients(
        lambda p: layer(X, positions=p), [positions], layer.trainable_variables,
        mode=mode, loss=ops.sum,
    )  # fmt: skip
    want = np.zeros((L, D))
    for p in positions.ravel():
        for row in range(L):  # a table of one row 1 shows the share of that row
            want[row] += stretched(np.eye(L)[row], 13, p)
    assert_close("table", got, want, gradient=True)


@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16"])
def test_half_precision_is_rounded_once(dtype):
    layer = made(dtype, interpolated_length=13)
    table = to_numpy(layer.embeddings)
    want = [stretched(table, 13, p) for p in STEPS]
    got = to_numpy(layer(X))[0]
    assert_same("rows", got, ops.cast(ops.cast(np.array(want), "float32"), "bfloat16"))


@pytest.mark.parametrize(
    ("options", "last"), [({}, 6), ({"interpolated_length": 9}, 8)]
)
def test_past_the_table(options, last):
    """An error where the position is known, and the last row where it can't be."""
    words = rf"Positions must lie in \[0, {last + 1}\).*largest={last + 1}, sequence"
    layer = made(**options)
    far = np.array([0, 1, 2, 3, last + 1], "int32")
    start = last + 2 - T
    x = ops.zeros((B, last + 2, D))
    for given in ({"start_index": start}, {"start_index": [0, start]},
                  {"positions": far}):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            layer(X, **given)
    with pytest.raises(ValueError, match=words):  # eager
        layer(x)
    with pytest.raises(ValueError, match=words):  # built
        kseq.layers.PositionEmbedding(L, **options)(keras.Input((last + 2, D)))
    with pytest.raises(ValueError, match=words):  # traced
        compiled(layer, layer.variables)(x)
    with pytest.raises(ValueError, match=words):  # traced
        compiled(lambda x: layer(x, start_index=start), layer.variables)(X)

    run = compiled(lambda x, p: layer(x, positions=p), layer.variables)
    got = to_numpy(run(X, far))
    assert_close("the last row", got[:, -1], np.stack([TABLE[-1]] * B))
    assert_close("the others", got[:, :-1], to_numpy(layer(X))[:, :-1])
    start = compiled(lambda x, s: layer(x, start_index=s), layer.variables)
    got = to_numpy(start(X, np.array([last, 0], "int32")))
    assert_close("from the last row on", got[0], np.stack([TABLE[-1]] * T))
    negative = to_numpy(run(X, -far))
    assert_close("below 0", negative[0], np.stack([TABLE[0]] * T))


def test_positions_that_start_anew_may_be_longer_than_the_table():
    """Two packed sequences in a row of 10 steps, over 7 positions; built that way."""
    inputs, packed = keras.Input((10, D)), keras.Input((10,), dtype="int32")
    layer = kseq.layers.PositionEmbedding(L)
    run = keras.Model([inputs, packed], layer(inputs, positions=packed))
    layer.set_weights([TABLE])
    positions = np.array([[0, 1, 2, 3, 4, 0, 1, 2, 3, 4]])
    got = run([np.zeros((1, 10, D), "float32"), positions])
    assert_close("rows", got, TABLE[positions])


def test_unknown_time_runs_for_every_length():
    inputs = keras.Input((None, D))
    layer = kseq.layers.PositionEmbedding(L)
    run = keras.Model(inputs, layer(inputs))
    layer.set_weights([TABLE])
    for length in (1, L):
        got = run(np.zeros((1, length, D), "float32"))
        assert_close("rows", got, TABLE[None, :length])
    with pytest.raises(ValueError, match="Positions must lie in"):
        run(np.zeros((1, L + 1, D), "float32"))
    assert tuple(run(np.zeros((1, 0, D), "float32")).shape) == (1, 0, D)


def test_the_mask_is_passed_on():
    ids = np.array([[3, 1, 0]])
    x = kseq.layers.Embedding(7, D, mask_zero=True)(ids)
    encoding = kseq.layers.PositionEmbedding(L)(x)
    assert_same("mask", encoding._keras_mask, ids != 0)
    total = keras.layers.Add()([x, encoding])
    assert_same("of the sum", total._keras_mask, ids != 0)


def test_the_initializer():
    layer = kseq.layers.PositionEmbedding(L, embeddings_initializer="ones")
    assert_same("rows", layer(X), np.ones_like(X))


@pytest.mark.parametrize("length", [0, -1, 1.5, None])
def test_lengths_are_checked(length):
    with pytest.raises(ValueError, match="`sequence_length` must be a positive"):
        kseq.layers.PositionEmbedding(length)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="`interpolated_length` must be at least"):
        kseq.layers.PositionEmbedding(L, interpolated_length=L - 1)
    with pytest.raises(ValueError, match="`interpolated_length` must be a positive"):
        kseq.layers.PositionEmbedding(L, interpolated_length=9.5)
    with pytest.raises(ValueError, match=r"`inputs` must have shape \(B, T, D\)"):
        kseq.layers.PositionEmbedding(L)(X[0])
    with pytest.raises(ValueError, match="`start_index` must not be negative"):
        made()(X, start_index=-1)
    with pytest.raises(TypeError, match="`positions` must be integers"):
        made()(X, positions=STEPS.astype("float32"))
