"""The plugin that TensorBoard loads: its tab, its files and what it serves."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard import errors, plugin_util
from tensorboard.backend import http_util
from tensorboard.plugins.base_plugin import (
    FrontendMetadata,
    TBContext,
    TBLoader,
    TBPlugin,
)
from werkzeug import Request, Response

from kseq_tensorboard.records import pack
from kseq_tensorboard.series import (
    GRADIENTS,
    KEPT_STEPS,
    THROUGH_TIME,
    Reader,
)

_STATIC = Path(__file__).parent / "static"
_CONTENT_TYPES = {".js": "text/javascript", ".css": "text/css"}
Handler = Callable[[Request], Response]


class SequencesLoader(TBLoader):
    """Makes the plugin, and asks TensorBoard to keep more steps than its default."""

    def fix_flags(self, flags: argparse.Namespace) -> None:
        for name, steps in KEPT_STEPS.items():
            flags.samples_per_plugin.setdefault(name, steps)

    def load(self, context: TBContext) -> TBPlugin:
        return SequencesPlugin(context)


class SequencesPlugin(TBPlugin):
    """Serves the page and its data, under `data/plugin/kseq_sequences`.

    Routes, each with a query string:

        /series                                  which series there are, JSON
        /attention ?run&tag&step&example&head    weights (queries, keys); head "mean"
        /overview  ?run&step&example             small pictures of all layers and heads
        /tensors   ?plugin&run&tag               every kept step of a series

    All but the first answer with a record (see `records`) of float32.
    """

    plugin_name = "kseq_sequences"

    def __init__(self, context: TBContext) -> None:
        super().__init__(context)
        self._provider = context.data_provider

    def frontend_metadata(self) -> FrontendMetadata:
        return FrontendMetadata(es_module_path="/index.js", tab_name="Sequences")

    def is_active(self) -> bool:
        # TensorBoard itself looks for the data of `data_plugin_names`
        return False

    def data_plugin_names(self) -> tuple[str, ...]:
        return tuple(KEPT_STEPS)

    def get_plugin_apps(self) -> dict[str, Any]:
        apps: dict[str, Handler] = {
            "/series": self._series,
            "/attention": self._attention,
            "/overview": self._overview,
            "/tensors": self._tensors,
        }
        for path in _STATIC.iterdir():
            apps[f"/{path.name}"] = _static(path)
        return {route: Request.application(app) for route, app in apps.items()}

    def _series(self, request: Request) -> Response:
        index = self._reader(request).index()
        return http_util.Respond(request, index, "application/json")

    def _attention(self, request: Request) -> Response:
        header, weights = self._reader(request).attention(
            _text(request, "run"),
            _text(request, "tag"),
            _number(request, "step"),
            _number(request, "example"),
        )
        header["heads"] = len(weights)
        if _text(request, "head") == "mean":
            return _record(request, header, weights.mean(axis=0, dtype="float32"))
        head = _number(request, "head")
        if head >= len(weights):
            raise errors.NotFoundError(f"no head {head}; there are {len(weights)}")
        return _record(request, header, weights[head])

    def _overview(self, request: Request) -> Response:
        found = self._reader(request).overview(
            _text(request, "run"), _number(request, "step"), _number(request, "example")
        )
        return _record(request, *found)

    def _tensors(self, request: Request) -> Response:
        plugin = _text(request, "plugin")
        if plugin not in (GRADIENTS, THROUGH_TIME):
            raise errors.InvalidArgumentError(
                f"`plugin` must be {GRADIENTS} or {THROUGH_TIME}, not {plugin!r}"
            )
        found = self._reader(request).tensors(
            plugin, _text(request, "run"), _text(request, "tag")
        )
        return _record(request, *found)

    def _reader(self, request: Request) -> Reader:
        return Reader(
            self._provider,
            plugin_util.context(request.environ),
            plugin_util.experiment_id(request.environ),
        )


def _static(path: Path) -> Handler:
    def serve(request: Request) -> Response:
        return http_util.Respond(
            request, path.read_bytes(), _CONTENT_TYPES[path.suffix]
        )

    return serve


def _record(request: Request, header: dict[str, Any], array: np.ndarray) -> Response:
    header = {key: header[key] for key in header if key not in ("dtype", "shape")}
    data = pack(array.astype("float32"), header)
    return http_util.Respond(request, data, "application/octet-stream")


def _text(request: Request, name: str) -> str:
    value = request.args.get(name)
    if value is None:
        raise errors.InvalidArgumentError(f"`{name}` is missing")
    return value


def _number(request: Request, name: str) -> int:
    text = _text(request, name)
    if not text.isdecimal():
        raise errors.InvalidArgumentError(f"`{name}` must be a number, not {text!r}")
    return int(text)
