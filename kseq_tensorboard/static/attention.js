/** The view of attention: one head of one layer, at one step or at two. */

import { AttentionPane } from "./attention_pane.js";
import { rampGradient } from "./color.js";
import { fetchRecord } from "./data.js";
import { controlRow, element, makeButton, Menu, nearestStep, Switch, withoutSharedParts } from "./dom.js";
import { layerRows, splitOverview } from "./thumbnails.js";

// CSS pixels that the small pictures get beside the large one
const OVERVIEW = 420;

export class AttentionView {
  /** `update(changes)` changes the state of the page and shows it again. */
  constructor(update) {
    this.update = update;
    this.example = new Menu("Example", (example) => update({ example, zoom: undefined }));
    this.layer = new Menu("Layer", (layer) => update({ layer, head: "mean" }));
    this.head = new Menu("Head", (head) => update({ head }));
    this.mode = new Switch(
      "picture",
      [["map", "Heat map"], ["lines", "Lines"], ["all", "All heads"]],
      (mode) => update({ mode }),
    );
    this.compare = makeButton("toggle", "Compare");
    this.stretch = makeButton("toggle", "Stretch");
    this.stretch.title = "The darkest color for the largest weight of the picture, instead of for 1";
    this.bar = element("div", { className: "bar" });
    this.largest = element("span");
    this.overview = element("div", { className: "overview" });
    this.panes = ["", "2"].map(
      (suffix) =>
        new AttentionPane({
          onRun: (run) => update({ [`run${suffix}`]: run }),
          onStep: (step) => update({ [`step${suffix}`]: step }),
          onZoom: (zoom) => update({ zoom }),
          onHover: (...cell) => this.panes.forEach((pane) => pane.mark(...cell)),
        }),
    );
    this.stage = element("div", { className: "stage" }, ...this.panes.map(({ root }) => root), this.overview);
    const menus = [this.mode, this.example, this.layer, this.head].map(({ root }) => root);
    const scale = element("div", { className: "scale" }, this.stretch, "0", this.bar, this.largest);
    const controls = controlRow([...menus, this.compare], scale);
    this.root = element("section", { className: "view" }, controls, this.stage);
  }

  moveStep(by) {
    this.panes[0].slider.move(by);
  }

  /** Shows the part of `runs`, run -> layer -> description, that `state` names. */
  async show(runs, state) {
    const run = state.run in runs ? state.run : Object.keys(runs)[0];
    const layers = runs[run];
    const tag = state.layer in layers ? state.layer : Object.keys(layers)[0];
    const { steps, examples, heads } = layers[tag];
    const example = state.example in examples ? state.example : "0";
    const head = state.head < heads ? state.head : "mean";
    const mode = state.mode ?? "map";
    const names = Object.fromEntries(Object.entries(layers).map(([name, { layer }]) => [name, layer]));
    const step = nearestStep(steps, state.step);
    const comparing = state.run2 !== undefined && mode !== "all";

    this.mode.show(mode);
    this.example.show(examples.map((text, index) => [String(index), `${index + 1}: ${text}`]), example);
    this.layer.show(zip(Object.keys(layers), withoutSharedParts(Object.values(names))), tag);
    this.head.show(headOptions(heads), head);
    this.showScale(Boolean(state.stretch));
    this.stretch.hidden = mode === "all";
    this.compare.setAttribute("aria-pressed", comparing);
    this.compare.hidden = mode === "all";
    this.compare.onclick = () =>
      this.update(comparing ? { run2: undefined, step2: undefined } : { run2: run, step2: steps[0] });

    const second = state.run2 in runs ? state.run2 : run;
    const shared = { tag, head, example, mode, stretch: state.stretch, zoom: state.zoom };
    this.stage.className = `stage ${mode}`;
    this.layer.root.hidden ||= mode === "all";
    this.head.root.hidden ||= mode === "all";
    this.overview.hidden = comparing || (heads === 1 && Object.keys(layers).length === 1);
    const width = this.roomForPane(comparing);
    await Promise.all([
      this.showOverview({ run, step, example }, names, { tag, head }),
      this.panes[0].show(runs, { ...shared, run, step: state.step, width }),
      comparing && this.panes[1].show(runs, { ...shared, run: second, step: state.step2, width }),
    ]);
    this.panes[1].root.hidden = !comparing;
  }

  roomForPane(comparing) {
    const room = this.stage.clientWidth;
    if (getComputedStyle(this.stage).flexDirection === "column") return room;
    if (comparing) return room / 2 - 20;
    return this.overview.hidden ? room : room - OVERVIEW;
  }

  /** All layers and heads, beside the picture or in its place. */
  async showOverview(where, names, chosen) {
    if (this.overview.hidden) return;
    const latest = (this.request = fetchRecord("overview", where));
    const record = await latest;
    if (this.request !== latest) return;
    const layers = splitOverview(record).sort((a, b) => place(names, a) - place(names, b));
    const mode = this.mode.value === "all" ? "map" : this.mode.value;
    const pick = (layer, head) => this.update({ layer, head, mode });
    this.overview.replaceChildren(...layerRows(layers, names, chosen, pick));
  }

  showScale(stretched) {
    this.stretch.setAttribute("aria-pressed", stretched);
    this.stretch.onclick = () => this.update({ stretch: stretched ? undefined : "yes" });
    this.bar.style.background = rampGradient();
    this.largest.textContent = stretched ? "largest" : "1";
  }
}

/** The order of `names`, in which the model calls its layers. */
function place(names, { tag }) {
  return Object.keys(names).indexOf(tag);
}

function headOptions(heads) {
  const single = Array.from({ length: heads }, (_, head) => [String(head), `${head}`]);
  return heads === 1 ? [["mean", "the only one"]] : [["mean", `mean of ${heads}`], ...single];
}

function zip(left, right) {
  return left.map((value, index) => [value, right[index]]);
}
