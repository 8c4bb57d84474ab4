// Where milliseconds went: one bar, and a legend that says the same in words.

import { h, ms } from "./dom.js";

export const STAGES = {
  fetch: "downloading pictures",
  decode: "decoding pictures",
  tokenize: "building the input",
  queue: "the way to the engine and back, and waiting there",
  engine: "the model",
  post: "arithmetic on its output",
  other: "gateway: validation, routing, JSON",
};

/** A bar of [[stage, milliseconds], …], of which `total` is everything, and its legend. */
export function stageBar(stages) {
  const total = stages.find(([stage]) => stage === "total")?.[1];
  const parts = stages.filter(([stage]) => stage in STAGES);
  const sum = parts.reduce((all, [, value]) => all + value, 0);
  if (total > sum) parts.push(["other", total - sum]);
  const whole = Math.max(total ?? 0, sum);
  if (!(whole > 0)) return h("p", { class: "hint" }, "No timings.");
  return h("div", { class: "timing" },
    h("div", { class: "bar", "aria-hidden": "true" }, parts.map(([stage, value]) =>
      h("i", { class: `s-${stage}`, title: `${stage}: ${ms(value)}`, vars: { "--w": value / whole } }))),
    h("ul", { class: "legend", "aria-label": "Time by stage" }, parts.map(([stage, value]) =>
      h("li", { title: STAGES[stage] }, h("i", { class: `s-${stage}`, "aria-hidden": "true" }), `${stage} `, h("b", {}, ms(value))))),
  );
}
