/** What stands in place of a view that has no data: three lines that bring some. */

import { element } from "./dom.js";

const CALLBACKS = {
  attention: 'AttentionMaps("logs", x[:2], query_tokens=tokens, key_tokens=tokens)',
  gradients: 'GradientNorms("logs")',
  time: 'GradientFlow("logs", x[:8], y[:8])',
};
const WHAT = {
  attention: "No attention yet",
  gradients: "No gradient norms yet",
  time: "No gradients through time yet",
};
const HOW = "Train any Keras model with this callback, and press the reload button of TensorBoard:";

export function emptyView(view) {
  const lines = [
    "import kseq",
    `callback = kseq.callbacks.${CALLBACKS[view]}`,
    "model.fit(x, y, callbacks=[callback])",
  ];
  return element(
    "section",
    { className: "empty" },
    element("h2", {}, WHAT[view]),
    element("p", {}, HOW),
    element("pre", {}, element("code", {}, lines.join("\n"))),
  );
}
