// The live view: readings of /metrics and /v1/models every two seconds, while it is looked at.

import { metrics, models } from "./api.js";
import { $, amount, h, ms, plural, svg, table } from "./dom.js";
import { gained, mean, parse, quantile, samples, sum } from "./prometheus.js";
import { STAGES, stageBar } from "./timing.js";

const EVERY_MS = 2000;
const WINDOW_MS = 30000;
const HISTORY = 60;
const RAY = new Set(["ray_serve_deployment_queued_queries", "ray_serve_replica_processing_queries"]);
const wanted = (name) => name.startsWith("poolserve_") || RAY.has(name);
const MIB = 2 ** 20;

const readings = []; // [{at, page}], the newest last
const history = new Map(); // tile → its last values
let timer = 0;
let paused = false;
let running = null;

export function start() {
  if (!running) tick();
}

export function stop() {
  clearTimeout(timer);
  running?.abort();
  running = null;
}

export function init() {
  $("pause").addEventListener("click", () => {
    paused = !paused;
    $("pause").setAttribute("aria-pressed", String(paused));
    if (paused) stop();
    else start();
    if (paused) $("live-status").textContent = "Paused.";
  });
  document.addEventListener("visibilitychange", () => {
    if ($("live").hidden || paused) return;
    if (document.hidden) stop();
    else start();
  });
}

async function tick() {
  const mine = new AbortController();
  running = mine;
  let [page, listed, said] = [null, [], ""];
  try {
    listed = await models(mine.signal);
    const text = await metrics(mine.signal).catch((error) => {
      if (error.name === "AbortError") throw error;
      said = error.status === 401 ? "/metrics wants a key: enter it under “Try it”." : `No reading of /metrics: ${error.message}.`;
      return undefined;
    });
    if (text === null) said = "This server has no /metrics: only what /v1/models says is shown.";
    else if (text) page = parse(text, wanted);
  } catch (error) {
    if (mine.signal.aborted) return;
    said = error.status === 401 ? "The server wants a key: enter it under “Try it”." : `The server does not answer: ${error.message}.`;
  }
  if (mine.signal.aborted) return;
  if (page) {
    readings.push({ at: performance.now(), page });
    while (readings.length > 2 && readings.at(-1).at - readings[1].at > WINDOW_MS) readings.shift();
  }
  $("live-status").textContent = said || `Read every ${EVERY_MS / 1000} s. Rates and times are of the last ${WINDOW_MS / 1000} s.`;
  draw(page, listed);
  timer = setTimeout(tick, EVERY_MS);
}

function draw(page, listed) {
  const before = readings.length > 1 ? readings[0] : null;
  const seconds = before ? (readings.at(-1).at - before.at) / 1000 : NaN;
  const view = page && { before: before?.page, now: page, seconds };
  const kept = document.activeElement?.closest?.("#live-body [aria-label]")?.getAttribute("aria-label");
  $("live-body").replaceChildren(...[
    view && tiles(view),
    view && stages(view, listed),
    versions(view, listed),
    view && engines(view),
    view && queues(view),
    view && replicas(view),
    view && gpus(view),
  ].filter(Boolean));
  // A redrawn table keeps the keyboard's place.
  if (kept) [...$("live-body").querySelectorAll("[aria-label]")].find((node) => node.getAttribute("aria-label") === kept)?.focus();
}

const rate = (view, name, where) => (view.before ? gained(view.before, view.now, name, where) / view.seconds : NaN);
const card = (title, ...content) => h("section", { class: "card" }, h("h2", {}, title), ...content);

// --- tiles -----------------------------------------------------------------------------------------------------------

function tiles(view) {
  const answered = { status_class: "2xx" };
  const latency = (q) => 1000 * quantile(view.before ?? null, view.now, "poolserve_request_seconds", q, answered);
  const list = [
    ["Requests / s", rate(view, "poolserve_requests_total"), amount],
    ["Documents / s", rate(view, "poolserve_documents_total"), amount],
    ["Tokens / s", rate(view, "poolserve_tokens_total"), amount],
    ["p50", view.before ? latency(0.5) : NaN, ms],
    ["p95", view.before ? latency(0.95) : NaN, ms],
    ["In flight", sum(view.now, "poolserve_documents_in_flight") ?? 0, amount],
    ["Rejected / s", rate(view, "poolserve_rejected_total"), amount],
    ["Faults (5xx) / s", rate(view, "poolserve_requests_total", { status: /^5/ }), amount],
  ];
  return h("ul", { class: "tiles", "aria-label": "Now" }, list.map(([name, value, words]) => {
    const past = history.get(name) ?? [];
    past.push(value);
    if (past.length > HISTORY) past.shift();
    history.set(name, past);
    return h("li", {}, h("span", { class: "hint" }, name), h("b", {}, words(value)), spark(past));
  }));
}

function spark(values) {
  const finite = values.filter(Number.isFinite);
  const top = Math.max(...finite, 1e-9);
  const points = values.map((value, index) => Number.isFinite(value) && `${100 - (values.length - 1 - index) * (100 / (HISTORY - 1))},${23 - (21 * value) / top}`).filter(Boolean);
  return svg("svg", { viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("polyline", { points: points.join(" ") }));
}

// --- models ----------------------------------------------------------------------------------------------------------

const targets = (listed) => listed.flatMap(({ name, versions: all }) => all.map((row) => ({ ...row, model: name })));

function stages(view, listed) {
  const cards = targets(listed).map(({ model, version }) => {
    const where = (stage) => ({ model, version, stage });
    let before = view.before;
    let of = "";
    const name = "poolserve_stage_seconds";
    if (!before || !gained(before, view.now, `${name}_count`, where("total"))) [before, of] = [null, " since the start"];
    const count = gained(before, view.now, `${name}_count`, where("total"));
    if (!count) return null;
    const seen = (stage) => gained(before, view.now, `${name}_sum`, where(stage));
    // Stages that not every request has count as zero where they are missing, so that the bar adds up.
    const row = ["total", ...Object.keys(STAGES)].map((stage) => [stage, (1000 * seen(stage)) / count]).filter(([, value]) => value > 0);
    const p95 = Object.keys(STAGES).concat("total").map((stage) => [stage, 1000 * mean(before, view.now, name, where(stage)), 1000 * quantile(before, view.now, name, 0.95, where(stage))]);
    return h("article", {},
      h("h3", {}, `${model}@${version}`, h("span", { class: "hint" }, ` ${plural(Math.round(count), "request")}${of}`)),
      stageBar(row),
      h("details", { id: `stages-${model}-${version}` }, h("summary", {}, "Means and p95"),
        table(`Stages of ${model}@${version}`, ["Stage", "Mean", "p95"], p95.filter(([, value]) => Number.isFinite(value)).map(([stage, a, b]) => [stage, ms(a), ms(b)]))));
  });
  const full = cards.filter(Boolean);
  keepOpen(full);
  return full.length ? card("Where the time goes", h("div", { class: "grid" }, full)) : card("Where the time goes", h("p", { class: "hint" }, "No request yet."));
}

/** Opened details stay open when the view is drawn again. */
function keepOpen(nodes) {
  for (const node of nodes) {
    const details = node.querySelector("details");
    if (details && document.getElementById(details.id)?.open) details.open = true;
  }
}

function versions(view, listed) {
  const state = (row) => h("span", { class: `state ${row.state === "ready" ? "good" : row.state === "unknown" ? "plain" : "bad"}` }, row.state);
  const head = ["Model", "Version", "Task", "Weight", "State", ...(view ? ["Requests / s", "p95", "In flight"] : [])];
  const rows = targets(listed).map((row) => {
    const where = { model: row.model, version: row.version };
    const measured = view ? [
      amount(rate(view, "poolserve_requests_total", where)),
      view.before ? ms(1000 * quantile(view.before, view.now, "poolserve_request_seconds", 0.95, { ...where, status_class: "2xx" })) : "–",
      amount(sum(view.now, "poolserve_documents_in_flight", where) ?? 0),
    ] : [];
    return [row.model, row.version, row.task, amount(row.weight), state(row), ...measured];
  });
  return card("Models", rows.length ? table("Models and versions", head, rows) : h("p", { class: "hint" }, "None."));
}

// --- replicas --------------------------------------------------------------------------------------------------------

const meter = (value, limit, words = amount) => {
  if (value === undefined || !(limit > 0)) return value === undefined ? "–" : words(value);
  return h("span", { class: "meter" },
    h("span", { class: "bar", "aria-hidden": "true" }, h("i", { vars: { "--w": Math.min(1, value / limit) } })), limit === 1 ? words(value) : `${words(value)} of ${words(limit)}`);
};

function engines(view) {
  const rows = samples(view.now, "poolserve_engine_documents_limit").map(({ labels, value: limit }) => {
    const where = { model: labels.model, version: labels.version, replica: labels.replica };
    const one = (name) => sum(view.now, `poolserve_${name}`, where);
    return [
      `${labels.model}@${labels.version}`, short(labels.replica),
      meter(one("engine_documents_in_flight"), limit), meter(one("engine_tokens_in_flight"), one("engine_tokens_limit")),
      meter(one("feature_slots_used"), one("feature_slots")),
    ];
  });
  return rows.length ? card("Engines", table("Engines and what they hold", ["Model", "Replica", "Documents in flight", "Tokens in flight", "Pictures kept"], rows)) : null;
}

function queues(view) {
  const key = ({ labels }) => `${labels.application} ${labels.deployment}`;
  const all = new Map();
  for (const name of RAY) for (const row of samples(view.now, name)) {
    const entry = all.get(key(row)) ?? { ...row.labels, ray_serve_deployment_queued_queries: 0, ray_serve_replica_processing_queries: 0 };
    entry[name] += row.value;
    all.set(key(row), entry);
  }
  const rows = [...all.values()].sort((a, b) => key({ labels: a }).localeCompare(key({ labels: b })))
    .map((row) => [row.application, row.deployment, amount(row.ray_serve_deployment_queued_queries), amount(row.ray_serve_replica_processing_queries)]);
  return rows.length ? card("Queues", table("Calls that wait and run, as Ray Serve counts them", ["Application", "Deployment", "Waiting", "Running"], rows)) : null;
}

function replicas(view) {
  const now = Date.now() / 1000;
  const rows = samples(view.now, "poolserve_replica_up").map(({ labels }) => {
    const where = { replica: labels.replica, deployment: labels.deployment };
    const memory = sum(view.now, "poolserve_replica_memory_bytes", where);
    const since = sum(view.now, "poolserve_replica_start_time_seconds", where);
    const cpu = rate(view, "poolserve_replica_cpu_seconds_total", where);
    return [labels.deployment, labels.model ? `${labels.model}@${labels.version}` : "–", short(labels.replica), since ? age(now - since) : "–", memory ? `${amount(memory / MIB)} MiB` : "–", Number.isFinite(cpu) ? `${(100 * cpu).toFixed(0)} %` : "–"];
  });
  rows.sort((a, b) => `${a[0]}${a[1]}`.localeCompare(`${b[0]}${b[1]}`));
  return rows.length ? card(plural(rows.length, "replica"), table("Replicas", ["Deployment", "Model", "Replica", "Up for", "Memory", "CPU"], rows)) : null;
}

const short = (replica) => (replica ?? "").split("#").at(-1).slice(-12);

function age(seconds) {
  if (seconds < 120) return `${Math.max(0, Math.round(seconds))} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function gpus(view) {
  const rows = samples(view.now, "poolserve_gpu_memory_total_bytes").map(({ labels, value: total }) => {
    const one = (name) => sum(view.now, `poolserve_gpu_${name}`, { uuid: labels.uuid });
    const gib = (bytes) => `${(bytes / 2 ** 30).toFixed(1)} GiB`;
    return [
      labels.node, labels.gpu, meter(one("memory_used_bytes"), total, gib),
      meter(one("utilization_ratio"), 1, (value) => `${Math.round(100 * value)} %`),
      meter(one("power_watts"), one("power_limit_watts"), (value) => `${Math.round(value)} W`), `${one("temperature_celsius") ?? "–"} °C`,
    ];
  });
  return rows.length ? card("GPUs", table("GPUs", ["Node", "GPU", "Memory", "Busy", "Power", "Temperature"], rows)) : null;
}

