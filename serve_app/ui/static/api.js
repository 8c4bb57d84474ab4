// Calls of the gateway's public routes. Everything is relative to the page, so a prefix in front of it does no harm.

export const BASE = new URL("..", location.href.split("#")[0]);
const KEY = "poolserve-key";

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

function headers(more = {}) {
  return key.get() ? { ...more, Authorization: `Bearer ${key.get()}` } : more;
}

async function get(path, signal) {
  const response = await fetch(new URL(path, BASE), { headers: headers(), signal, cache: "no-store" });
  if (!response.ok) throw Object.assign(new Error(`${path} answered ${response.status}`), { status: response.status });
  return response;
}

/** Models by name: [{name, versions: [{version, task, weight, state, application}]}]. */
export async function models(signal) {
  const groups = new Map();
  for (const row of (await (await get("v1/models", signal)).json()).data) {
    if (!groups.has(row.id)) groups.set(row.id, { name: row.id, versions: [] });
    groups.get(row.id).versions.push(row);
  }
  return [...groups.values()];
}

export const version = async () => (await get("version")).json();

/** The Prometheus page; null where the gateway has none, an Error with `status` where it may not be read. */
export async function metrics(signal) {
  try {
    return await (await get("metrics", signal)).text();
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}

/** Posts a body. Never throws for an answer of the server: {status, body, headers, ms}. */
export async function post(path, body, timeout, signal) {
  const extra = { "Content-Type": "application/json" };
  if (timeout) extra["X-Request-Timeout-Ms"] = timeout;
  const text = JSON.stringify(body);
  const started = performance.now();
  const response = await fetch(new URL(path, BASE), { method: "POST", headers: headers(extra), body: text, signal });
  const answer = await response.text();
  const took = performance.now() - started;
  let parsed = null;
  try {
    parsed = JSON.parse(answer);
  } catch {
    parsed = { error: { message: excerptOf(answer) || "the answer is not JSON", code: "no_json" } };
  }
  return { status: response.status, body: parsed, headers: response.headers, ms: took };
}

const excerptOf = (text) => text.replace(/\s+/g, " ").slice(0, 300);

/** A `Server-Timing` header as [[stage, ms], …]. */
export function serverTiming(header) {
  return [...(header ?? "").matchAll(/([a-z_]+);dur=([0-9.]+)/g)].map(([, stage, value]) => [stage, Number(value)]);
}
