/** Attention as lines from each query, on the left, to the keys it looks at. */

import { cssVariable, element, resizeCanvas } from "./dom.js";

const ROW = 18;
const SMALLEST_ROW = 11;
const LABEL = 150;
const FAINTEST = 0.05;
const MOST_LINES = 20_000;

/** Shown as a `HeatMap` is; `onHover(row, undefined)` names a query, `(undefined, column)` a key. */
export class Lines {
  constructor({ onHover = () => {} } = {}) {
    this.canvas = element("canvas", { className: "lines" });
    this.canvas.role = "img";
    this.root = element("div", { className: "picture scrolled" }, this.canvas);
    this.canvas.onpointermove = (event) => onHover(...this.tokenAt(event), event);
    this.canvas.onpointerleave = () => onHover();
  }

  show(matrix, width, height) {
    this.matrix = matrix;
    const most = Math.max(matrix.rows.length, matrix.columns.length);
    this.rowHeight = Math.max(SMALLEST_ROW, Math.min(ROW, (height - 8) / most));
    this.width = Math.min(width, 760);
    this.height = most * this.rowHeight + 8;
    this.weakest = this.weakestDrawn();
    this.mark();
    const shown = Math.max(this.weakest, FAINTEST ** 2);
    return `lines for weights of ${shown.toPrecision(1)} and more`;
  }

  /** Draws all lines, or those of one query or key alone. */
  mark(row, column) {
    const { rows, columns, units } = this.matrix;
    const context = resizeCanvas(this.canvas, this.width, this.height);
    context.strokeStyle = cssVariable("--accent");
    const alone = row !== undefined || column !== undefined;
    const partners = new Map();
    for (let i = 0; i < rows.length; i++) {
      if (row !== undefined && i !== row) continue;
      for (let j = 0; j < columns.length; j++) {
        if (column !== undefined && row === undefined && j !== column) continue;
        const unit = units[i * columns.length + j];
        if (unit < FAINTEST || (!alone && unit ** 2 < this.weakest)) continue;
        partners.set(row !== undefined ? j : i, unit);
        this.drawLine(context, i, j, unit);
      }
    }
    if (row !== undefined) {
      this.drawTokens(context, "left", rows, row);
      this.drawTokens(context, "right", columns, undefined, partners);
    } else {
      this.drawTokens(context, "left", rows, undefined, alone ? partners : undefined);
      this.drawTokens(context, "right", columns, column);
    }
  }

  drawLine(context, row, column, unit) {
    const [x, y, end, target] = [LABEL, this.middle(row), this.width - LABEL, this.middle(column)];
    context.globalAlpha = Math.min(unit, 1);
    context.lineWidth = 0.5 + 2 * unit;
    context.beginPath();
    context.moveTo(x, y);
    context.bezierCurveTo((x + end) / 2, y, (x + end) / 2, target, end, target);
    context.stroke();
    context.globalAlpha = 1;
  }

  drawTokens(context, side, tokens, chosen, partners) {
    context.textBaseline = "middle";
    context.textAlign = side === "left" ? "right" : "left";
    const x = side === "left" ? LABEL - 8 : this.width - LABEL + 8;
    const size = Math.min(13, this.rowHeight - 2);
    tokens.forEach((token, index) => {
      const bold = index === chosen || partners?.get(index) > 0.3;
      context.font = `${bold ? 600 : 400} ${size}px ${cssVariable("--font")}`;
      const dimmed = (chosen !== undefined && !bold) || (partners && !partners.has(index));
      context.fillStyle = cssVariable(dimmed ? "--faint" : "--text");
      const text = token.length > 20 ? `${token.slice(0, 19)}…` : token;
      context.fillText(text, x, this.middle(index));
    });
  }

  middle(index) {
    return 4 + (index + 0.5) * this.rowHeight;
  }

  tokenAt(event) {
    const index = Math.floor((event.offsetY - 4) / this.rowHeight);
    const { rows, columns } = this.matrix;
    if (event.offsetX < this.width / 2) return rows[index] === undefined ? [] : [index, undefined];
    return columns[index] === undefined ? [] : [undefined, index];
  }

  /** The weight below which lines are left out, so that few enough are drawn. */
  weakestDrawn() {
    const { units } = this.matrix;
    if (units.length <= MOST_LINES) return 0;
    return Float32Array.from(units).sort().at(-MOST_LINES) ** 2;
  }
}
