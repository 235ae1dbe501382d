"""What the server answers, through both loaders, from files of the real writer."""

import gzip
import json
import urllib.request

import numpy as np
import pytest
from dashboard.serving import ask, series, serve

from kseq.callbacks.event_writer import open_event_writer
from kseq_tensorboard.records import pack, unpack

HEADS, QUERIES, KEYS = 3, 5, 7
STEPS = range(10, 130)
LAYERS = ["embedding", "block/attention", "logits"]
LONG = 100
RUN = "first run/kseq"


def weights(step, example):
    """Different in every entry, and exact in half precision."""
    count = HEADS * QUERIES * KEYS
    array = (np.arange(count) + step + 500 * example) % 2048 / 2048
    return array.reshape(HEADS, QUERIES, KEYS).astype("float16")


def norms(step):
    return np.array([step, 0.0, np.nan if step == 11 else 1e-20], "float32")


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    logdir = tmp_path_factory.mktemp("logs")
    writer = open_event_writer(logdir / RUN)
    for step in STEPS:
        writer.blobs(
            "attention_weights/block/attention",
            [pack(weights(step, example), {"epoch": step // 10}) for example in (0, 1)],
            step,
            plugin="kseq_attention",
            content={"v": 1, "layer": "block/attention"},
        )
        content = {"v": 1, "layers": LAYERS}
        writer.tensor(
            "gradient_norm", norms(step), step, plugin="kseq_gradients", content=content
        )
    long = np.eye(LONG, dtype="float16")[None]
    long_content = {"v": 1, "layer": "long"}
    writer.blobs(
        "long", [long_blob(long)] * 2, 40, plugin="kseq_attention", content=long_content
    )
    for step in (5, 6):
        writer.tensor(
            "rnn",
            np.full((2, 4), step),
            step,
            plugin="kseq_through_time",
            content={"v": 1, "kind": "time", "label": "rnn"},
        )
    writer.close()
    return logdir


def long_blob(array):
    return pack(array, {"epoch": 1})


@pytest.fixture(scope="module", params=["true", "false"], ids=["fast", "python"])
def url(request, logdir):
    if request.param == "true":
        pytest.importorskip("tensorboard_data_server")
    url = serve(logdir, load_fast=request.param)
    series(url, wanted=4)
    return url


def test_series_are_listed_with_what_describes_them(url):
    found = series(url, wanted=4)
    assert found["kseq_gradients"] == {
        RUN: {"gradient_norm": {"v": 1, "layers": LAYERS}}
    }
    assert found["kseq_through_time"] == {
        RUN: {"rnn": {"v": 1, "kind": "time", "label": "rnn"}}
    }
    layers = found["kseq_attention"][RUN]
    assert layers["long"] == {"v": 1, "layer": "long", "steps": [40]}
    attention = layers["attention_weights/block/attention"]
    assert attention["layer"] == "block/attention"


def test_more_steps_are_kept_than_by_default_and_the_last(url):
    [layers] = series(url, wanted=4)["kseq_attention"].values()
    steps = layers["attention_weights/block/attention"]["steps"]
    # of 120; by default it would be 10
    assert len(steps) == 50
    assert steps == sorted(steps)
    assert steps[-1] == STEPS[-1]


@pytest.mark.parametrize("example", [0, 1])
def test_weights_are_those_that_were_written(url, example):
    where = {
        "run": RUN,
        "tag": "attention_weights/block/attention",
        "step": STEPS[-1],
        "example": example,
    }
    want = weights(STEPS[-1], example).astype("float32")
    for head in range(HEADS):
        status, body = ask(url, "attention", **where, head=head)
        assert status == 200
        header, got = unpack(body)
        np.testing.assert_array_equal(got, want[head])
        assert header["heads"] == HEADS
        assert header["epoch"] == STEPS[-1] // 10
        assert header["dtype"] == "float32"
    _, got = unpack(ask(url, "attention", **where, head="mean")[1])
    np.testing.assert_allclose(got, want.mean(axis=0), rtol=1e-6)


def test_norms_are_those_that_were_written(url):
    where = {"plugin": "kseq_gradients", "run": RUN, "tag": "gradient_norm"}
    status, body = ask(url, "tensors", **where)
    assert status == 200
    header, got = unpack(body)
    assert header["steps"] == list(STEPS)
    np.testing.assert_array_equal(got, np.stack([norms(step) for step in STEPS]))


def test_a_bound_comes_beside_its_curve(url):
    where = {"plugin": "kseq_through_time", "run": RUN, "tag": "rnn"}
    header, got = unpack(ask(url, "tensors", **where)[1])
    assert header["steps"] == [5, 6]
    assert got.shape == (2, 2, 4)
    np.testing.assert_array_equal(got[1], 6)


def test_the_overview_shows_every_layer_and_head(url):
    status, body = ask(url, "overview", run=RUN, step=STEPS[-1], example=1)
    assert status == 200
    header, got = unpack(body)
    shapes = {layer["tag"]: layer["shape"] for layer in header["layers"]}
    assert shapes == {
        "attention_weights/block/attention": [1 + HEADS, QUERIES, KEYS],
        "long": [1, 32, 32],
    }
    parts = {}
    for tag, shape in shapes.items():
        size = int(np.prod(shape))
        parts[tag], got = got[:size].reshape(shape), got[size:]
    want = weights(STEPS[-1], 1).astype("float32")
    small = parts["attention_weights/block/attention"]
    np.testing.assert_allclose(small[0], want.mean(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(small[1:], want)
    # a thin diagonal is not lost when the picture shrinks
    np.testing.assert_array_equal(np.diagonal(parts["long"][0]), 1)
    assert parts["long"][0].sum() < 3 * 32


ATTENTION = {"run": RUN, "tag": "long", "step": 40, "example": 0, "head": "mean"}
TENSORS = {"plugin": "kseq_gradients", "run": RUN, "tag": "gradient_norm"}
OVERVIEW = {"run": RUN, "step": 40, "example": 0}


@pytest.mark.parametrize(
    ("route", "parameters", "status", "words"),
    [
        ("attention", {**ATTENTION, "run": "x"}, 404, "no attention in run 'x'"),
        ("attention", {**ATTENTION, "tag": "x"}, 404, "no attention"),
        ("attention", {**ATTENTION, "tag": "gradient_norm"}, 404, "no attention"),
        ("attention", {**ATTENTION, "step": 41}, 404, "no step 41"),
        ("attention", {**ATTENTION, "example": 2}, 404, "there are 2"),
        ("attention", {**ATTENTION, "step": "x"}, 400, "`step` must be a number"),
        ("attention", {**ATTENTION, "step": -1}, 400, "`step` must be a number"),
        ("attention", {"run": RUN}, 400, "`tag` is missing"),
        ("tensors", {**TENSORS, "plugin": "scalars"}, 400, "`plugin` must be"),
        ("tensors", {**TENSORS, "tag": "x"}, 404, "no kseq_gradients"),
        ("tensors", {"plugin": "kseq_gradients"}, 400, "`run` is missing"),
        ("overview", {**OVERVIEW, "run": "x"}, 404, "no attention in run 'x'"),
        ("overview", {**OVERVIEW, "example": 9}, 404, "no example 9"),
        ("overview", {"run": RUN}, 400, "`step` is missing"),
        ("../../etc/passwd", {}, 404, ""),
        ("plugin.py", {}, 404, ""),
    ],
    ids=lambda value: "" if isinstance(value, dict | str) and len(value) > 30 else None,
)
def test_bad_requests_are_told_what_is_wrong(url, route, parameters, status, words):
    got, body = ask(url, route, **parameters)
    assert got == status
    assert words in body.decode()


def test_a_head_that_is_not_there(url):
    where = {**ATTENTION, "tag": "attention_weights/block/attention"}
    where["step"] = STEPS[-1]
    assert ask(url, "attention", **{**where, "head": HEADS})[0] == 404
    assert ask(url, "attention", **{**where, "head": "first"})[0] == 400


def test_text_travels_compressed(url):
    request = urllib.request.Request(
        f"{url}data/plugin/kseq_sequences/index.js", headers={"Accept-Encoding": "gzip"}
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.headers["Content-Type"].startswith("text/javascript")
        assert answer.headers["Content-Encoding"] == "gzip"
        assert b"export async function render" in gzip.decompress(answer.read())


def test_tensorboard_shows_the_tab(url):
    with urllib.request.urlopen(f"{url}data/plugins_listing") as answer:
        listed = json.load(answer)["kseq_sequences"]
    assert listed["enabled"]
    assert listed["tab_name"] == "Sequences"
    assert listed["loading_mechanism"]["module_path"].endswith("/index.js")
