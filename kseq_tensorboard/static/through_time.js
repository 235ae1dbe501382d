/** The view of gradients inside a model: norm by time step, or by depth. */

import { fetchRecord } from "./data.js";
import { cssVariable, element, nearestStep, StepSlider, Switch, Tooltip } from "./dom.js";
import { LineChart } from "./line_chart.js";

const TITLES = { time: "Through time", depth: "Through depth" };
// the unit of the axis, and what the whole of it is
const AXES = { time: ["time step", "time step t of the state"], depth: ["block", "block, from the first"] };
const BOUND = "Dashed: the bound that the largest singular value of the recurrent weights gives.";
const COLORS = 8;

export class ThroughTimeView {
  constructor(update) {
    this.update = update;
    this.kind = new Switch("axis", Object.entries(TITLES), (kind) => update({ kind }));
    this.slider = new StepSlider((step) => update({ step }));
    this.legend = element("div", { className: "legend" });
    this.chart = new LineChart((place, event) => this.explain(place, event));
    this.tooltip = new Tooltip();
    this.note = element("p", { className: "faint note" });
    this.root = element(
      "section",
      { className: "view" },
      element("div", { className: "controls" }, this.kind.root, this.legend),
      this.slider.root,
      this.chart.root,
      this.note,
    );
  }

  moveStep(by) {
    this.slider.move(by);
  }

  async show(runs, state) {
    const all = Object.entries(runs).flatMap(([run, tags]) =>
      Object.entries(tags).map(([tag, { kind, label }]) => ({ run, tag, kind, label: label ?? tag })),
    );
    const kinds = new Set(all.map(({ kind }) => kind));
    const kind = [state.kind, "time", ...kinds].find((one) => kinds.has(one));
    const series = all.filter((one) => one.kind === kind);
    this.kind.root.hidden = kinds.size < 2;
    this.kind.show(kind);
    const latest = (this.request = Promise.all(
      series.map(({ run, tag }) => fetchRecord("tensors", { plugin: "kseq_through_time", run, tag })),
    ));
    const records = await latest;
    if (this.request === latest) this.draw(series, records, kind, state);
  }

  draw(series, records, kind, state) {
    const steps = [...new Set(records.flatMap(({ header }) => header.steps))].sort((a, b) => a - b);
    const step = nearestStep(steps, state.step);
    const off = new Set(state.off ? state.off.split(",") : []);
    const severalRuns = new Set(series.map(({ run }) => run)).size > 1;
    this.curves = series.flatMap(({ run, label }, index) => {
      const name = severalRuns ? `${label} (${run})` : label;
      const color = cssVariable(`--curve-${index % COLORS}`);
      const [values, bound] = rowsAt(records[index], step);
      const curve = { id: String(index), name, color, values };
      return bound ? [curve, { ...curve, name: `${name}, bound`, values: bound, dashed: true }] : [curve];
    });
    this.shown = this.curves.filter(({ id }) => !off.has(id));
    this.slider.show(steps, step, `${steps.length} records`);
    this.showLegend(off);
    const height = Math.max(innerHeight - this.chart.root.getBoundingClientRect().top - 56, 260);
    const [unit, axis] = AXES[kind];
    this.unit = unit;
    this.chart.show(this.shown, axis, this.root.clientWidth - 8, Math.min(height, 620));
    this.chart.canvas.setAttribute("aria-label", `gradient norms of ${this.shown.length} curves`);
    const bounded = this.shown.some(({ dashed }) => dashed);
    this.note.textContent = bounded ? BOUND : "";
  }

  /** Each curve is a button that hides and shows it. */
  showLegend(off) {
    const buttons = this.curves.map(({ id, name, color, dashed }) => {
      const mark = element("span", { className: dashed ? "dash" : "dot" });
      mark.style.setProperty("--color", color);
      const toggle = () => {
        const changed = new Set(off);
        if (!changed.delete(id)) changed.add(id);
        this.update({ off: [...changed].join(",") });
      };
      const button = element("button", { type: "button", className: "key", onclick: toggle }, mark, name);
      button.setAttribute("aria-pressed", !off.has(id));
      return button;
    });
    this.legend.replaceChildren(...buttons);
  }

  explain(place, event) {
    this.chart.mark(place);
    if (place === undefined) return this.tooltip.hide();
    const entries = this.shown
      .filter(({ values }) => place in values)
      .map(({ name, values }) =>
        element("div", { className: "entry" }, element("span", {}, name), values[place].toPrecision(4)),
      );
    this.tooltip.show(event, element("strong", {}, `${this.unit} ${place}`), ...entries);
  }
}

/** The norms, and the bound where there is one, of the record nearest to `step`. */
function rowsAt({ header: { steps }, shape, values }, step) {
  const length = shape.at(-1);
  const count = shape.length === 3 ? shape[1] : 1;
  const start = steps.indexOf(nearestStep(steps, step)) * count * length;
  const rowFrom = (first) => values.subarray(first, first + length);
  return Array.from({ length: count }, (_, row) => rowFrom(start + row * length));
}
