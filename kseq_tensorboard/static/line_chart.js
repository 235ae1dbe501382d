/** Curves over whole numbers, on a logarithmic axis. */

import { cssVariable, element, resizeCanvas } from "./dom.js";

const LEFT = 64;
const BOTTOM = 40;
const MARGIN = 12;
const MOST_DECADES = 12;

export class LineChart {
  /** `onHover(x, event)` is called with a whole number, or with nothing. */
  constructor(onHover) {
    this.canvas = element("canvas");
    this.canvas.role = "img";
    this.root = element("div", { className: "picture" }, this.canvas);
    this.canvas.onpointermove = (event) => onHover(this.placeAt(event), event);
    this.canvas.onpointerleave = () => onHover();
  }

  /** `curves`: `{color, values, dashed}`; `label` names the axis across. */
  show(curves, label, width, height) {
    Object.assign(this, { curves, label, width, height });
    this.longest = Math.max(...curves.map(({ values }) => values.length), 2);
    const logs = curves.flatMap(({ values }) => [...values].filter(isShown).map(Math.log10));
    if (!logs.length) logs.push(0);
    this.high = Math.ceil(Math.max(...logs));
    this.low = Math.max(Math.floor(Math.min(...logs)), this.high - MOST_DECADES);
    this.low = Math.min(this.low, this.high - 1);
    this.mark();
  }

  mark(place) {
    const context = resizeCanvas(this.canvas, this.width, this.height);
    context.font = `12px ${cssVariable("--font")}`;
    this.drawAxes(context);
    if (place !== undefined) {
      context.strokeStyle = cssVariable("--faint");
      stroke(context, [[this.x(place), MARGIN], [this.x(place), this.height - BOTTOM]]);
    }
    context.save();
    context.beginPath();
    context.rect(LEFT, MARGIN - 4, this.width - LEFT, this.height - BOTTOM - MARGIN + 8);
    context.clip();
    for (const curve of this.curves) this.drawCurve(context, curve, place);
    context.restore();
  }

  drawAxes(context) {
    context.lineWidth = 1;
    context.textBaseline = "middle";
    for (const [value, text] of this.ticks()) {
      const y = this.y(value);
      context.strokeStyle = cssVariable("--line");
      stroke(context, [[LEFT, y], [this.width - MARGIN, y]]);
      context.fillStyle = cssVariable("--faint");
      context.textAlign = "right";
      context.fillText(text, LEFT - 8, y);
    }
    context.textAlign = "center";
    const between = roundStep(this.longest / Math.max(2, this.width / 90));
    for (let place = 0; place < this.longest; place += between) {
      context.fillText(String(place), this.x(place), this.height - BOTTOM + 14);
    }
    context.fillText(this.label, (LEFT + this.width) / 2, this.height - 8);
  }

  /** Powers of ten, every second one or less often where there are many; else 2 and 5 too. */
  ticks() {
    const decades = this.high - this.low;
    const every = Math.ceil(decades / 8);
    const ticks = [];
    for (let decade = this.low; decade <= this.high; decade += every) {
      const factors = decades <= 2 && decade < this.high ? [1, 2, 5] : [1];
      for (const factor of factors) ticks.push([factor * 10 ** decade, `${factor}e${decade}`]);
    }
    return ticks;
  }

  drawCurve(context, { values, color, dashed }, place) {
    context.strokeStyle = context.fillStyle = color;
    context.lineWidth = dashed ? 1.5 : 2;
    context.setLineDash(dashed ? [6, 5] : []);
    context.lineJoin = "round";
    let points = [];
    values.forEach((value, index) => {
      if (isShown(value)) points.push([this.x(index), this.y(value)]);
      else {
        stroke(context, points);
        points = [];
      }
    });
    stroke(context, points);
    context.setLineDash([]);
    if (place in values && isShown(values[place])) {
      context.beginPath();
      context.arc(this.x(place), this.y(values[place]), 4, 0, 2 * Math.PI);
      context.fill();
    }
  }

  x(place) {
    return LEFT + 8 + (place / (this.longest - 1)) * (this.width - LEFT - MARGIN - 16);
  }

  y(value) {
    const down = (this.high - Math.log10(value)) / (this.high - this.low);
    return MARGIN + down * (this.height - BOTTOM - MARGIN);
  }

  placeAt(event) {
    const across = (event.offsetX - LEFT - 8) / (this.width - LEFT - MARGIN - 16);
    return Math.min(Math.max(Math.round(across * (this.longest - 1)), 0), this.longest - 1);
  }
}

/** A logarithmic axis has no place for zero. */
function isShown(value) {
  return value > 0 && Number.isFinite(value);
}

function stroke(context, points) {
  context.beginPath();
  for (const [x, y] of points) context.lineTo(x, y);
  context.stroke();
}

/** 1, 2 or 5 times a power of ten, not below `least`. */
export function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least) ?? 1;
}
