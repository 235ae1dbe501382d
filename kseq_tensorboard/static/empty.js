/** What stands in place of a view that has no data: three lines that bring some. */

import { element } from "./dom.js";

const LINES = {
  attention: ["import kseq", 'maps = kseq.callbacks.AttentionMaps("logs", probe=x[:2], query_tokens=tokens, key_tokens=tokens)', "model.fit(x, y, callbacks=[maps])"],
  gradients: ["import kseq", 'norms = kseq.callbacks.GradientNorms("logs")', "model.fit(x, y, callbacks=[norms])"],
  time: ["import kseq", 'flow = kseq.callbacks.GradientFlow("logs", x[:8], y[:8])', "model.fit(x, y, callbacks=[flow])"],
};
const WHAT = {
  attention: "No attention yet",
  gradients: "No gradient norms yet",
  time: "No gradients through time yet",
};

export function emptyView(view) {
  return element(
    "section",
    { className: "empty" },
    element("h2", {}, WHAT[view]),
    element("p", {}, "Any Keras model will do. Train it with this callback, and press TensorBoard's reload button:"),
    element("pre", {}, element("code", {}, LINES[view].join("\n"))),
  );
}
