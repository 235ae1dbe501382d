/** The view of gradient norms: layers down, steps across, a logarithm as color. */

import { rampGradient } from "./color.js";
import { fetchRecord } from "./data.js";
import { controlRow, element, Menu, nearestStep, StepSlider, Tooltip, withoutSharedParts } from "./dom.js";
import { HeatMap } from "./heat_map.js";
import { roundStep } from "./line_chart.js";

const TITLES = { gradient_norm: "gradient norm", update_to_weight: "update / weight" };
const ALL = "all layers";
// decades below the largest norm that still have a color of their own
const MOST_DECADES = 8;

export class GradientView {
  constructor(update) {
    this.run = new Menu("Run", (run) => update({ run }));
    this.measure = new Menu("Measure", (measure) => update({ measure }));
    this.slider = new StepSlider((step) => update({ step }));
    this.readout = element("p", { className: "readout", ariaLive: "polite" });
    this.map = new HeatMap({
      square: false,
      onHover: (row, column, event) => this.explain(row, column, event),
      onPick: (row, column) => column !== undefined && update({ step: this.shown.steps[column] }),
    });
    this.tooltip = new Tooltip();
    this.low = element("span");
    this.high = element("span");
    this.bar = element("div", { className: "bar" });
    this.note = element("p", { className: "faint note" });
    const scale = element("div", { className: "log-scale" }, this.low, this.bar, this.high);
    scale.append(element("span", { className: "swatch" }), "not finite");
    this.root = element(
      "section",
      { className: "view" },
      controlRow([this.run.root, this.measure.root], scale),
      this.slider.root,
      this.readout,
      this.map.root,
      this.note,
    );
  }

  moveStep(by) {
    this.slider.move(by);
  }

  async show(runs, state) {
    const run = state.run in runs ? state.run : Object.keys(runs)[0];
    const tags = runs[run];
    const tag = state.measure in tags ? state.measure : Object.keys(tags)[0];
    this.run.show(Object.keys(runs).map((name) => [name, name]), run);
    this.measure.show(Object.keys(tags).map((name) => [name, TITLES[name] ?? name]), tag);
    const latest = (this.request = fetchRecord("tensors", { plugin: "kseq_gradients", run, tag }));
    const record = await latest;
    if (this.request === latest) this.draw(record, tags[tag].layers, state.step, tag);
  }

  draw({ header: { steps }, shape: [, width], values }, names, wanted, tag) {
    // a series whose layers changed has the names of its first record
    const layers = names.length === width ? names : Array.from({ length: width }, (_, i) => `layer ${i}`);
    const rows = [ALL, ...withoutSharedParts(layers)];
    const norms = new Float32Array(rows.length * steps.length);
    for (let column = 0; column < steps.length; column++) {
      const own = values.subarray(column * width, (column + 1) * width);
      norms[column] = Math.hypot(...own);
      own.forEach((norm, layer) => (norms[(layer + 1) * steps.length + column] = norm));
    }
    const [low, high] = limits(norms);
    const units = norms.map((norm) => unitOf(norm, low, high));
    this.shown = { rows, steps, norms };
    this.low.textContent = `1e${Math.log10(low).toFixed()}`;
    this.high.textContent = `1e${Math.log10(high).toFixed()}`;
    this.bar.style.background = rampGradient();

    const step = nearestStep(steps, wanted);
    this.slider.show(steps, step, `${steps.length} steps kept`);
    const height = Math.max(innerHeight - this.map.root.getBoundingClientRect().top - 60, 280);
    const labels = steps.map((each) => each.toLocaleString("en"));
    this.map.show({ rows, columns: labels, units, ticks: ticksOf(steps) }, this.root.clientWidth - 8, height);
    this.map.canvas.ariaLabel = `${TITLES[tag] ?? tag} of ${width} layers over ${steps.length} steps`;
    this.marked = steps.indexOf(step);
    this.map.mark(undefined, this.marked);
    this.readout.replaceChildren(...this.describe(this.marked));
    const normsOf = (row) => norms.subarray(row * steps.length, (row + 1) * steps.length);
    const dead = layers.filter((_, layer) => isZero(normsOf(layer + 1)));
    this.note.textContent = dead.length ? `No gradient at all: ${dead.join(", ")}` : "";
  }

  /** What a step shows, in words. */
  describe(column) {
    const { rows, steps, norms } = this.shown;
    const layers = rows.slice(1).map((name, layer) => [name, norms[(layer + 1) * steps.length + column]]);
    const broken = layers.filter(([, norm]) => !Number.isFinite(norm));
    if (broken.length) {
      const words = `not finite in ${broken.length} of ${layers.length} layers`;
      return [element("strong", { className: "alarm" }, words)];
    }
    const sorted = layers.filter(([, norm]) => norm > 0).sort((a, b) => b[1] - a[1]);
    const parts = [["", ALL, norms[column]]];
    if (sorted.length) parts.push(["largest ", ...sorted[0]], ["smallest ", ...sorted.at(-1)]);
    return parts.map(([which, name, norm]) =>
      element("span", {}, which, element("strong", {}, norm.toPrecision(3)), which ? ` in ${name}` : ` ${name}`),
    );
  }

  explain(row, column, event) {
    if (row === undefined) {
      this.map.mark(undefined, this.marked);
      return this.tooltip.hide();
    }
    this.map.mark(row, column);
    const { rows, steps, norms } = this.shown;
    const norm = norms[row * steps.length + column];
    this.tooltip.show(
      event,
      element("div", {}, element("strong", {}, rows[row]), ` at step ${steps[column].toLocaleString("en")}`),
      element("div", { className: "value" }, Number.isFinite(norm) ? norm.toPrecision(5) : String(norm)),
    );
  }
}

/** The place of a norm on the logarithmic scale; 0 is for what is exactly 0. */
function unitOf(norm, low, high) {
  if (norm === 0) return 0;
  if (!Number.isFinite(norm)) return NaN;
  return Math.max(0.02, Math.log(norm / low) / Math.log(high / low));
}

/** The columns at which the steps pass a round number, some ten of them. */
function ticksOf(steps) {
  const between = roundStep((steps.at(-1) - steps[0]) / 10);
  return steps.flatMap((step, column) =>
    column === 0 || Math.floor(step / between) > Math.floor(steps[column - 1] / between) ? [column] : [],
  ).filter((column, index, all) => index === 0 || column - all[index - 1] > steps.length / 25);
}

/** The powers of ten around what is positive and finite, at most `MOST_DECADES` apart. */
function limits(norms) {
  const shown = norms.filter((norm) => norm > 0 && Number.isFinite(norm));
  if (!shown.length) return [0.1, 1];
  const [least, most] = shown.reduce(([a, b], norm) => [Math.min(a, norm), Math.max(b, norm)], [Infinity, 0]);
  const high = Math.ceil(Math.log10(most));
  const low = Math.max(Math.floor(Math.log10(least)), high - MOST_DECADES);
  return [10 ** Math.min(low, high - 1), 10 ** high];
}

function isZero(norms) {
  const finite = norms.filter(Number.isFinite);
  return finite.length > 0 && finite.every((norm) => norm === 0);
}
