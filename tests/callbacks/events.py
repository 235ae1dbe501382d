"""Reads event files back, in the way TensorBoard's Python loader does."""

import io
from typing import Any

import numpy as np
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util


def read_events(directory: Any) -> dict[str, list[tuple[int, Any]]]:
    """Tag -> its (step, value) pairs: a float, an array, or a list of bytes."""
    events = load(directory)
    return {
        tag: [(event.step, _value(event.tensor_proto)) for event in events.Tensors(tag)]
        for tag in events.Tags()["tensors"]
    }


def load(directory: Any) -> EventAccumulator:
    keep_all = {"tensors": 0}
    return EventAccumulator(str(directory), size_guidance=keep_all).Reload()


def picture(value: list[bytes]) -> Image.Image:
    """The picture of an image summary, after a look at the size it declares."""
    width, height, png = value
    image = Image.open(io.BytesIO(png))
    assert image.size == (int(width), int(height))
    return image


def _value(proto: Any) -> Any:
    array = tensor_util.make_ndarray(proto)
    if array.dtype == object:
        return list(array)
    return float(np.float64(array)) if array.ndim == 0 else array
