"""TensorBoard event files, one per directory, without TensorFlow."""

import itertools
import json
import os
import socket
import struct
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

try:
    from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter
except ImportError as error:
    raise ImportError(
        "Writing for TensorBoard needs the package `tensorboard`. "
        "Try `pip install kseq[tensorboard]`."
    ) from error

_writers: dict[Path, "EventWriter"] = {}
_serial = itertools.count()


def open_event_writer(directory: str | os.PathLike) -> "EventWriter":
    """Returns the one writer of `directory`; each user closes it once.

    TensorBoard's Python loader shows only the newest file of a directory while
    several are growing, so everybody who writes there shares one.

    Args:
        directory: a local directory, made if it is missing.
    """
    path = Path(directory).resolve()
    writer = _writers.get(path)
    if writer is None:
        writer = _writers[path] = EventWriter(path)
    writer.users += 1
    return writer


class EventWriter:
    """Writes records that every TensorBoard loader shows.

    Each summary carries its plugin's name and its `data_class`: TensorBoard
    drops a series that lacks the latter without a word. Records reach the file
    at `flush()`, so a crash loses what came after the last one.

    A directory that cannot be written, or a disk that is full, does not stop the
    training: a warning says so once, and nothing more is written.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.users = 0
        self._described: set[str] = set()
        self._records: RecordWriter | None = None
        with self._giving_up_on_failure():
            directory.mkdir(parents=True, exist_ok=True)
            made_by = f"{socket.gethostname()}.{os.getpid()}.{next(_serial)}"
            name = f"events.out.tfevents.{int(time.time()):010d}.{made_by}"
            self._records = RecordWriter(open(directory / name, "wb"))
        self._write(event_pb2.Event(file_version="brain.Event:2"))
        self.flush()

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Adds one point to each of the curves `tag -> value`."""
        self._add(
            step,
            [
                _value(
                    tag,
                    "scalars",
                    summary_pb2.DATA_CLASS_SCALAR,
                    tensor_pb2.TensorProto(
                        dtype=types_pb2.DT_FLOAT,
                        tensor_content=np.float32(value).astype("<f4").tobytes(),
                    ),
                )
                for tag, value in values.items()
            ],
        )

    def image(self, tag: str, png: bytes, step: int) -> None:
        """Adds one picture, given as the bytes of a PNG file."""
        # a PNG file holds width and height at byte 16, big-endian
        width, height = struct.unpack(">II", png[16:24])
        strings = [str(width).encode(), str(height).encode(), png]
        data_class = summary_pb2.DATA_CLASS_BLOB_SEQUENCE
        self._add(step, [_value(tag, "images", data_class, _strings(strings))])

    def text(self, tag: str, markdown: str, step: int) -> None:
        """Adds one text; TensorBoard renders it as Markdown."""
        strings = [markdown.encode()]
        data_class = summary_pb2.DATA_CLASS_TENSOR
        self._add(step, [_value(tag, "text", data_class, _strings(strings))])

    def tensor(
        self,
        tag: str,
        array: Any,
        step: int,
        *,
        plugin: str,
        content: Mapping[str, Any],
    ) -> None:
        """Adds one float32 array to the series `tag` of the dashboard `plugin`.

        `content` describes the series, in what JSON can hold. TensorBoard keeps that
        of the first record, so only the first one of each file carries it.
        """
        array = np.asarray(array, "<f4")
        tensor = tensor_pb2.TensorProto(
            dtype=types_pb2.DT_FLOAT, tensor_content=array.tobytes()
        )
        for size in array.shape:
            tensor.tensor_shape.dim.add(size=size)
        data_class = summary_pb2.DATA_CLASS_TENSOR
        value = _value(tag, plugin, data_class, tensor)
        self._add(step, [self._describe(value, content)])

    def blobs(
        self,
        tag: str,
        blobs: Sequence[bytes],
        step: int,
        *,
        plugin: str,
        content: Mapping[str, Any],
    ) -> None:
        """Adds byte strings, which the dashboard `plugin` can read one by one.

        `content` describes the series, as in `tensor`.
        """
        data_class = summary_pb2.DATA_CLASS_BLOB_SEQUENCE
        value = _value(tag, plugin, data_class, _strings(blobs))
        self._add(step, [self._describe(value, content)])

    def flush(self) -> None:
        """Hands everything written so far to the operating system."""
        with self._giving_up_on_failure():
            if self._records is not None:
                self._records.flush()

    def close(self) -> None:
        """Gives up one use; the last one closes the file."""
        self.users -= 1
        self.flush()
        if self.users == 0:
            del _writers[self.directory]
            with self._giving_up_on_failure():
                if self._records is not None:
                    self._records.close()

    def _describe(
        self, value: summary_pb2.Summary.Value, content: Mapping[str, Any]
    ) -> summary_pb2.Summary.Value:
        if value.tag not in self._described:
            self._described.add(value.tag)
            value.metadata.plugin_data.content = json.dumps(content).encode()
        return value

    def _add(self, step: int, values: list[summary_pb2.Summary.Value]) -> None:
        summary = summary_pb2.Summary(value=values)
        self._write(event_pb2.Event(step=step, summary=summary))

    def _write(self, event: event_pb2.Event) -> None:
        event.wall_time = time.time()
        with self._giving_up_on_failure():
            if self._records is not None:
                self._records.write(event.SerializeToString())

    @contextmanager
    def _giving_up_on_failure(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._records = None
            warnings.warn(
                f"Nothing more is logged to {self.directory}: {error}. The training "
                "goes on.",
                stacklevel=4,
            )


def _value(
    tag: str, plugin: str, data_class: int, tensor: tensor_pb2.TensorProto
) -> summary_pb2.Summary.Value:
    metadata = summary_pb2.SummaryMetadata(data_class=data_class)
    metadata.plugin_data.plugin_name = plugin
    return summary_pb2.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)


def _strings(strings: Sequence[bytes]) -> tensor_pb2.TensorProto:
    tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=strings)
    tensor.tensor_shape.dim.add(size=len(strings))
    return tensor
