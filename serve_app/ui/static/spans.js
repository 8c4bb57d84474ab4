// Spans of a text. The API counts code points, JavaScript UTF-16 units: an emoji is one there and two here.

import { h, score, table } from "./dom.js";

const SIGNS = { good: "▲", bad: "▼", mixed: "◆", plain: "●" };

/** good, bad, mixed or plain, for the names that checkpoints use. */
export function tone(polarity) {
  const word = String(polarity).toLowerCase();
  if (/^(very )?posi|^pos$|긍정|正|积极/.test(word) && !/负|負/.test(word)) return "good";
  if (/^(very )?nega|^neg$|부정|负|負|消极/.test(word)) return "bad";
  return /conflict|mixed|혼합/.test(word) ? "mixed" : "plain";
}

/**
 * A text cut at its spans' ends.
 *
 * @returns [{text, spans}] that make up the text; spans may overlap.
 */
export function pieces(text, spans) {
  const points = Array.from(text);
  const filled = spans.filter((span) => span.end > span.start);
  const ends = new Set([0, points.length, ...filled.flatMap((span) => [span.start, span.end])]);
  const cuts = [...ends].filter((at) => at <= points.length).sort((a, b) => a - b);
  return cuts.slice(0, -1).map((from, index) => ({
    text: points.slice(from, cuts[index + 1]).join(""),
    spans: filled.filter((span) => span.start <= from && span.end >= cuts[index + 1]),
  }));
}

/** The text as nodes: what spans cover is marked, and where a span ends stands what it says. */
export function marked(text, spans) {
  let at = 0;
  return pieces(text, spans).flatMap((piece) => {
    at += Array.from(piece.text).length;
    if (!piece.spans.length) return [piece.text];
    const first = piece.spans[0];
    const title = piece.spans.map((span) => `${span.aspect ?? "no aspect"}: ${span.polarity} (${score(span.score)})`).join(" · ");
    const mark = h("mark", { class: `${tone(first.polarity)}${piece.spans.length > 1 ? " several" : ""}`, title }, piece.text);
    const ending = piece.spans.filter((span) => span.end === at);
    return [mark, ...ending.map((span) => h("span", { class: `tag ${tone(span.polarity)}`, "aria-hidden": "true" },
      `${SIGNS[tone(span.polarity)]} ${span.aspect ?? span.polarity}`))];
  });
}

export function spanTable(row) {
  return table(`Spans of text ${row.index + 1}`, ["Words", "Aspect", "Polarity", "Score", "Place"], row.spans.map((span) => [
    span.end > span.start ? span.text : "(not named)",
    span.aspect,
    h("span", { class: `tag ${tone(span.polarity)}` }, `${SIGNS[tone(span.polarity)]} ${span.polarity}`),
    score(span.score),
    `${span.start}–${span.end}`,
  ]));
}
