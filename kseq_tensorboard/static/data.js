/** Asks the plugin for its series and reads the records that it answers with. */

const MOST_KEPT = 64;
const kept = new Map();

/** Plugin -> run -> tag -> description. */
export async function fetchSeries() {
  return (await ask("series", {})).json();
}

/** A record `{header, shape, values}`; the last ones asked for are kept. */
export function fetchRecord(route, parameters) {
  const key = JSON.stringify([route, parameters]);
  let record = kept.get(key);
  kept.delete(key);
  if (!record) {
    record = ask(route, parameters).then((answer) => answer.arrayBuffer()).then(unpack);
    record.catch(() => kept.delete(key));
  }
  kept.set(key, record);
  if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value);
  return record;
}

/** Forgets what was fetched: the logs may have grown. */
export function forgetRecords() {
  kept.clear();
}

async function ask(route, parameters) {
  const answer = await fetch(`./${route}?${new URLSearchParams(parameters)}`);
  if (!answer.ok) throw new Error(`${route}: ${await answer.text()}`);
  return answer;
}

/** "kseq", length of the header, header in JSON, float32: see records.py. */
function unpack(buffer) {
  const length = new DataView(buffer).getUint32(4, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  return { header, shape: header.shape, values: new Float32Array(buffer, 8 + length) };
}
