// Prometheus's text format, and rates and quantiles between two readings of it.

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

/** Samples of the wanted names: Map of name → Map of labels' text → {labels, value}. */
export function parse(text, wanted) {
  const found = new Map();
  for (const line of text.split("\n")) {
    if (!line || line[0] === "#") continue;
    const match = LINE.exec(line);
    if (!match || !wanted(match[1])) continue;
    const labels = {};
    for (const [, name, value] of (match[2] ?? "").matchAll(LABEL)) {
      labels[name] = value.replace(/\\(.)/g, (_, char) => (char === "n" ? "\n" : char));
    }
    if (!found.has(match[1])) found.set(match[1], new Map());
    found.get(match[1]).set(match[2] ?? "", { labels, value: Number(match[3]) });
  }
  return found;
}

const fits = (labels, where) => Object.entries(where).every(([name, value]) => (value instanceof RegExp ? value.test(labels[name]) : labels[name] === value));

export function samples(page, name, where = {}) {
  return [...(page?.get(name)?.values() ?? [])].filter(({ labels }) => fits(labels, where));
}

/** Sum of a gauge's samples; undefined where there are none. */
export function sum(page, name, where = {}) {
  const rows = samples(page, name, where);
  return rows.length ? rows.reduce((all, { value }) => all + value, 0) : undefined;
}

/** What a counter has gained from `before` to `now`; a counter that fell began anew. */
export function gained(before, now, name, where = {}) {
  let all = 0;
  for (const [key, { labels, value }] of now?.get(name) ?? []) {
    if (!fits(labels, where)) continue;
    const old = before?.get(name)?.get(key)?.value ?? 0;
    all += value >= old ? value - old : value;
  }
  return all;
}

/** Mean of a histogram's observations from `before` to `now`; NaN without any. */
export function mean(before, now, name, where = {}) {
  return gained(before, now, `${name}_sum`, where) / gained(before, now, `${name}_count`, where);
}

/** A quantile of them, as Prometheus's histogram_quantile has it; NaN without any. */
export function quantile(before, now, name, q, where = {}) {
  const old = before?.get(`${name}_bucket`);
  const counts = new Map();
  for (const [key, { labels, value }] of now?.get(`${name}_bucket`) ?? []) {
    if (!fits(labels, where)) continue;
    const was = old?.get(key)?.value ?? 0;
    const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
    counts.set(bound, (counts.get(bound) ?? 0) + (value >= was ? value - was : value));
  }
  const rows = [...counts].sort((a, b) => a[0] - b[0]);
  const total = rows.at(-1)?.[1];
  if (!total) return NaN;
  let [low, below] = [0, 0];
  for (const [bound, count] of rows) {
    if (count >= q * total) return bound === Infinity ? low : low + ((bound - low) * (q * total - below)) / (count - below || 1);
    [low, below] = [bound, count];
  }
  return low;
}
