/** A matrix as colors on a canvas, with labels along both sides. */

import { paint } from "./color.js";
import { cssVariable, element, resizeCanvas } from "./dom.js";

const FONT = 12;
const LARGEST_CELL = 52;
const GAP = 8;
const LONGEST_LABEL = 210;
// rows down, columns across
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/**
 * Draws `{rows, columns, units, ticks}`: labels of both sides, row by row numbers from
 * 0 to 1 or what is not finite, and the columns that have a label, if not all that fit.
 *
 * `square` cells are for tokens, whose labels stand above; those of steps stand below.
 * `onHover(row, column, event)` is called with the cell under the pointer, or with
 * nothing when it leaves; `onPick(row, column)` with the cell of a click, and
 * `onSelect(first, last)` with two opposite cells after a drag. With the focus on it,
 * the arrow keys move through the cells.
 */
export class HeatMap {
  constructor({ onHover = () => {}, onPick = () => {}, onSelect = () => {}, square = true } = {}) {
    this.canvas = element("canvas", { className: "heat-map" });
    this.canvas.role = "img";
    this.root = element("div", { className: "picture" }, this.canvas);
    this.square = square;
    this.canvas.tabIndex = 0;
    this.canvas.onkeydown = (event) => this.walk(event, onHover);
    this.canvas.onblur = () => onHover();
    // a click leaves the focus where it is: the arrow keys go on moving the step
    this.canvas.onmousedown = (event) => event.preventDefault();
    this.canvas.onpointerdown = (event) => (this.pressed = this.cellAt(event));
    this.canvas.onpointermove = (event) => {
      onHover(...this.cellAt(event), event);
      if (this.pressed) this.frame(this.pressed, this.cellAt(event));
    };
    this.canvas.onpointerup = (event) => {
      const [first, last] = [this.pressed, this.cellAt(event)];
      this.pressed = undefined;
      if (!first || first[0] === undefined || last[0] === undefined) return;
      if (first[0] === last[0] && first[1] === last[1]) onPick(...last);
      else onSelect(first, last);
    };
    this.canvas.onpointerleave = () => {
      this.pressed = undefined;
      onHover();
    };
  }

  /** Draws within `width` by `height` CSS pixels; returns a note if cells are too small. */
  show(matrix, width, height) {
    this.matrix = matrix;
    this.walked = undefined;
    const rows = matrix.rows.length;
    const columns = matrix.columns.length;
    this.context ??= this.canvas.getContext("2d");
    this.context.font = font();
    const left = widest(this.context, matrix.rows) + GAP;
    const roomAcross = Math.max(width - left - this.right(), 40);
    let cellWidth = Math.min(roomAcross / columns, LARGEST_CELL);
    const fits = (label) => this.context.measureText(label).width <= cellWidth - 4;
    const turned = this.square && !matrix.columns.every(fits);
    const top = (turned ? widest(this.context, matrix.columns) : FONT) + GAP;
    let cellHeight = Math.min(Math.max(height - top - 2, 40) / rows, LARGEST_CELL);
    if (this.square) cellWidth = cellHeight = Math.min(cellWidth, Math.max(cellHeight, 1));
    // cells of a whole number of pixels stay even, where they are large enough for it
    if (cellWidth > 3) cellWidth = Math.floor(cellWidth);
    if (cellHeight > 3) cellHeight = Math.floor(cellHeight);
    this.place = { left, top, cellWidth, cellHeight, rows, columns, turned };
    this.base = this.drawBase();
    this.mark();
    const pixels = Math.min(cellWidth, cellHeight) * devicePixelRatio;
    return pixels < 1 ? `${rows} × ${columns} cells: each pixel shows the largest of several` : "";
  }

  /** Frames a cell, or points at a column, and darkens its labels; with nothing, neither. */
  mark(row, column) {
    const { left, top, cellWidth, cellHeight } = this.place;
    const context = resizeCanvas(this.canvas, this.base.cssWidth, this.base.cssHeight);
    context.drawImage(this.base, 0, 0, this.base.cssWidth, this.base.cssHeight);
    if (column === undefined) return;
    context.font = font();
    context.strokeStyle = cssVariable("--accent");
    const x = left + column * cellWidth;
    this.overwrite(context, "column", column);
    if (row === undefined) return pointAt(context, x + cellWidth / 2, top - 2);
    context.globalAlpha = 0.4;
    context.strokeRect(x + 0.5, top + 0.5, Math.max(cellWidth - 1, 1), this.place.rows * cellHeight - 1);
    const y = top + row * cellHeight;
    context.strokeRect(left + 0.5, y + 0.5, this.place.columns * cellWidth - 1, Math.max(cellHeight - 1, 1));
    context.globalAlpha = 1;
    context.lineWidth = 2;
    context.strokeRect(x, y, Math.max(cellWidth, 3), Math.max(cellHeight, 3));
    this.overwrite(context, "row", row);
  }

  /** The rectangle between two cells, while it is dragged. */
  frame([row, column], [lastRow, lastColumn]) {
    if (row === undefined || lastRow === undefined) return;
    const { left, top, cellWidth, cellHeight } = this.place;
    const context = this.canvas.getContext("2d");
    context.globalAlpha = 0.18;
    context.fillStyle = cssVariable("--accent");
    context.fillRect(
      left + Math.min(column, lastColumn) * cellWidth,
      top + Math.min(row, lastRow) * cellHeight,
      (Math.abs(column - lastColumn) + 1) * cellWidth,
      (Math.abs(row - lastRow) + 1) * cellHeight,
    );
  }

  /** One cell on, as an arrow key says. */
  walk(event, onHover) {
    const [down, across] = ARROWS[event.key] ?? [];
    if (down === undefined) return;
    event.preventDefault();
    const { left, top, cellWidth, cellHeight, rows, columns } = this.place;
    const [row, column] = this.walked ?? [-down, -across];
    this.walked = [clamp(row + down, rows), clamp(column + across, columns)];
    const box = this.canvas.getBoundingClientRect();
    onHover(...this.walked, {
      clientX: box.left + left + (this.walked[1] + 1) * cellWidth,
      clientY: box.top + top + (this.walked[0] + 1) * cellHeight,
    });
  }

  /** Pixels to the right of the cells, for half a label of the last step. */
  right() {
    return this.square ? 2 : 28;
  }

  cellAt(event) {
    const { left, top, cellWidth, cellHeight, rows, columns } = this.place;
    const row = Math.floor((event.offsetY - top) / cellHeight);
    const column = Math.floor((event.offsetX - left) / cellWidth);
    const inside = row >= 0 && row < rows && column >= 0 && column < columns;
    return inside ? [row, column] : [undefined, undefined];
  }

  drawBase() {
    const { left, top, cellWidth, cellHeight, rows, columns, turned } = this.place;
    const base = document.createElement("canvas");
    base.cssWidth = Math.ceil(left + columns * cellWidth + this.right());
    base.cssHeight = Math.ceil(top + rows * cellHeight + (this.square ? 2 : FONT + GAP));
    const context = resizeCanvas(base, base.cssWidth, base.cssHeight);
    context.font = font();
    context.imageSmoothingEnabled = false;
    const across = columns * cellWidth;
    const down = rows * cellHeight;
    context.drawImage(this.pixels(across, down), left, top, across, down);
    if (Math.min(cellWidth, cellHeight) >= 9) this.drawGrid(context);
    context.fillStyle = cssVariable("--faint");
    const every = Math.ceil((FONT + 2) / cellHeight);
    for (let row = 0; row < rows; row += every) this.label(context, "row", row);
    const labeled = this.matrix.ticks ?? this.columnsThatFit(context);
    for (const column of labeled) this.label(context, "column", column);
    return base;
  }

  /** The colors, one pixel a cell; of cells smaller than a pixel, the largest. */
  pixels(across, down) {
    const { rows, columns } = this.place;
    const width = Math.min(columns, Math.max(1, Math.round(across * devicePixelRatio)));
    const height = Math.min(rows, Math.max(1, Math.round(down * devicePixelRatio)));
    const units = pool(this.matrix.units, rows, columns, height, width);
    const small = element("canvas", { width, height });
    const alarm = cssVariable("--alarm").split(" ").map(Number);
    small.getContext("2d").putImageData(paint(units, width, height, alarm), 0, 0);
    return small;
  }

  drawGrid(context) {
    const { left, top, cellWidth, cellHeight, rows, columns } = this.place;
    context.fillStyle = cssVariable("--ground");
    for (let row = 1; row < rows; row++) {
      context.fillRect(left, top + row * cellHeight - 0.5, columns * cellWidth, 1);
    }
    for (let column = 1; column < columns; column++) {
      context.fillRect(left + column * cellWidth - 0.5, top, 1, rows * cellHeight);
    }
  }

  columnsThatFit(context) {
    const { cellWidth, columns, turned } = this.place;
    const room = turned ? FONT + 2 : widest(context, this.matrix.columns) + 12;
    // upright tokens are there only if each fits into its column
    const every = this.square && !turned ? 1 : Math.ceil(room / cellWidth);
    return Array.from({ length: Math.ceil(columns / every) }, (_, index) => index * every);
  }

  label(context, side, index, text = this.text(context, side, index)) {
    const { left, top, cellWidth, cellHeight, rows, turned } = this.place;
    context.textBaseline = "middle";
    context.textAlign = "right";
    if (side === "row") {
      context.fillText(text, left - GAP, top + (index + 0.5) * cellHeight);
      return;
    }
    const x = left + (index + 0.5) * cellWidth;
    if (turned) {
      context.save();
      context.translate(x, top - GAP);
      context.rotate(-Math.PI / 2);
      context.textAlign = "left";
      context.fillText(text, 0, 0);
      context.restore();
    } else {
      context.textAlign = "center";
      // steps stand below, tokens above
      context.fillText(text, x, this.square ? top - GAP - FONT / 2 : top + rows * cellHeight + GAP);
    }
  }

  /** The label of the marked cell, over those that are in its way. */
  overwrite(context, side, index) {
    const { left, top, cellWidth, cellHeight, rows, turned } = this.place;
    const text = this.text(context, side, index);
    const width = context.measureText(text).width;
    context.save();
    context.globalAlpha = 1;
    context.fillStyle = cssVariable("--ground");
    if (side === "row") context.fillRect(0, top + (index + 0.5) * cellHeight - 8, left - 2, 16);
    else if (turned) context.fillRect(left + (index + 0.5) * cellWidth - 8, 0, 16, top - 2);
    else {
      const y = this.square ? 0 : top + rows * cellHeight + 1;
      context.fillRect(left + (index + 0.5) * cellWidth - width / 2 - 6, y, width + 12, FONT + GAP - 2);
    }
    context.fillStyle = cssVariable("--text");
    context.font = `600 ${font()}`;
    this.label(context, side, index, text);
    context.restore();
  }

  text(context, side, index) {
    return shorten(context, (side === "row" ? this.matrix.rows : this.matrix.columns)[index]);
  }
}

/** A small triangle whose tip is at (x, y), from above. */
function pointAt(context, x, y) {
  context.fillStyle = cssVariable("--accent");
  context.beginPath();
  for (const [across, up] of [[0, 0], [-6, 9], [6, 9]]) context.lineTo(x + across, y - up);
  context.fill();
}

/** The largest of each block; NaN if one of it is not finite. */
export function pool(units, rows, columns, height, width) {
  if (rows === height && columns === width) return units;
  const pooled = new Float32Array(height * width).fill(-Infinity);
  for (let row = 0; row < rows; row++) {
    const start = Math.floor((row * height) / rows) * width;
    for (let column = 0; column < columns; column++) {
      const place = start + Math.floor((column * width) / columns);
      const value = units[row * columns + column];
      pooled[place] = Number.isFinite(value) ? Math.max(pooled[place], value) : NaN;
    }
  }
  return pooled;
}

function clamp(index, count) {
  return Math.min(Math.max(index, 0), count - 1);
}

function font() {
  return `${FONT}px ${cssVariable("--font")}`;
}

/** Room for the widest label, also in bold. */
function widest(context, labels) {
  const widths = labels.map((label) => context.measureText(label).width);
  return 1.12 * Math.min(LONGEST_LABEL, Math.max(...widths));
}

/** Long labels lose their beginning: the ends of layer paths tell them apart. */
function shorten(context, label) {
  if (context.measureText(label).width <= LONGEST_LABEL) return label;
  let text = label;
  while (context.measureText(`…${text}`).width > LONGEST_LABEL) text = text.slice(1);
  return `…${text}`;
}
