"""One event file per directory, whole after a crash, readable by both loaders."""

import json
import subprocess
import sys

import numpy as np
import pytest
from callbacks.events import load, picture, read_events
from tensorboard.compat.proto import summary_pb2
from tensorboard.util import tensor_util

import kseq.callbacks.event_writer
from kseq.callbacks.attention_picture import AttentionPanel, attention_png
from kseq.callbacks.event_writer import open_event_writer


@pytest.fixture
def writer(tmp_path):
    writer = open_event_writer(tmp_path)
    yield writer
    if writer.users:
        writer.close()


def small_png():
    return attention_png(AttentionPanel("one", np.eye(2), ["a", "b"], ["c", "d"]))


def test_scalars_texts_and_images_come_back(writer, tmp_path):
    png = small_png()
    writer.scalars({"a": 0.5, "b/c": float("nan")}, step=3)
    writer.scalars({"a": 2.0}, step=2**40)
    writer.text("note", "| a |", step=4)
    writer.image("map", png, step=5)
    writer.flush()
    events = read_events(tmp_path)
    assert events["a"] == [(3, 0.5), (2**40, 2.0)]
    assert events["b/c"][0][1] != events["b/c"][0][1]
    assert events["note"] == [(4, [b"| a |"])]
    [(step, value)] = events["map"]
    assert step == 5
    assert value[2] == png
    picture(value)


def test_arrays_and_blobs_come_back_with_what_describes_them(writer, tmp_path):
    array = np.array([[1.5, np.inf, -2.0], [0.0, np.nan, 1e-30]])
    content = {"v": 1, "layers": ["a", "b"]}
    for step in (7, 8):
        writer.tensor("norms", array, step, plugin="one", content=content)
        writer.blobs("maps", [b"\x00a", b""], step, plugin="two", content={"v": 1})
    writer.flush()
    events = load(tmp_path)
    first, second = events.Tensors("norms")
    for event in (first, second):
        got = tensor_util.make_ndarray(event.tensor_proto)
        np.testing.assert_array_equal(got, array.astype("float32"))
    assert [event.step for event in events.Tensors("maps")] == [7, 8]
    blobs = events.Tensors("maps")[1].tensor_proto
    assert list(blobs.string_val) == [b"\x00a", b""]
    assert [size.size for size in blobs.tensor_shape.dim] == [2]
    assert json.loads(events.PluginTagToContent("one")["norms"]) == content
    assert json.loads(events.PluginTagToContent("two")["maps"]) == {"v": 1}
    assert events.SummaryMetadata("norms").data_class == summary_pb2.DATA_CLASS_TENSOR
    blob_sequence = summary_pb2.DATA_CLASS_BLOB_SEQUENCE
    assert events.SummaryMetadata("maps").data_class == blob_sequence


def test_every_series_names_its_plugin_and_data_class(writer, tmp_path):
    writer.scalars({"a": 0.5}, step=1)
    writer.text("note", "text", step=1)
    writer.image("map", small_png(), step=1)
    writer.flush()
    events = load(tmp_path)
    want = {
        "a": ("scalars", summary_pb2.DATA_CLASS_SCALAR),
        "note": ("text", summary_pb2.DATA_CLASS_TENSOR),
        "map": ("images", summary_pb2.DATA_CLASS_BLOB_SEQUENCE),
    }
    for tag, (plugin, data_class) in want.items():
        metadata = events.SummaryMetadata(tag)
        assert metadata.plugin_data.plugin_name == plugin
        assert metadata.data_class == data_class


def test_users_of_a_directory_share_its_file(tmp_path):
    first, second = open_event_writer(tmp_path), open_event_writer(str(tmp_path))
    assert first is second
    first.close()
    second.scalars({"a": 1.0}, step=1)
    second.close()
    assert len(list(tmp_path.iterdir())) == 1
    assert read_events(tmp_path)["a"] == [(1, 1.0)]


def test_a_file_closed_and_one_opened_later_are_both_read(tmp_path):
    for step in (1, 2):
        writer = open_event_writer(tmp_path)
        writer.scalars({"a": 1.0}, step=step)
        writer.close()
    assert len(list(tmp_path.iterdir())) == 2
    assert read_events(tmp_path)["a"] == [(1, 1.0), (2, 1.0)]


def test_what_was_flushed_survives_a_crash(writer, tmp_path):
    writer.scalars({"a": 1.0}, step=1)
    writer.flush()
    [path] = tmp_path.iterdir()
    # a half-written record after it
    path.write_bytes(path.read_bytes() + b"\x40\x00\x00")
    assert read_events(tmp_path)["a"] == [(1, 1.0)]


def run(program, blocked):
    """Runs `program` in a Python that does not find the modules `blocked`."""
    block = f"import sys; sys.modules.update(dict.fromkeys({blocked!r}))\n"
    return subprocess.run(
        [sys.executable, "-c", block + program],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_directory_that_cannot_be_made_is_a_warning(tmp_path):
    (tmp_path / "file").touch()
    with pytest.warns(UserWarning, match=r"Nothing more is logged to .*file/logs"):
        writer = open_event_writer(tmp_path / "file" / "logs")
    # and no second one
    writer.scalars({"a": 1.0}, step=1)
    writer.flush()
    writer.close()


def test_a_full_disk_is_one_warning_and_keeps_what_fitted(tmp_path):
    program = f"""
import resource, runpy, warnings
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
module = runpy.run_path({kseq.callbacks.event_writer.__file__!r})
writer = module["open_event_writer"]({str(tmp_path)!r})
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for step in range(10):
        writer.text("a", 5000 * "x", step)
        writer.flush()
    writer.close()
print(*(warning.message for warning in caught), sep="\\n")
"""
    result = run(program, blocked=[])
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert result.stdout.count("Nothing more is logged") == 1
    assert "File too large" in result.stdout
    assert [step for step, _ in read_events(tmp_path)["a"]] == [0, 1, 2]


def test_the_writer_needs_neither_keras_nor_a_backend(tmp_path):
    program = f"""
import runpy
module = runpy.run_path({kseq.callbacks.event_writer.__file__!r})
writer = module["open_event_writer"]({str(tmp_path)!r})
writer.scalars({{"a": 1.0}}, 1)
writer.close()
"""
    result = run(program, blocked=["tensorflow", "jax", "keras"])
    assert result.returncode == 0, result.stderr
    assert read_events(tmp_path)["a"] == [(1, 1.0)]


def test_missing_tensorboard_is_named_when_a_callback_is_made():
    program = "import kseq.callbacks; kseq.callbacks.GradientNorms('logs')"
    result = run(program, blocked=["tensorboard"])
    assert "pip install kseq[tensorboard]" in result.stderr
