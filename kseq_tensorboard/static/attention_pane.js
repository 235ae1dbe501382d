/** One picture of attention with the run and the step that it shows. */

import { fetchRecord } from "./data.js";
import { element, makeButton, Menu, nearestStep, StepSlider, Tooltip } from "./dom.js";
import { HeatMap } from "./heat_map.js";
import { Lines } from "./lines.js";

const HOW = "queries down, keys across, color by the root of the weight; drag to enlarge";

export class AttentionPane {
  constructor({ onRun, onStep, onHover, onZoom }) {
    this.run = new Menu("Run", onRun);
    this.slider = new StepSlider(onStep);
    const hover = (row, column, event) => {
      onHover(row, column);
      this.explain(row, column, event);
    };
    const select = ([row, column], [lastRow, lastColumn]) => {
      const { zoom } = this.shown;
      const ends = [row, lastRow].sort(ascending).map((end) => end + zoom[0]);
      onZoom([...ends, ...[column, lastColumn].sort(ascending).map((end) => end + zoom[2])].join("-"));
    };
    this.pictures = {
      map: new HeatMap({ onHover: hover, onSelect: select }),
      lines: new Lines({ onHover: hover }),
    };
    this.whole = makeButton("toggle", "Show all tokens", () => onZoom());
    this.words = element("span");
    this.note = element("p", { className: "faint note" }, this.whole, this.words);
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
    this.whole.hidden = true;
    this.shown = undefined;
    this.run.show(Object.keys(runs).map((name) => [name, name]), wanted.run);
    const layer = runs[wanted.run][wanted.tag];
    if (!layer) {
      this.place.replaceChildren();
      this.words.textContent = `The run ${wanted.run} has no layer of this name.`;
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

  draw(record, { mode, stretch, width, zoom }, step) {
    this.shown = cut(record, zoom);
    const { queries, keys, values } = this.shown;
    const largest = stretch ? Math.max(values.reduce((a, b) => Math.max(a, b), 0), 1e-9) : 1;
    this.picture = mode === "lines" ? this.pictures.lines : this.pictures.map;
    if (this.place.firstChild !== this.picture.root) this.place.replaceChildren(this.picture.root);
    this.slider.label.textContent = `step ${step.toLocaleString("en")} · epoch ${record.header.epoch}`;
    // the square root keeps attention visible that is spread over many keys
    const units = values.map((weight) => Math.sqrt(weight / largest));
    const top = this.place.getBoundingClientRect().top + scrollY;
    const height = Math.max(innerHeight - top - 64, 320);
    const drawn = this.picture.show({ rows: queries, columns: keys, units }, width, height);
    this.picture.canvas.ariaLabel = `attention of ${queries.length} queries to ${keys.length} keys`;
    this.whole.hidden = values.length === record.values.length;
    const how = mode === "lines" ? "" : HOW;
    this.words.textContent = [how, drawn, leftOut(record.header)].filter(Boolean).join(" · ");
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
    const entries = strongest.map(([token, weight]) =>
      element("div", { className: "entry" }, element("span", {}, token), format(weight)),
    );
    this.tooltip.show(event, element("strong", {}, row !== undefined ? queries[row] : keys[column]), ...entries);
  }
}

/** The part of a record between the cells of `zoom`, "row-row-column-column". */
function cut({ header: { queries, keys }, values }, zoom) {
  const whole = [0, queries.length - 1, 0, keys.length - 1];
  const wanted = zoom?.split("-").map(Number) ?? whole;
  const [top, bottom, left, right] = wanted[1] <= whole[1] && wanted[3] <= whole[3] ? wanted : whole;
  const width = right + 1 - left;
  const part = new Float32Array((bottom + 1 - top) * width);
  for (let row = top; row <= bottom; row++) {
    const start = row * keys.length + left;
    part.set(values.subarray(start, start + width), (row - top) * width);
  }
  return {
    zoom: [top, bottom, left, right],
    queries: queries.slice(top, bottom + 1),
    keys: keys.slice(left, right + 1),
    values: part,
  };
}

function ascending(a, b) {
  return a - b;
}

function pair(query, key, weight) {
  return [
    element("div", {}, element("strong", {}, query), " → ", element("strong", {}, key)),
    element("div", { className: "value" }, format(weight)),
  ];
}

/** All digits that a float16 has. */
function format(weight) {
  return weight === 0 ? "0" : weight < 1e-3 ? weight.toExponential(4) : String(Number(weight.toPrecision(5)));
}

function leftOut({ left_out: [queries, keys] = [0, 0] }) {
  if (!queries && !keys) return "";
  return `${queries} more queries and ${keys} more keys were not written: AttentionMaps(max_tokens=…)`;
}
