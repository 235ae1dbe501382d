/** Elements of the page and the few controls that every view is made of. */

/** `element("div", {className: "x"}, child, "text")`. */
export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

export function makeButton(className, textContent, onclick) {
  return element("button", { type: "button", className, textContent, onclick });
}

/** A row of controls, the last of them at the right end. */
export function controlRow(controls, last) {
  return element("div", { className: "controls" }, ...controls, element("div", { className: "spring" }), last);
}

/** A menu. `show(options, value)` takes pairs [value, label]. */
export class Menu {
  constructor(name, onChange) {
    this.select = element("select", {
      name: name.toLowerCase(),
      onchange: () => onChange(this.select.value),
    });
    this.root = element("label", { className: "control" }, element("span", {}, name), this.select);
    this.listed = "";
  }

  show(options, value) {
    // a menu that is open keeps its place while nothing in it changes
    const listed = JSON.stringify(options);
    if (listed !== this.listed) {
      this.listed = listed;
      this.select.replaceChildren(
        ...options.map(([value, label]) => element("option", { value, textContent: label, title: label })),
      );
    }
    this.select.value = value;
    this.root.hidden = options.length < 2;
  }
}

/** A row of buttons of which one is pressed. */
export class Switch {
  constructor(name, options, onChange) {
    this.buttons = options.map(([value, label]) => {
      const button = makeButton("", label, () => onChange(value));
      return Object.assign(button, { value });
    });
    this.root = element("div", { className: "switch" }, ...this.buttons);
    this.root.setAttribute("role", "group");
    this.root.setAttribute("aria-label", name);
  }

  show(value) {
    this.value = value;
    for (const button of this.buttons) {
      button.setAttribute("aria-pressed", button.value === value);
    }
  }
}

const PLAY_EVERY = 700; // milliseconds

/** A slider over the steps that TensorBoard kept, and a button that runs through them. */
export class StepSlider {
  constructor(onChange) {
    this.onChange = onChange;
    this.steps = [];
    this.range = element("input", {
      type: "range",
      min: 0,
      oninput: () => onChange(this.steps[this.range.valueAsNumber]),
    });
    this.range.setAttribute("aria-label", "step");
    this.button = makeButton("play", "", () => this.play(!this.playing));
    this.label = element("output");
    this.note = element("span", { className: "faint" });
    this.root = element("div", { className: "steps" }, this.button, this.range, this.label, this.note);
    this.play(false);
  }

  show(steps, step, note = "") {
    this.steps = steps;
    this.range.max = Math.max(steps.length - 1, 0);
    this.range.value = steps.indexOf(step);
    this.range.disabled = steps.length < 2;
    this.button.hidden = steps.length < 2;
    this.label.textContent = `step ${step.toLocaleString("en")}`;
    this.note.textContent = note;
  }

  /** One step back (-1) or on (+1). */
  move(by) {
    const place = this.range.valueAsNumber + by;
    if (place in this.steps) this.onChange(this.steps[place]);
  }

  /** Runs through the steps, from the first one again after the last. */
  play(on) {
    clearInterval(this.playing);
    this.playing = on && setInterval(() => this.playOn(), PLAY_EVERY);
    this.button.textContent = on ? "\u275a\u275a" : "\u25b6\ufe0e";
    this.button.ariaLabel = on ? "stop" : "play through the steps";
  }

  playOn() {
    // another view is shown
    if (this.root.offsetParent === null) return this.play(false);
    this.onChange(this.steps[(this.range.valueAsNumber + 1) % this.steps.length]);
  }
}

/** The entry of `steps` closest to `wanted`; the last one if nothing is wanted. */
export function nearestStep(steps, wanted) {
  if (wanted === undefined || wanted === "") return steps.at(-1);
  const distance = (step) => Math.abs(step - wanted);
  return steps.reduce((best, step) => (distance(step) < distance(best) ? step : best));
}

/** The entries of an object in the order that a reader counts: a2 before a10. */
export function sortedByName(object) {
  const compare = new Intl.Collator("en", { numeric: true }).compare;
  return Object.fromEntries(Object.entries(object).sort(([a], [b]) => compare(a, b)));
}

/** A box with text beside the pointer. */
export class Tooltip {
  constructor() {
    this.root = element("div", { className: "tooltip", hidden: true });
    document.body.append(this.root);
  }

  show(event, ...children) {
    this.root.replaceChildren(...children);
    this.root.hidden = false;
    const { width, height } = this.root.getBoundingClientRect();
    const right = event.clientX + 16 + width > innerWidth;
    this.root.style.left = `${event.clientX + (right ? -16 - width : 16)}px`;
    this.root.style.top = `${Math.min(event.clientY + 16, innerHeight - height - 4)}px`;
  }

  hide() {
    this.root.hidden = true;
  }
}

/** A canvas of this many CSS pixels, sharp on every screen. */
export function resizeCanvas(canvas, width, height) {
  const ratio = devicePixelRatio;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** The value of a CSS variable: canvases draw in the colors of the theme. */
export function cssVariable(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Paths without the parts that all of them begin or end with. */
export function withoutSharedParts(paths) {
  const parts = paths.map((path) => path.split("/"));
  // one path alone shares all with itself: it stays whole
  if (paths.length < 2) return paths;
  const most = Math.min(...parts.map((part) => part.length)) - 1;
  const sharedAt = (index) => parts.every((part) => part.at(index) === parts[0].at(index));
  let [start, end] = [0, 0];
  while (start < most && sharedAt(start)) start += 1;
  while (start + end < most && sharedAt(-1 - end)) end += 1;
  return parts.map((part) => part.slice(start, part.length - end).join("/"));
}
