"""The picture: cells where they belong, colors that order, labels that fit."""

import io

import numpy as np
import pytest
from PIL import Image

from kseq.callbacks.attention_picture import (
    AttentionPanel,
    attention_png,
    draw_attention,
)

CELL, MARGIN = 24, 12


def panel(rows, columns, weights=None, title="example 1"):
    if weights is None:
        weights = np.zeros((rows, columns))
    return AttentionPanel(title, weights, ["F"] * rows, ["p"] * columns)


def cells(picture, rows, columns):
    """Color at the middle of each cell of the only map, found by its frame."""
    frame = np.all(np.asarray(picture) == (134, 142, 150), axis=-1)
    top = np.argmax(frame.sum(axis=1) >= columns * CELL)
    left = np.argmax(frame.sum(axis=0) >= rows * CELL)
    middle = CELL // 2
    pixels = np.asarray(picture)[top + middle :: CELL, left + middle :: CELL]
    return pixels[:rows, :columns]


def test_rows_are_queries_and_columns_are_keys():
    weights = np.zeros((3, 5))
    weights[2, 1] = 1.0
    got = cells(draw_attention(panel(3, 5, weights)), 3, 5)
    dark = np.all(got == (8, 36, 85), axis=-1)
    white = np.all(got == 255, axis=-1)
    assert np.argwhere(dark).tolist() == [[2, 1]]
    assert white.sum() == 14


def test_more_weight_is_darker():
    weights = np.linspace(0, 1, 11)[None]
    got = cells(draw_attention(panel(1, 11, weights)), 1, 11)[0]
    lightness = got.astype(float) @ (0.2126, 0.7152, 0.0722)
    assert np.all(np.diff(lightness) < -3)


def test_padding_past_the_tokens_is_left_out():
    padded = panel(3, 5)._replace(weights=np.ones((7, 11)))
    got = draw_attention(padded)
    want = draw_attention(panel(3, 5, np.ones((3, 5))))
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


@pytest.mark.parametrize(("rows", "columns"), [(97, 150), (1, 1), (300, 7)])
def test_size_is_capped_and_small_maps_still_draw(rows, columns):
    picture = draw_attention(panel(rows, columns))
    assert max(picture.size) < 1400


def test_long_labels_are_turned():
    letters = draw_attention(panel(2, 3))
    words = draw_attention(panel(2, 3)._replace(key_tokens=["photograph"] * 3))
    assert words.width == letters.width
    assert words.height > letters.height + 40


def test_png_holds_the_picture():
    drawn = panel(3, 5, np.eye(3, 5))
    image = Image.open(io.BytesIO(attention_png(drawn)))
    np.testing.assert_array_equal(np.asarray(image), np.asarray(draw_attention(drawn)))
