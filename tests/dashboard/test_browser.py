"""The dashboard in a browser, over the logs of a model of plain Keras layers."""

import re
import shutil

import keras
import numpy as np
import pytest
from callbacks.events import read_events
from dashboard.serving import series, serve

import kseq
from kseq.callbacks.event_writer import open_event_writer
from kseq_tensorboard.records import unpack

pytestmark = pytest.mark.slow
playwright = pytest.importorskip("playwright.sync_api")
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
if CHROMIUM is None:
    pytest.skip("needs Chromium", allow_module_level=True)

HEADS = 3
TOKENS = "the quick brown fox jumps over lazy dogs".split()
TIME = len(TOKENS)
EPOCHS = 3
BLOBS = "attention_weights/self_attention"


def train(logdir):
    keras.utils.set_random_seed(0)
    ids = keras.Input((TIME,), dtype="int32")
    x = keras.layers.Embedding(50, 12, name="embedding")(ids)
    attention = keras.layers.MultiHeadAttention(HEADS, 4, name="self_attention")
    x = attention(x, x)
    model = keras.Model(ids, keras.layers.Dense(50, name="logits")(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.05), loss)
    words = np.random.default_rng(0).integers(1, 50, (16, TIME))
    callbacks = [
        kseq.callbacks.GradientNorms(logdir),
        kseq.callbacks.AttentionMaps(
            logdir, words[:2], query_tokens=[TOKENS] * 2, key_tokens=[TOKENS] * 2
        ),
    ]
    model.fit(words, words, batch_size=4, epochs=EPOCHS, verbose=0, callbacks=callbacks)


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    logdir = tmp_path_factory.mktemp("logs")
    train(logdir / "first")
    train(logdir / "second")
    writer = open_event_writer(logdir / "first" / "kseq")
    for step in (1, 2):
        writer.tensor(
            "through_time/rnn",
            [[0.1, 0.2 * step, 0.4], [0.3, 0.5, 1.0]],
            step,
            plugin="kseq_through_time",
            content={"v": 1, "kind": "time", "label": "rnn"},
        )
    writer.close()
    return logdir


@pytest.fixture(scope="module")
def url(logdir):
    url = serve(logdir)
    series(url, wanted=5)
    return url


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        options = {"executable_path": CHROMIUM, "args": ["--no-sandbox"]}
        browser = driver.chromium.launch(**options)
        yield browser
        browser.close()


class Dashboard:
    """The page "Sequences" in TensorBoard, and what went wrong in it."""

    def __init__(self, browser, url, link=""):
        self.page = browser.new_page(viewport={"width": 1400, "height": 900})
        self.faults, self.requests = [], []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", self.hear)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(f"{url}#kseq_sequences{link}")
        self.frame = self.page.wait_for_selector("iframe").content_frame()
        self.frame.wait_for_selector("main > section")
        self.settle()

    def hear(self, message):
        if message.type == "error":
            self.faults.append(message.text)

    def settle(self):
        self.page.wait_for_timeout(50)
        self.frame.wait_for_selector("main[aria-busy=false]")

    def choose(self, menu, value):
        self.frame.select_option(f"select[name={menu}]", value)
        self.settle()

    def click(self, text):
        self.frame.click(f"button:text-is('{text}')")
        self.settle()

    def step(self):
        words = self.frame.inner_text("output")
        return int(re.search(r"step (\d+)", words)[1])

    def picture(self):
        """The first picture that is to be seen."""
        visible = "[...document.querySelectorAll('canvas')].find(c => c.offsetParent)"
        return self.frame.evaluate(f"{visible}.toDataURL()")

    def hover(self, across, down):
        """What the tooltip says with the pointer at this part of the picture."""
        box = self.frame.query_selector(".picture canvas").bounding_box()
        self.page.mouse.move(
            box["x"] + across * box["width"], box["y"] + down * box["height"]
        )
        self.page.wait_for_timeout(50)
        [words] = [
            tooltip.inner_text()
            for tooltip in self.frame.query_selector_all(".tooltip")
            if tooltip.is_visible()
        ]
        return words


@pytest.fixture
def open_dashboard(browser, url):
    """Opens pages, and looks for errors and other hosts when the test is over."""
    opened = []

    def open_page(link="", at=url):
        opened.append(Dashboard(browser, at, link))
        return opened[-1]

    yield open_page
    for dashboard in opened:
        dashboard.page.close()
        assert dashboard.faults == []
        local = re.compile(r"http://localhost:\d+/|data:|blob:")
        assert all(local.match(request) for request in dashboard.requests)


def test_the_runs_are_listed_and_each_control_changes_the_picture(open_dashboard):
    dashboard = open_dashboard()
    runs = dashboard.frame.query_selector("select[name=run]").inner_text()
    assert runs.split() == ["first/kseq", "second/kseq"]
    seen = [dashboard.picture()]
    dashboard.choose("example", "1")
    seen.append(dashboard.picture())
    dashboard.choose("head", "1")
    seen.append(dashboard.picture())
    assert dashboard.step() == 4 * EPOCHS
    # the keys reach the step from anywhere but a menu
    dashboard.frame.evaluate("document.activeElement.blur()")
    dashboard.page.keyboard.press("ArrowLeft")
    dashboard.settle()
    assert dashboard.step() == 4 * EPOCHS - 4
    seen.append(dashboard.picture())
    dashboard.frame.fill("input[type=range]", "0")
    dashboard.settle()
    assert dashboard.step() == 4
    seen.append(dashboard.picture())
    dashboard.click("Stretch")
    seen.append(dashboard.picture())
    dashboard.click("Lines")
    seen.append(dashboard.picture())
    assert len(set(seen)) == len(seen)


def test_hovering_shows_the_weight_of_the_event_file(open_dashboard, logdir):
    step, blobs = read_events(logdir / "first" / "kseq")[BLOBS][-1]
    _, weights = unpack(blobs[1])
    dashboard = open_dashboard()
    assert dashboard.step() == step
    dashboard.choose("example", "1")
    for head in range(HEADS):
        dashboard.choose("head", str(head))
        for across, down in [(0.3, 0.9), (0.5, 0.6), (0.8, 0.95)]:
            tokens, value = dashboard.hover(across, down).split("\n")
            query, key = map(TOKENS.index, tokens.split(" → "))
            want = float(weights[head, query, key])
            assert want > 0
            assert float(value) == pytest.approx(want, rel=1e-4)


def test_lines_list_the_strongest_keys(open_dashboard, logdir):
    _, blobs = read_events(logdir / "first" / "kseq")[BLOBS][-1]
    _, weights = unpack(blobs[0])
    dashboard = open_dashboard("&p.kseq_sequences.mode=lines&p.kseq_sequences.head=0")
    query, *entries = dashboard.hover(0.1, 0.95).split("\n")
    row = weights[0, TOKENS.index(query)].astype("float64")
    values = [float(value) for value in entries[1::2]]
    assert values == pytest.approx(np.sort(row)[:-6:-1], rel=1e-4)
    keys = [TOKENS.index(token) for token in entries[::2]]
    assert values == pytest.approx(row[keys], rel=1e-4)


def test_the_grid_shows_all_heads_and_a_click_opens_one(open_dashboard):
    dashboard = open_dashboard()
    dashboard.click("All heads")
    assert len(dashboard.frame.query_selector_all(".thumbnail")) == 1 + HEADS
    dashboard.frame.click(".thumbnail[title='head 2']")
    dashboard.settle()
    assert dashboard.frame.input_value("select[name=head]") == "2"
    assert dashboard.frame.query_selector(".heat-map").is_visible()


def test_two_steps_side_by_side(open_dashboard):
    dashboard = open_dashboard()
    dashboard.click("Compare")
    steps = [
        output.inner_text() for output in dashboard.frame.query_selector_all("output")
    ]
    assert ["step 12 · epoch 3", "step 4 · epoch 1"] == steps[:2]
    panes = dashboard.frame.query_selector_all(".heat-map")
    assert len(panes) == 2
    assert panes[0].evaluate("c => c.toDataURL()") != panes[1].evaluate(
        "c => c.toDataURL()"
    )


def test_a_drag_enlarges_a_part(open_dashboard):
    dashboard = open_dashboard()
    whole = dashboard.picture()
    dashboard.hover(0.4, 0.4)
    dashboard.page.mouse.down()
    dashboard.hover(0.7, 0.6)
    dashboard.page.mouse.up()
    dashboard.settle()
    label = dashboard.frame.get_attribute(".heat-map", "aria-label")
    queries, keys = map(int, re.findall(r"\d+", label))
    assert 1 < queries < TIME
    assert 1 < keys < TIME
    first, _ = dashboard.hover(0.9, 0.9).split("\n")
    assert first != f"{TOKENS[-1]} → {TOKENS[-1]}"
    dashboard.click("Show all tokens")
    dashboard.page.mouse.move(0, 0)
    assert dashboard.picture() == whole


def test_the_arrow_keys_walk_through_the_cells(open_dashboard):
    dashboard = open_dashboard()
    dashboard.frame.focus(".heat-map")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        dashboard.page.keyboard.press(key)
    words = dashboard.frame.inner_text(".tooltip:visible").split("\n")[0]
    assert words == f"{TOKENS[1]} → {TOKENS[1]}"
    assert dashboard.step() == 4 * EPOCHS


def test_play_runs_through_the_steps(open_dashboard):
    dashboard = open_dashboard()
    before = dashboard.step()
    dashboard.frame.click(".play")
    output = "document.querySelector('output').textContent"
    dashboard.frame.wait_for_function(f"!{output}.includes('step {before} ')")
    dashboard.click("Gradients")
    # another view is not played
    last = dashboard.step()
    dashboard.page.wait_for_timeout(1500)
    assert dashboard.step() == last


@pytest.mark.parametrize(
    "clicks",
    [["Lines"], ["All heads"], ["Compare", "Stretch"], ["Gradients"], ["Through time"]],
    ids="-".join,
)
def test_the_address_brings_a_view_back(open_dashboard, clicks):
    dashboard = open_dashboard()
    for text in clicks:
        dashboard.click(text)
    dashboard.page.keyboard.press("ArrowLeft")
    dashboard.settle()
    _, link = dashboard.page.url.split("#kseq_sequences")
    assert link
    again = open_dashboard(link)
    assert again.step() == dashboard.step()
    assert again.picture() == dashboard.picture()


def test_hovering_shows_the_norm_of_the_event_file(open_dashboard, logdir):
    norms = read_events(logdir / "first" / "kseq")["gradient_norm"]
    dashboard = open_dashboard("&p.kseq_sequences.view=gradients")
    text = dashboard.hover(0.6, 0.9)
    layer, step, value = re.match(r"(\S+) at step (\d+)\n(.*)", text).groups()
    assert layer == "logits"
    assert float(value) == pytest.approx(dict(norms)[int(step)][-1], rel=1e-4)


def test_curves_through_time_and_their_bound(open_dashboard):
    dashboard = open_dashboard("&p.kseq_sequences.view=time")
    assert dashboard.step() == 2
    words = dashboard.hover(0.53, 0.5).split("\n")
    assert words == ["time step 1", "rnn", "0.4000", "rnn, bound", "0.5000"]
    before = dashboard.picture()
    dashboard.click("rnn")
    assert dashboard.picture() != before


def test_the_page_is_dark_when_tensorboard_is(open_dashboard):
    dashboard = open_dashboard()
    theme = "document.documentElement.dataset.theme"
    seen = [dashboard.picture()]
    assert dashboard.frame.evaluate(theme) == "light"
    dashboard.page.evaluate("document.body.classList.add('dark-mode')")
    dashboard.settle()
    assert dashboard.frame.evaluate(theme) == "dark"
    seen.append(dashboard.picture())
    assert seen[0] != seen[1]
    dashboard.page.evaluate("document.body.classList.remove('dark-mode')")
    dashboard.settle()
    assert dashboard.picture() == seen[0]


def test_without_data_three_lines_say_how_to_get_some(open_dashboard, tmp_path):
    dashboard = open_dashboard(at=serve(tmp_path))
    lines = dashboard.frame.inner_text("pre").splitlines()
    assert len(lines) == 3
    assert "kseq.callbacks.AttentionMaps" in lines[1]


def test_new_records_appear_when_tensorboard_reloads(open_dashboard, tmp_path):
    def write(step):
        content = {"v": 1, "layers": ["dense"]}
        writer.tensor(
            "gradient_norm", [1.0], step, plugin="kseq_gradients", content=content
        )
        writer.flush()

    writer = open_event_writer(tmp_path)
    write(1)
    url = serve(tmp_path, reload_interval=1)
    series(url, wanted=1)
    dashboard = open_dashboard(at=url)
    assert dashboard.step() == 1
    write(2)
    for _ in range(100):
        dashboard.page.click(".reload-button")
        dashboard.settle()
        if dashboard.step() == 2:
            break
    assert dashboard.step() == 2
    writer.close()
