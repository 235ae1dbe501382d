/** What TensorBoard around this page gives: its theme, its address, its reloads. */

const PREFIX = "p.kseq_sequences.";

/** The page that holds the address; this one if TensorBoard cannot be reached. */
function addressed() {
  try {
    return parent.location.hash === undefined ? window : parent;
  } catch {
    return window;
  }
}

/** What the address says of the view, as it was written by `writeLink`. */
export function readLink() {
  const link = {};
  for (const part of addressed().location.hash.slice(1).split("&")) {
    const [name, value] = part.split("=");
    if (name.startsWith(PREFIX)) link[name.slice(PREFIX.length)] = decodeURIComponent(value);
  }
  return link;
}

/** Puts the state of the view into the address: a copy of it brings it back. */
export function writeLink(state) {
  const page = addressed();
  const others = page.location.hash
    .slice(1)
    .split("&")
    .filter((part) => part && !part.startsWith(PREFIX));
  if (page === parent && others[0] !== "kseq_sequences") return; // another tab is open
  const own = Object.entries(state)
    .filter(([, value]) => value !== undefined && value !== "")
    .map(([name, value]) => `${PREFIX}${name}=${encodeURIComponent(value)}`);
  page.history.replaceState(page.history.state, "", `#${[...others, ...own].join("&")}`);
}

/** Sets `data-theme` on this page as TensorBoard's own theme is, now and later. */
export function followTheme(onChange) {
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  let host = null;
  try {
    // at its own address the page has no TensorBoard around it
    if (parent !== window) host = parent.document.body;
  } catch {
    // a page of another origin tells nothing
  }
  const apply = () => {
    const dark = host ? host.classList.contains("dark-mode") : preferred.matches;
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    onChange();
  };
  preferred.addEventListener("change", apply);
  if (host) new MutationObserver(apply).observe(host, { attributeFilter: ["class"] });
  apply();
}

/** Calls `onReload` whenever TensorBoard has loaded new data. */
export function followReloads(onReload) {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = ({ data }) => {
    const { type, id, isReply } = JSON.parse(data);
    if (isReply) return;
    if (type === "experimental.DataReloaded") onReload();
    port1.postMessage(JSON.stringify({ type, id, payload: null, error: null, isReply: true }));
  };
  parent.postMessage("experimental.bootstrap", "*", [port2]);
}
