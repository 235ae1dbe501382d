/** One picture of attention with the run and the step that it shows. */

import { fetchRecord } from "./data.js";
import { element, Menu, nearestStep, StepSlider, Tooltip } from "./dom.js";
import { HeatMap } from "./heat_map.js";
import { Lines } from "./lines.js";

export class AttentionPane {
  constructor({ onRun, onStep, onHover }) {
    this.run = new Menu("Run", onRun);
    this.slider = new StepSlider(onStep);
    const hover = (row, column, event) => {
      onHover(row, column);
      this.explain(row, column, event);
    };
    this.pictures = { map: new HeatMap({ onHover: hover }), lines: new Lines({ onHover: hover }) };
    this.note = element("p", { className: "faint note" });
    this.tooltip = new Tooltip();
    this.place = element("div", { className: "place" });
    this.root = element(
      "div",
      { className: "pane" },
      element("div", { className: "pane-head" }, this.run.root, this.slider.root),
      this.place,
      this.note,
    );
  }

  /** `wanted`: run, step, layer tag, head, example, mode, stretch, width in pixels. */
  async show(runs, wanted) {
    this.place.hidden = this.note.hidden = wanted.mode === "all";
    this.shown = undefined;
    this.run.show(Object.keys(runs).map((name) => [name, name]), wanted.run);
    const layer = runs[wanted.run][wanted.tag];
    if (!layer) {
      this.place.replaceChildren();
      this.note.textContent = `The run ${wanted.run} has no layer of this name.`;
      return;
    }
    const step = nearestStep(layer.steps, wanted.step);
    this.slider.show(layer.steps, step, `record ${layer.steps.indexOf(step) + 1} of ${layer.steps.length}`);
    if (wanted.mode === "all") return;
    const { run, tag, example, head } = wanted;
    const latest = (this.request = fetchRecord("attention", { run, tag, step, example, head }));
    const record = await latest;
    // a slider that moves on leaves slower answers behind
    if (this.request === latest) this.draw(record, wanted, step);
  }

  draw({ header, values }, { mode, stretch, width }, step) {
    const { queries, keys, epoch } = header;
    const largest = stretch ? Math.max(values.reduce((a, b) => Math.max(a, b), 0), 1e-9) : 1;
    this.shown = { queries, keys, values };
    this.picture = mode === "lines" ? this.pictures.lines : this.pictures.map;
    if (this.place.firstChild !== this.picture.root) this.place.replaceChildren(this.picture.root);
    this.slider.label.textContent = `step ${step.toLocaleString("en")} · epoch ${epoch}`;
    // the square root keeps attention visible that is spread over many keys
    const units = values.map((weight) => Math.sqrt(weight / largest));
    const top = this.place.getBoundingClientRect().top + scrollY;
    const height = Math.max(innerHeight - top - 64, 320);
    const drawn = this.picture.show({ rows: queries, columns: keys, units }, width, height);
    this.picture.canvas.setAttribute("aria-label", `attention of ${queries.length} queries to ${keys.length} keys`);
    this.note.textContent = [mode === "lines" ? "" : "queries down, keys across, color by the root of the weight", drawn, leftOut(header)].filter(Boolean).join(" · ");
  }

  mark(row, column) {
    if (this.shown) this.picture.mark(row, column);
  }

  explain(row, column, event) {
    if (row === undefined && column === undefined) return this.tooltip.hide();
    const { queries, keys, values } = this.shown;
    if (row !== undefined && column !== undefined) {
      const weight = values[row * keys.length + column];
      this.tooltip.show(event, ...pair(queries[row], keys[column], weight));
      return;
    }
    const weights =
      row !== undefined
        ? keys.map((key, index) => [key, values[row * keys.length + index]])
        : queries.map((query, index) => [query, values[index * keys.length + column]]);
    const strongest = weights.sort((a, b) => b[1] - a[1]).slice(0, 5);
    this.tooltip.show(
      event,
      element("strong", {}, row !== undefined ? queries[row] : keys[column]),
      ...strongest.map(([token, weight]) => element("div", { className: "entry" }, element("span", {}, token), format(weight))),
    );
  }
}

function pair(query, key, weight) {
  return [
    element("div", {}, element("strong", {}, query), " → ", element("strong", {}, key)),
    element("div", { className: "value" }, format(weight)),
  ];
}

/** All digits that a float16 has. */
function format(weight) {
  return weight === 0 ? "0" : weight < 1e-3 ? weight.toExponential(3) : String(Number(weight.toPrecision(5)));
}

function leftOut({ left_out: [queries, keys] = [0, 0] }) {
  if (!queries && !keys) return "";
  return `${queries} more queries and ${keys} more keys were not written: AttentionMaps(max_tokens=…)`;
}
