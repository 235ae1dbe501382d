/** Small pictures of heads, each a button that chooses one. */

import { paint } from "./color.js";
import { element, makeButton, withoutSharedParts } from "./dom.js";

/** The pictures of one layer: `shape` is (pictures, rows, columns). */
function headButtons({ shape: [pictures, rows, columns], values }, chosen, onPick) {
  return Array.from({ length: pictures }, (_, index) => {
    const head = pictures === 1 || index === 0 ? "mean" : String(index - 1);
    const canvas = element("canvas", { width: columns, height: rows });
    const size = rows * columns;
    const units = values.subarray(index * size, (index + 1) * size).map(Math.sqrt);
    canvas.getContext("2d").putImageData(paint(units, columns, rows, [0, 0, 0]), 0, 0);
    const name = pictures === 1 ? "weights" : index === 0 ? "mean" : `head ${head}`;
    const button = makeButton("thumbnail", "", () => onPick(head));
    button.append(canvas, element("span", {}, index === 0 ? name : head));
    button.title = name;
    button.setAttribute("aria-pressed", head === chosen);
    return button;
  });
}

/** The layers of an overview record, each with its part of the values. */
export function splitOverview({ header, values }) {
  let start = 0;
  return header.layers.map(({ tag, shape }) => {
    const size = shape.reduce((product, length) => product * length, 1);
    const part = values.subarray(start, start + size);
    start += size;
    return { tag, shape, values: part };
  });
}

/** All layers, one a row, and their heads. `onPick(tag, head)`. */
export function layerRows(layers, names, chosen, onPick) {
  const short = withoutSharedParts(layers.map(({ tag }) => names[tag]));
  return layers.map((layer, index) => {
    const head = layer.tag === chosen.tag ? chosen.head : undefined;
    const buttons = headButtons(layer, head, (picked) => onPick(layer.tag, picked));
    const heads = element("div", { className: "heads" }, ...buttons);
    heads.style.setProperty("--pictures", buttons.length);
    const title = element("h3", { title: names[layer.tag] }, short[index]);
    return element("section", { className: "layer" }, title, heads);
  });
}
