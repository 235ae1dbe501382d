/** The page "Sequences": three views, one shown at a time, in the state of the link. */

import { AttentionView } from "./attention.js";
import { fetchSeries, forgetRecords } from "./data.js";
import { element, sortedByName, Switch } from "./dom.js";
import { emptyView } from "./empty.js";
import { GradientView } from "./gradients.js";
import { followReloads, followTheme, readLink, writeLink } from "./host.js";
import { ThroughTimeView } from "./through_time.js";

const VIEWS = {
  attention: ["Attention", "kseq_attention", AttentionView],
  gradients: ["Gradients", "kseq_gradients", GradientView],
  time: ["Through time", "kseq_through_time", ThroughTimeView],
};
// controls in which the arrow keys have a meaning of their own
const OWN_ARROWS = "select, input, .heat-map";

class Page {
  constructor() {
    this.state = readLink();
    this.attempts = 0;
    this.update = (changes) => {
      Object.assign(this.state, changes);
      writeLink(this.state);
      return this.show();
    };
    const titles = Object.entries(VIEWS).map(([view, [title]]) => [view, title]);
    // each view counts its own steps
    this.tabs = new Switch("view", titles, (view) => this.update({ view, step: undefined }));
    this.tabs.root.classList.add("tabs");
    const views = Object.entries(VIEWS).map(([view, [, , View]]) => [view, new View(this.update)]);
    this.views = Object.fromEntries(views);
    this.main = element("main");
    this.error = element("p", { className: "error", hidden: true });
    this.error.setAttribute("role", "alert");
    document.body.prepend(this.tabs.root, this.error, this.main);
  }

  async load() {
    await this.attempt(async () => {
      this.series = inOrder(await fetchSeries());
      await this.show();
    });
  }

  async show() {
    if (!this.series) return;
    const available = Object.keys(VIEWS).filter((view) => this.hasData(view));
    const view = this.state.view in VIEWS ? this.state.view : available[0] ?? "attention";
    this.tabs.show(view);
    this.shown = this.hasData(view) ? this.views[view] : undefined;
    const root = this.shown?.root ?? emptyView(view);
    if (this.main.firstChild !== root) this.main.replaceChildren(root);
    await this.attempt(() => this.shown?.show(this.series[VIEWS[view][1]], this.state));
  }

  hasData(view) {
    return Object.keys(this.series[VIEWS[view][1]]).length > 0;
  }

  /** Says that the page is busy, and what went wrong, if it does, where the user looks. */
  async attempt(action) {
    this.attempts += 1;
    this.main.ariaBusy = true;
    try {
      await action();
      this.error.hidden = true;
    } catch (error) {
      this.error.textContent = error.message;
      this.error.hidden = false;
      throw error;
    } finally {
      this.attempts -= 1;
      this.main.ariaBusy = this.attempts > 0;
    }
  }

  onKey(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by === undefined || event.target.closest(OWN_ARROWS)) return;
    event.preventDefault();
    this.shown?.moveStep(by);
  }
}

/** Runs by name, layers in the order in which the model calls them, else by name. */
function inOrder(series) {
  for (const [plugin, runs] of Object.entries(series)) {
    series[plugin] = sortedByName(runs);
    for (const [run, tags] of Object.entries(runs)) {
      const byCall = ([, a], [, b]) => (a.order ?? 0) - (b.order ?? 0);
      series[plugin][run] = Object.fromEntries(Object.entries(sortedByName(tags)).sort(byCall));
    }
  }
  return series;
}

async function loadStyle() {
  const link = element("link", { rel: "stylesheet", href: "./style.css" });
  const loaded = new Promise((resolve) => (link.onload = link.onerror = resolve));
  document.head.append(link);
  await loaded;
}

/** Called once by TensorBoard. */
export async function render() {
  await loadStyle();
  document.documentElement.lang = "en";
  const page = new Page();
  followTheme(() => page.show());
  followReloads(() => {
    forgetRecords();
    page.load();
  });
  addEventListener("resize", () => page.show());
  addEventListener("keydown", (event) => page.onKey(event));
  // the arrow keys work before the first click
  focus();
  await page.load();
}
