"""Reads what the callbacks of kseq wrote, through TensorBoard's data provider."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tensorboard import errors
from tensorboard.context import RequestContext
from tensorboard.data.provider import DataProvider, RunTagFilter

from kseq_tensorboard.records import unpack

ATTENTION = "kseq_attention"
GRADIENTS = "kseq_gradients"
THROUGH_TIME = "kseq_through_time"
# Most steps of a series that TensorBoard keeps in memory; those between are dropped
KEPT_STEPS = {ATTENTION: 50, GRADIENTS: 2000, THROUGH_TIME: 200}
# columns or steps that a page can show
_MOST_STEPS = 2000
# pixels along each side of a small picture
_THUMBNAIL = 32

Run = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Reader:
    """Reads the series of one experiment, on behalf of one request."""

    provider: DataProvider
    context: RequestContext
    experiment: str

    def index(self) -> dict[str, dict[str, Run]]:
        """Plugin -> run -> tag -> what describes the series, and of blobs the steps."""
        where = {"ctx": self.context, "experiment_id": self.experiment}
        index = {
            plugin: _contents(self.provider.list_tensors(plugin_name=plugin, **where))
            for plugin in (GRADIENTS, THROUGH_TIME)
        }
        blobs = self.provider.list_blob_sequences(plugin_name=ATTENTION, **where)
        index[ATTENTION] = _contents(blobs)
        found = self.provider.read_blob_sequences(
            plugin_name=ATTENTION, downsample=_MOST_STEPS, **where
        )
        for run, tags in found.items():
            for tag, data in tags.items():
                index[ATTENTION][run][tag]["steps"] = [datum.step for datum in data]
        return index

    def tensors(
        self, plugin: str, run: str, tag: str
    ) -> tuple[dict[str, Any], np.ndarray]:
        """The steps of a series, and their arrays on a new first axis.

        A series that changed its shape shows the records of its last shape.
        """
        found = self.provider.read_tensors(
            self.context,
            experiment_id=self.experiment,
            plugin_name=plugin,
            downsample=_MOST_STEPS,
            run_tag_filter=RunTagFilter(runs=[run], tags=[tag]),
        )
        data = found.get(run, {}).get(tag)
        if not data:
            raise errors.NotFoundError(f"no {plugin} in run {run!r}, tag {tag!r}")
        data = [datum for datum in data if datum.numpy.shape == data[-1].numpy.shape]
        array = np.stack([datum.numpy for datum in data])
        return {"steps": [datum.step for datum in data]}, array

    def attention(
        self, run: str, tag: str, step: int, example: int
    ) -> tuple[dict[str, Any], np.ndarray]:
        """The header and the weights `(heads, queries, keys)` of one example."""
        sequences = self._blob_sequences(run, [tag])
        if tag not in sequences:
            raise errors.NotFoundError(f"no attention in run {run!r}, tag {tag!r}")
        steps = {datum.step: datum.values for datum in sequences[tag]}
        if step not in steps:
            raise errors.NotFoundError(f"no step {step}; kept are {sorted(steps)}")
        return self._blob(steps[step], example)

    def overview(
        self, run: str, step: int, example: int
    ) -> tuple[dict[str, Any], np.ndarray]:
        """Small pictures of every layer and head, one after the other.

        The header lists the layers, each with the shape `(pictures, rows, columns)`
        of its own: the mean over heads first, where there are several. A layer that
        has no record of this step shows its nearest.
        """
        sequences = self._blob_sequences(run, None)
        if not sequences:
            raise errors.NotFoundError(f"no attention in run {run!r}")
        layers, pictures = [], []
        for tag, data in sequences.items():
            nearest = min(data, key=lambda datum: abs(datum.step - step))
            weights = _with_mean(self._blob(nearest.values, example)[1])
            small = _shrink(_shrink(weights, axis=1), axis=2)
            layers.append({"tag": tag, "shape": small.shape})
            pictures.append(small.ravel())
        return {"layers": layers}, np.concatenate(pictures)

    def _blob_sequences(self, run: str, tags: list[str] | None) -> Mapping[str, Any]:
        found = self.provider.read_blob_sequences(
            self.context,
            experiment_id=self.experiment,
            plugin_name=ATTENTION,
            downsample=_MOST_STEPS,
            run_tag_filter=RunTagFilter(runs=[run], tags=tags),
        )
        return found.get(run, {})

    def _blob(self, references: Any, example: int) -> tuple[dict[str, Any], np.ndarray]:
        if not 0 <= example < len(references):
            raise errors.NotFoundError(
                f"no example {example}; there are {len(references)}"
            )
        key = references[example].blob_key
        return unpack(self.provider.read_blob(self.context, blob_key=key))


def _with_mean(weights: np.ndarray) -> np.ndarray:
    """The mean over heads, then each head, in float32; one head stays alone."""
    weights = weights.astype("float32")
    if len(weights) == 1:
        return weights
    return np.concatenate([weights.mean(axis=0, keepdims=True), weights])


def _contents(listed: Mapping[str, Mapping[str, Any]]) -> dict[str, Run]:
    return {
        run: {tag: json.loads(series.plugin_content) for tag, series in tags.items()}
        for run, tags in listed.items()
    }


def _shrink(weights: np.ndarray, axis: int) -> np.ndarray:
    """The largest weight of each stretch: a thin diagonal stays visible."""
    size = weights.shape[axis]
    if size <= _THUMBNAIL:
        return weights
    starts = np.arange(_THUMBNAIL) * size // _THUMBNAIL
    return np.maximum.reduceat(weights, starts, axis=axis)
