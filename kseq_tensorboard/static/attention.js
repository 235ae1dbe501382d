/** The view of attention: one head of one layer, at one step or at two. */

import { AttentionPane } from "./attention_pane.js";
import { rampGradient } from "./color.js";
import { fetchRecord } from "./data.js";
import { element, Menu, nearestStep, Switch, withoutCommonPrefix } from "./dom.js";
import { headButtons, layerRows, splitOverview } from "./thumbnails.js";

export class AttentionView {
  /** `update(changes)` changes the state of the page and shows it again. */
  constructor(update) {
    this.update = update;
    this.example = new Menu("Example", (example) => update({ example }));
    this.layer = new Menu("Layer", (layer) => update({ layer, head: "mean" }));
    this.head = new Menu("Head", (head) => update({ head }));
    this.mode = new Switch(
      "picture",
      [["map", "Heat map"], ["lines", "Lines"], ["all", "All heads"]],
      (mode) => update({ mode }),
    );
    this.contrast = new Switch(
      "colors",
      [["fixed", "0 – 1"], ["largest", "0 – largest"]],
      (contrast) => update({ contrast }),
    );
    this.compare = element("button", { type: "button", className: "toggle", textContent: "Compare" });
    this.scale = element("div", { className: "scale" });
    this.heads = element("div", { className: "heads strip" });
    this.grid = element("div", { className: "grid" });
    this.panes = ["", "2"].map(
      (suffix) =>
        new AttentionPane({
          onRun: (run) => update({ [`run${suffix}`]: run }),
          onStep: (step) => update({ [`step${suffix}`]: step }),
          onHover: (...cell) => this.panes.forEach((pane) => pane.mark(...cell)),
        }),
    );
    const stage = element("div", { className: "stage" }, ...this.panes.map(({ root }) => root));
    const controls = [this.mode.root, this.example.root, this.layer.root, this.head.root, this.compare];
    this.root = element(
      "section",
      { className: "view" },
      element("div", { className: "controls" }, ...controls, element("div", { className: "spring" }), this.contrast.root, this.scale),
      this.heads,
      stage,
      this.grid,
    );
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

    this.mode.show(mode);
    this.example.show(examples.map((text, index) => [String(index), `${index + 1}: ${text}`]), example);
    this.layer.show(zip(Object.keys(layers), withoutCommonPrefix(Object.values(names))), tag);
    this.head.show(headOptions(heads), head);
    this.contrast.show(state.contrast ?? "fixed");
    this.scale.style.setProperty("--ramp", rampGradient());
    const comparing = state.run2 !== undefined && mode !== "all";
    this.compare.setAttribute("aria-pressed", comparing);
    this.compare.onclick = () =>
      this.update(comparing ? { run2: undefined, step2: undefined } : { run2: run, step2: steps[0], mode: mode === "all" ? "map" : mode });
    this.compare.hidden = mode === "all";

    const shared = { tag, head, example, mode, contrast: state.contrast, comparing };
    const second = state.run2 in runs ? state.run2 : run;
    const overview = fetchRecord("overview", { run, step, example }).then(splitOverview);
    await Promise.all([
      this.panes[0].show(runs, { ...shared, run, step: state.step, hidden: mode === "all" && "picture" }),
      this.panes[1].show(runs, { ...shared, run: second, step: state.step2, hidden: !comparing && "all" }),
      overview.then((found) => {
        const own = found.find((layer) => layer.tag === tag);
        this.heads.hidden = mode === "all" || own.shape[0] === 1;
        this.heads.replaceChildren(...headButtons(own, head, (picked) => this.update({ head: picked })));
        this.grid.hidden = mode !== "all";
        if (mode !== "all") return;
        const pick = (layer, picked) => this.update({ layer, head: picked, mode: "map" });
        this.grid.replaceChildren(...layerRows(found, names, { tag, head }, pick));
      }),
    ]);
  }
}

function headOptions(heads) {
  const single = Array.from({ length: heads }, (_, head) => [String(head), `${head}`]);
  return heads === 1 ? [["mean", "the only one"]] : [["mean", `mean of ${heads}`], ...single];
}

function zip(left, right) {
  return left.map((value, index) => [value, right[index]]);
}
