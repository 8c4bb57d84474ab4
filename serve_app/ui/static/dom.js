// Elements from data. Strings become text nodes or attribute values, never HTML.

export const $ = (id) => document.getElementById(id);

/** An element. `on…` adds a listener, `vars` sets CSS variables, false and null leave an attribute out. */
export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "vars") for (const [key, item] of Object.entries(value)) node.style.setProperty(key, item);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** The same for SVG. */
export function svg(tag, props = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export const show = (node, visible) => { node.hidden = !visible; };

/** A table with a caption for screen readers; cells are text or nodes. */
export function table(caption, head, rows) {
  const cell = (content) => h("td", {}, content instanceof Node ? content : String(content ?? "–"));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map(cell))))));
}

/** A score: four decimals, or an exponent where those would say nothing. */
export function score(value) {
  if (typeof value !== "number" || !Number.isFinite(value)) return "–";
  return value !== 0 && (Math.abs(value) < 0.001 || Math.abs(value) >= 1e5) ? value.toExponential(2) : value.toFixed(4);
}

/** Milliseconds. */
export function ms(value) {
  if (!Number.isFinite(value)) return "–";
  return `${value < 10 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : Math.round(value)} ms`;
}

/** A count or rate in few characters: 12.3, 4.1k. */
export function amount(value) {
  if (!Number.isFinite(value)) return "–";
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(value) >= size) return `${(value / (unit === "k" ? 1e3 : size)).toFixed(1)}${unit}`;
  }
  return Number.isInteger(value) || Math.abs(value) >= 100 ? String(Math.round(value)) : value.toFixed(1);
}

export const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

/** What can be seen of a text of any length. */
export function excerpt(text, length = 600) {
  const points = Array.from(text.slice(0, length * 2 + 2));
  return points.length > length ? `${points.slice(0, length).join("")}…` : points.join("");
}

/** Copies text; the clipboard's own interface exists on https and localhost only. */
export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = h("textarea", { class: "unseen", "aria-hidden": "true", tabindex: -1 });
  area.value = text;
  document.body.append(area);
  const before = document.activeElement;
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  before?.focus();
  if (!done) throw new Error("the browser did not copy");
}
