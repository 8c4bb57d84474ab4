// Answers and errors as elements. Every text of a caller or a server goes in as text.

import { copy, excerpt, h, ms, plural, score } from "./dom.js";
import { serverTiming } from "./api.js";
import { spanTable, marked } from "./spans.js";
import { stageBar } from "./timing.js";

/**
 * What was answered, for a request of `items` in the form `kind`.
 *
 * @param items [{text}] or [{image, src, name}], in the order they were sent
 */
export function answer(kind, response, items, command) {
  const { body, headers } = response;
  const parts = { rank: ranked, compare: compared, classify: classified, absa: spans }[kind](body, items);
  return [
    facts(response),
    ...parts,
    failed(body.errors, items),
    h("h3", {}, "Where the time went"),
    stageBar(serverTiming(headers.get("server-timing"))),
    h("p", { class: "hint" }, `${ms(response.ms)} from here and back, the network and this page included.`),
    ...sources(command, body),
  ];
}

/** One line that a screen reader is told. */
export function summary(kind, { body, headers }) {
  const total = serverTiming(headers.get("server-timing")).find(([stage]) => stage === "total")?.[1];
  const rows = body.results ?? body.data;
  const what = kind === "rank" ? plural(rows.length, "result") : plural(rows.length, "answer");
  const failures = body.errors?.length ? `, ${body.errors.length} failed` : "";
  return `${what}${failures}${total === undefined ? "" : ` in ${ms(total)}`}`;
}

/** An error of the API, or of the way to it. */
export function problem({ status, body, headers, ms: took }, command) {
  const error = body?.error ?? { message: body?.detail ?? "the server gave no reason" };
  const retry = headers?.get("retry-after");
  return [
    h("h3", {}, status ? `${status} · ${error.code ?? error.type ?? "error"}` : "No answer"),
    h("p", { class: "message" }, excerpt(String(error.message), 2000)),
    h("dl", { class: "facts" },
      fact("Field", error.param),
      fact("Try again", retry && `in ${plural(Number(retry), "second")}`),
      fact("Request", headers?.get("x-request-id")),
      fact("After", took !== undefined && ms(took))),
    ...(command ? [h("details", {}, h("summary", {}, "Request as curl"), code(command, "Copy the command"))] : []),
  ];
}

const fact = (name, value) => value && h("div", {}, h("dt", {}, name), h("dd", {}, value));

function facts({ body, headers }) {
  const ignored = headers.get("x-ignored-fields");
  return h("dl", { class: "facts" },
    fact("Served by", `${body.model}@${body.model_version}`),
    fact("Tokens", body.usage && String(body.usage.total_tokens)),
    fact("Request", headers.get("x-request-id")),
    fact("Without effect", ignored));
}

function sources(command, body) {
  const json = JSON.stringify(body, (name, value) => (name === "embedding" && value ? [...value.slice(0, 4), "…"] : value), 1);
  return [
    h("details", { id: "curl", open: true }, h("summary", {}, "Request as curl"), code(command, "Copy the command")),
    h("details", {}, h("summary", {}, "Answer as JSON"), code(excerpt(json, 20000), "Copy the answer")),
  ];
}

function code(text, label) {
  const said = h("span", { role: "status", class: "hint" });
  const button = h("button", {
    type: "button",
    class: "small",
    onclick: async () => {
      try {
        await copy(text);
        said.textContent = "Copied.";
      } catch {
        said.textContent = "The browser refused; select the text instead.";
      }
    },
  }, label);
  const long = text.length > 4000;
  return h("div", { class: "code" },
    h("pre", { tabindex: 0, role: "region", "aria-label": label.replace("Copy the ", "") }, long ? `${text.slice(0, 4000)}…` : text),
    h("p", { class: "line" }, button, said, long && h("span", { class: "hint" }, "Shortened here; the button copies all.")));
}

// --- what was sent ---------------------------------------------------------------------------------------------------

/** One input, and below it, or beside the picture, a note. */
function shown(item, ...note) {
  if (item?.image !== undefined) {
    const name = h("span", { class: "name", title: excerpt(item.name) }, excerpt(item.name, 90));
    return h("span", { class: "picture" }, thumbnail(item), h("span", { class: "what" }, name, ...note));
  }
  const blank = !item?.text.trim();
  return h("span", { class: "what" }, h("span", { class: blank ? "text hint" : "text", dir: "auto" }, blank ? "(blank)" : excerpt(item.text)), ...note);
}

function thumbnail(item) {
  const image = h("img", { src: item.src, alt: "", loading: "lazy", referrerpolicy: "no-referrer" });
  image.addEventListener("error", () => image.replaceWith(h("span", { class: "lost" }, "no preview")));
  return image;
}

const cut = (row) => row.truncated && h("span", { class: "badge", title: "Too long for the model: its end was not read" }, "cut");

function failed(errors, items) {
  if (!errors?.length) return null;
  return h("section", { class: "failed", "aria-label": "Failed inputs" },
    h("h3", {}, `${plural(errors.length, "input")} failed`),
    h("ul", {}, errors.map((error) => h("li", {},
      shown(items[error.index], h("span", {}, h("b", {}, `No. ${error.index + 1} · ${error.code}`), ` ${excerpt(String(error.message))}`))))));
}

// --- one form each ---------------------------------------------------------------------------------------------------

function ranked({ results }, items) {
  const scores = results.map((row) => row.relevance_score);
  const [low, high] = [Math.min(...scores), Math.max(...scores)];
  // Scores between 0 and 1 stand for themselves; others (logits, cosines) are drawn between the least and the best.
  const own = low >= 0 && high <= 1;
  const width = (value) => (own ? value : high === low ? 1 : 0.02 + (0.98 * (value - low)) / (high - low));
  return [h("ol", { class: "ranked", "aria-label": "Ranked documents" }, results.map((row) => h("li", {},
    shown(items[row.index], h("span", { class: "hint" }, `no. ${row.index + 1} of the request `, cut(row))),
    h("div", { class: "score" },
      h("b", {}, score(row.relevance_score)),
      h("span", { class: "bar", "aria-hidden": "true" }, h("i", { vars: { "--w": width(row.relevance_score) } }))))))];
}

function classified({ data, labels }, items) {
  const [low, high] = [Math.min(...data.flatMap((row) => row.probs)), Math.max(...data.flatMap((row) => row.probs))];
  const own = low >= 0 && high <= 1;
  const bars = (row) => row.probs.map((value, column) => [labels[column], value]).sort((a, b) => b[1] - a[1]);
  const list = (pairs) => h("ul", { class: "labels" }, pairs.map(([label, value]) => h("li", {},
    h("span", {}, label),
    h("span", { class: "bar", "aria-hidden": "true" }, h("i", { vars: { "--w": own ? value : (value - low) / (high - low || 1) } })),
    h("b", {}, score(value)))));
  return [h("ol", { class: "cards" }, data.map((row) => {
    const pairs = bars(row);
    return h("li", {},
      shown(items[row.index], cut(row)),
      list(pairs.slice(0, 5)),
      pairs.length > 5 && h("details", {}, h("summary", {}, `${pairs.length - 5} more`), list(pairs.slice(5))));
  }))];
}

function compared({ data }, items) {
  const good = data.filter((row) => row.embedding);
  const units = good.map(({ embedding }) => {
    const length = Math.hypot(...embedding) || 1;
    return embedding.map((value) => value / length);
  });
  const cosine = (a, b) => a.reduce((sum, value, index) => sum + value * b[index], 0);
  const most = 40;
  const few = units.slice(0, most);
  const number = (row) => `${row.index + 1}`;
  const heat = (value) => h("td", { vars: { "--v": Math.max(0, value).toFixed(3) } }, value.toFixed(3));
  return [
    h("p", { class: "hint" }, good.length ? `${plural(good[0].embedding.length, "component")} each. ` : "", good.length > most && `The first ${most} are shown.`),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Cosine of each pair of inputs" },
      h("table", { class: "matrix" },
        h("caption", { class: "unseen" }, "Cosine of each pair of inputs"),
        h("thead", {}, h("tr", {}, h("td", {}), good.slice(0, most).map((row) => h("th", { scope: "col" }, number(row))))),
        h("tbody", {}, few.map((unit, i) => h("tr", {}, h("th", { scope: "row" }, number(good[i])), few.map((other) => heat(cosine(unit, other)))))))),
    h("ol", { class: "inputs" }, data.map((row) => h("li", { value: row.index + 1 }, shown(items[row.index], cut(row))))),
  ];
}

function spans({ data }, items) {
  return [h("ol", { class: "cards" }, data.map((row) => h("li", {},
    h("p", { class: "marked", dir: "auto" }, marked(items[row.index].text, row.spans)),
    h("p", { class: "hint" },
      row.sentiment && `Whole text: ${row.sentiment.label} (${score(row.sentiment.score)}). `,
      `${plural(row.spans.length, "span")}. `, cut(row)),
    row.spans.length > 0 && spanTable(row))))];
}

