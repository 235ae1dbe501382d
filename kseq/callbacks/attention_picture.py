"""Draws attention weights with their tokens."""

import io
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

# pixels
_CELL = 24
_SMALLEST_CELL = 4
_MAP_SIZE = 1200
_MARGIN = 12
_BETWEEN = 20
_GAP = 6

_INK = (33, 37, 41)
_FAINT = (134, 142, 150)
_GRID = (233, 236, 239)
# white to dark blue, of falling lightness: readable in print and to color-blind eyes
_RAMP = np.array(
    [
        (255, 255, 255),
        (222, 235, 247),
        (158, 202, 225),
        (66, 146, 198),
        (8, 81, 156),
        (8, 36, 85),
    ]
)


class AttentionPanel(NamedTuple):
    """One example: `weights` of shape `(T, S)`, T query and S key tokens.

    Weights past the end of either token list are left out: they belong to padding.
    """

    title: str
    weights: np.ndarray
    query_tokens: Sequence[str]
    key_tokens: Sequence[str]


def attention_png(panel: AttentionPanel, font: str | None = None) -> bytes:
    """The picture of `draw_attention` as the bytes of a PNG file."""
    buffer = io.BytesIO()
    draw_attention(panel, font).save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def draw_attention(panel: AttentionPanel, font: str | None = None) -> Image.Image:
    """Draws one example: queries down, keys across, weight as color.

    The color scale is the same in every picture, so that epochs compare: white is
    weight 0, the darkest blue is weight 1, and color follows the square root of the
    weight, so that attention spread over many keys stays visible. Cells shrink for
    long sequences; labels that would not fit are then left out evenly.

    Args:
        panel: the weights and their tokens.
        font: path of a TrueType font, for scripts that Pillow's own font lacks.
    """
    drawn, scale = _draw_panel(panel, font), _draw_scale(font)
    width = max(drawn.width, scale.width) + 2 * _MARGIN
    height = drawn.height + _BETWEEN + scale.height + 2 * _MARGIN
    picture = Image.new("RGB", (width, height), "white")
    picture.paste(drawn, (_MARGIN, _MARGIN))
    picture.paste(scale, (_MARGIN, _MARGIN + drawn.height + _BETWEEN))
    return picture


def _draw_panel(panel: AttentionPanel, font_path: str | None) -> Image.Image:
    queries, keys = list(panel.query_tokens), list(panel.key_tokens)
    weights = panel.weights[: len(queries), : len(keys)]
    cell = max(_SMALLEST_CELL, min(_CELL, _MAP_SIZE // max(len(queries), len(keys))))
    font = _font(font_path, min(15, max(10, cell - 8)))
    title_font = _font(font_path, 13)
    line = _height(font)
    # letters stand upright, words and what is wider than its column are turned
    turned = [len(key) > 2 or _width(key, font) > cell - 2 for key in keys]
    label_heights = [
        _width(key, font) if turn else line
        for key, turn in zip(keys, turned, strict=True)
    ]

    left = max(_width(token, font) for token in queries) + _GAP
    top = _height(title_font) + _GAP + max(label_heights) + _GAP
    width = max(left + cell * len(keys), _width(panel.title, title_font)) + 1
    image = Image.new("RGB", (width, top + cell * len(queries) + 1), "white")
    draw = ImageDraw.Draw(image)
    draw.text((0, 0), panel.title, fill=_FAINT, font=title_font)
    image.paste(_heat_map(weights, cell), (left, top))
    _draw_grid(draw, (left, top), weights.shape, cell)

    every = -(-line // cell)
    for row in range(0, len(queries), every):
        place = (left - _GAP, top + row * cell + cell / 2)
        draw.text(place, queries[row], fill=_INK, font=font, anchor="rm")
    for column in range(0, len(keys), every):
        middle = left + column * cell + cell // 2
        if turned[column]:
            label = _turned(keys[column], font)
            image.paste(label, (middle - label.width // 2, top - _GAP - label.height))
        else:
            place = (middle, top - _GAP)
            draw.text(place, keys[column], fill=_INK, font=font, anchor="ms")
    return image


def _draw_scale(font_path: str | None) -> Image.Image:
    """A color bar that says which color is which weight."""
    font, line = _font(font_path, 11), _height(_font(font_path, 11))
    length, height = 180, 10
    image = Image.new("RGB", (length + 24, height + _GAP + line), "white")
    draw = ImageDraw.Draw(image)
    bar = _colors(np.square(np.linspace(0, 1, length)))
    image.paste(Image.fromarray(bar[None].repeat(height, axis=0)), (8, 0))
    draw.rectangle((8, 0, 8 + length, height), outline=_FAINT)
    for weight in (0, 0.01, 0.1, 0.25, 0.5, 1):
        x = 8 + length * weight**0.5
        draw.line((x, height, x, height + 3), fill=_FAINT)
        draw.text((x, height + 4), f"{weight:g}", fill=_FAINT, font=font, anchor="ma")
    return image


def _heat_map(weights: np.ndarray, cell: int) -> Image.Image:
    pixels = _colors(weights).repeat(cell, axis=0).repeat(cell, axis=1)
    return Image.fromarray(pixels)


def _colors(weights: np.ndarray) -> np.ndarray:
    """Weights of any shape -> RGB bytes of that shape + `(3,)`."""
    position = np.sqrt(np.clip(weights, 0, 1)) * (len(_RAMP) - 1)
    stops = np.arange(len(_RAMP))
    channels = [np.interp(position, stops, channel) for channel in _RAMP.T]
    return np.stack(channels, axis=-1).round().astype("uint8")


def _draw_grid(
    draw: ImageDraw.ImageDraw,
    origin: tuple[int, int],
    shape: tuple[int, ...],
    cell: int,
) -> None:
    (left, top), (rows, columns) = origin, shape
    right, bottom = left + columns * cell, top + rows * cell
    if cell >= 12:
        for column in range(1, columns):
            x = left + column * cell
            draw.line((x, top, x, bottom), fill=_GRID)
        for row in range(1, rows):
            y = top + row * cell
            draw.line((left, y, right, y), fill=_GRID)
    draw.rectangle((left, top, right, bottom), outline=_FAINT)


def _turned(text: str, font: Font) -> Image.Image:
    label = Image.new("RGB", (_width(text, font), _height(font)), "white")
    ImageDraw.Draw(label).text((0, 0), text, fill=_INK, font=font)
    return label.rotate(90, expand=True)


def _font(path: str | None, size: int) -> Font:
    if path is None:
        return ImageFont.load_default(size=size)
    return ImageFont.truetype(path, size)


def _width(text: str, font: Font) -> int:
    return int(np.ceil(font.getlength(text)))


def _height(font: Font) -> int:
    return int(np.ceil(font.getbbox("Áy")[3]))
