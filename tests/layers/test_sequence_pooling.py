"""One vector a row: values, padding of any kind, gradients."""

import keras
import numpy as np
import pytest
from helpers import assert_close, gradients

from kseq.layers import Embedding, SequencePooling

MASK = np.array(
    [
        [True, True, False, False],  # right
        [False, False, True, True],  # left
        [False, True, False, True],  # holes
        [True, True, True, True],
        [False, False, False, False],
    ]
)
POOLINGS = ["mean", "max", "first", "last"]


def draw(seed=0):
    # below zero, so that a zero in the padding would be the largest
    return -1 - np.random.default_rng(seed).random((5, 4, 3))


def reference(pooling, x, mask):
    rows = []
    for row, real in zip(x, mask, strict=True):
        real = row[real]
        if not len(real):
            rows.append(np.zeros(x.shape[2]))
        elif pooling in ("mean", "max"):
            rows.append(getattr(np, pooling)(real, axis=0))
        else:
            rows.append(real[0 if pooling == "first" else -1])
    return np.stack(rows)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_values(pooling):
    x, layer = draw(), SequencePooling(pooling)
    assert_close("y", layer(x, mask=MASK), reference(pooling, x, MASK))
    everything = np.ones_like(MASK)
    assert_close("without", layer(x), reference(pooling, x, everything))


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_padding_may_be_nan(pooling, mode):
    """Values, and gradients: d y / d x is that of the real tokens, 0 elsewhere."""
    x, layer = draw(), SequencePooling(pooling)
    hidden = np.where(MASK[..., None], x, np.nan).astype("float32")
    clean = np.where(MASK[..., None], x, 0).astype("float32")
    got = gradients(lambda x: layer(x, mask=MASK), [hidden], [], mode=mode)
    want = gradients(lambda x: layer(x, mask=MASK), [clean], [], mode=mode)
    assert_close("y", got[0], reference(pooling, x, MASK))
    assert_close("d_x", got[1], want[1], gradient=True)
    assert not got[1][0][~MASK].any()
    assert got[1][0][:4].any(axis=(1, 2)).all()


def test_the_keras_mask_is_read_and_not_passed_on():
    embedding = Embedding(9, 3, mask_zero=True)
    ids = np.array([[5, 6, 0, 0]])
    first = SequencePooling("last")(embedding(ids))
    assert_close("y", first, embedding(np.array([6])))
    assert SequencePooling().compute_mask(None, None) is None


@pytest.mark.parametrize("pooling", POOLINGS)
def test_lengths_may_be_unknown(pooling):
    x = keras.Input((None, 3))
    model = keras.Model(x, SequencePooling(pooling)(x))
    assert model.output_shape == (None, 3)
    assert_close("y", model(draw()[:, :1]), draw()[:, 0])


def test_a_long_mean_of_halves_is_taken_in_float32():
    """2,500 ones: float16 can't count beyond 2,048 in steps of one."""
    x = np.ones((1, 2500, 1), "float16")
    assert_close("y", SequencePooling(dtype="float16")(x), [[1.0]], "float16")


def test_what_is_refused():
    with pytest.raises(ValueError, match="`pooling` must be one of 'mean', 'max', "):
        SequencePooling("sum")
    with pytest.raises(ValueError, match=r"`sequences` must have shape \(B, T, D\)"):
        SequencePooling()(np.zeros((2, 3)))
    with pytest.raises(TypeError, match="`mask` must be boolean"):
        SequencePooling()(np.zeros((2, 3, 1)), mask=np.ones((2, 3)))
