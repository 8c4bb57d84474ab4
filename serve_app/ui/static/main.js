// The page: the form's state, one request at a time, the tabs.

import { BASE, key, models, post, version } from "./api.js";
import { curl, mark } from "./curl.js";
import { $, h, show } from "./dom.js";
import * as live from "./live.js";
import * as pictures from "./pictures.js";
import { answer, problem, summary } from "./results.js";
import { EXAMPLES, TASKS, mode, request } from "./tasks.js";

let catalogue = [];
let sending = null;
let connecting = null;
let filling = null;

const radio = (name) => document.querySelector(`input[name=${name}]:checked`).value;
const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
const model = () => catalogue.find(({ name }) => name === $("model").value);
const number = (id) => ($(id).value === "" ? null : Number($(id).value));

function task() {
  const rows = model()?.versions ?? [];
  return (rows.find((row) => row.version === $("version").value) ?? rows[0])?.task;
}

// --- the form --------------------------------------------------------------------------------------------------------

async function loadModels() {
  const chosen = $("model").value;
  catalogue = await models();
  $("model").replaceChildren(...catalogue.map(({ name, versions }) => h("option", { value: name }, `${name} · ${versions[0].task}`)));
  if (catalogue.some(({ name }) => name === chosen)) $("model").value = chosen;
  showVersions();
}

function showVersions() {
  const rows = model()?.versions ?? [];
  const word = ({ version: name, state, weight }) => `${name} · ${state}${rows.length > 1 ? ` · weight ${weight}` : ""}`;
  $("version").replaceChildren(
    h("option", { value: "" }, "by the routing table"),
    ...rows.map((row) => h("option", { value: row.version }, word(row))));
  showForm();
}

/** Shows the fields that the model's task has. */
function showForm() {
  const has = TASKS[task()];
  const kind = mode(task(), radio("what"));
  show($("what-field"), Boolean(has?.compares));
  show($("kind-field"), has?.kinds.length > 1);
  if (has?.kinds.length === 1) document.querySelector(`input[name=kind][value=${has.kinds[0]}]`).checked = true;
  const images = radio("kind") === "images";
  show($("query-field"), kind === "rank");
  show($("texts-field"), !images);
  show($("images-field"), images);
  show($("absa-field"), kind === "absa");
  show($("top-field"), kind === "rank");
  show($("raw-field"), kind === "rank" || kind === "classify");
  $("kind-legend").textContent = kind === "rank" ? "Documents" : "Inputs";
  $("texts-label").textContent = kind === "rank" ? "Documents" : "Texts";
  $("about").textContent = catalogue.length ? (has?.about ?? `No form for the task ${task()}.`) : "No model is in the routing table.";
  const apart = $("apart").checked;
  show($("texts"), !apart);
  show($("texts-hint"), !apart);
  show($("fields"), apart);
  $("run").disabled = !has;
}

function addField(text = "") {
  const area = h("textarea", { rows: 2, spellcheck: "false" });
  area.value = text;
  const item = h("li", {}, area, h("button", { type: "button", class: "small", onclick: () => { item.remove(); numberFields(); $("add").focus(); } }, "✕"));
  $("field-list").append(item);
  numberFields();
  return area;
}

function numberFields() {
  [...$("field-list").children].forEach((item, index) => {
    item.querySelector("textarea").setAttribute("aria-label", `Text ${index + 1}`);
    item.querySelector("button").setAttribute("aria-label", `Remove text ${index + 1}`);
  });
}

function switchFields() {
  if ($("apart").checked) {
    const texts = lines($("texts").value);
    $("field-list").replaceChildren();
    for (const text of texts.length ? texts : [""]) addField(text);
  } else {
    $("texts").value = fieldTexts().map((text) => text.replace(/\s*\n\s*/g, " ")).join("\n");
  }
  showForm();
}

const fieldTexts = () => [...$("field-list").querySelectorAll("textarea")].map((area) => area.value);

/** What is ranked or read: [{text}] or [{image, src, name, file}]. */
async function items() {
  if (radio("kind") === "texts") {
    return ($("apart").checked ? fieldTexts() : lines($("texts").value)).map((text) => ({ text }));
  }
  const urls = lines($("urls").value).map((url) => ({ image: url, src: url, name: url }));
  const files = await Promise.all(pictures.files().map(async (file) => (
    { image: await file.base64, src: file.url, name: file.name, file: true })));
  return [...urls, ...files];
}

/** The example's pictures are drawn first; a request that is sent meanwhile waits for them. */
function example() {
  filling = fill();
}

async function fill() {
  const kind = mode(task(), radio("what"));
  const images = radio("kind") === "images";
  const given = images && kind === "rank" ? EXAMPLES.pictures : EXAMPLES[kind];
  if (given.query) $("query").value = given.query;
  if (images) {
    $("urls").value = "";
    pictures.clear();
    await pictures.add(await pictures.drawn());
  } else {
    $("texts").value = given.texts.join("\n");
    if ($("apart").checked) switchFields();
  }
  $("status").textContent = "An example is filled in.";
}

// --- one request -----------------------------------------------------------------------------------------------------

async function send() {
  if (sending) return;
  if (!catalogue.length) return connect();
  if ($("run").disabled) return;
  sending = new AbortController();
  busy(true);
  let command;
  let response;
  try {
    key.set($("key").value);
    await filling;
    const kind = mode(task(), radio("what"));
    const sent = await items();
    const form = {
      model: $("version").value ? `${$("model").value}@${$("version").value}` : $("model").value,
      query: $("query").value,
      top: number("top"),
      raw: $("raw").checked,
      refuse: $("truncate").value === "no",
      aspects: $("aspects").value.split(",").map((name) => name.trim()).filter(Boolean),
      threshold: number("threshold"),
    };
    const wire = sent.map(({ text, image }) => (image === undefined ? text : { image }));
    const { path, body } = request(kind, form, wire);
    const timeout = number("timeout");
    command = commandFor(path, kind, form, sent, timeout);
    response = await post(path, body, timeout, sending.signal);
    if (response.status === 401) askForKey();
    if (response.status === 200 && !response.body.error) showAnswer(kind, response, sent, command);
    else showProblem(response, command);
  } catch (error) {
    const why = response ? "The answer could not be shown" : "The server could not be reached";
    const message = sending.signal.aborted ? "Stopped; the server drops the work." : `${why}: ${error.message}`;
    showProblem({ status: 0, body: { error: { message } } }, command);
  } finally {
    sending = null;
    busy(false);
    // Below each other on narrow screens: what was asked for comes into sight.
    if ($("answer").offsetLeft === $("form").offsetLeft) $("answer").scrollIntoView();
  }
}

function commandFor(path, kind, form, sent, timeout) {
  const files = [];
  const wire = sent.map(({ text, image, file, name }, index) => {
    if (image === undefined) return text;
    if (!file) return { image };
    files.push({ mark: mark(index), name });
    return { image: files.at(-1).mark };
  });
  const { body } = request(kind, form, wire);
  return curl(new URL(path, BASE).href, body, { timeout, withKey: Boolean(key.get()), files });
}

function busy(yes) {
  const focused = document.activeElement;
  $("run").setAttribute("aria-disabled", String(yes));
  show($("stop"), yes);
  $("answer").setAttribute("aria-busy", String(yes));
  if (yes) {
    $("status").textContent = "Running…";
    $("error").replaceChildren();
    for (const field of document.querySelectorAll("[aria-invalid]")) {
      field.removeAttribute("aria-invalid");
      field.removeAttribute("aria-errormessage");
    }
  } else if (focused === $("stop")) $("run").focus();
}

function showAnswer(kind, response, sent, command) {
  $("error").replaceChildren();
  $("result").replaceChildren(...answer(kind, response, sent, command).filter(Boolean));
  $("status").textContent = summary(kind, response);
}

function showProblem(response, command) {
  $("status").textContent = "";
  $("result").replaceChildren();
  $("error").replaceChildren(h("div", { class: "problem" }, ...problem(response, command)));
  const field = fieldOf(response.body?.error?.param);
  field?.setAttribute("aria-invalid", "true");
  field?.setAttribute("aria-errormessage", "error");
}

/** The form's field that an error names. */
function fieldOf(param) {
  if (!param) return null;
  const [, name, index] = /^(\w+)(?:\[(\d+)\])?/.exec(param) ?? [];
  const plain = { query: "query", model: "model", top_n: "top", aspects: "aspects", threshold: "threshold", truncate: "truncate" }[name];
  if (plain) return $(plain);
  if (param === "X-Request-Timeout-Ms") return $("timeout");
  if (!["documents", "input", "inputs"].includes(name)) return null;
  if (radio("kind") === "images") return $("urls");
  return $("apart").checked ? $("field-list").querySelectorAll("textarea")[Number(index ?? 0)] : $("texts");
}

function askForKey() {
  show($("key-field"), true);
  $("key").focus();
}

/** Models and versions; where the server wants a key, asked again once there is one. */
const connect = () => (connecting ??= load().finally(() => { connecting = null; }));

async function load() {
  key.set($("key").value);
  try {
    await loadModels();
    const { poolserve, vllm } = await version();
    $("server").textContent = `${poolserve}${vllm ? ` · vLLM ${vllm}` : ""}`;
    $("error").replaceChildren();
    $("status").textContent = "Nothing was asked yet.";
  } catch (error) {
    if (error.status === 401) {
      showProblem({ status: 401, body: { error: { message: "This server wants a key.", code: "unauthenticated" } } });
      askForKey();
    } else showProblem({ status: 0, body: { error: { message: `The server could not be reached: ${error.message}` } } });
  }
}

// --- tabs ------------------------------------------------------------------------------------------------------------

const TABS = ["try", "live"];

function select(name, focus) {
  for (const tab of TABS) {
    const chosen = tab === name;
    $(`tab-${tab}`).setAttribute("aria-selected", String(chosen));
    $(`tab-${tab}`).tabIndex = chosen ? 0 : -1;
    show($(tab), chosen);
  }
  if (focus) $(`tab-${name}`).focus();
  history.replaceState(null, "", name === "try" ? location.pathname : `#${name}`);
  if (name === "live") live.start();
  else live.stop();
}

function tabs() {
  TABS.forEach((name, index) => {
    $(`tab-${name}`).addEventListener("click", () => select(name, false));
    $(`tab-${name}`).addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const to = step ? (index + step + TABS.length) % TABS.length : { Home: 0, End: TABS.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      select(TABS[to], true);
    });
  });
}

// --- start -----------------------------------------------------------------------------------------------------------

async function start() {
  tabs();
  live.init();
  pictures.watch(() => {});
  if (key.get()) {
    $("key").value = key.get();
    show($("key-field"), true);
  }
  $("form").addEventListener("submit", (event) => { event.preventDefault(); send(); });
  $("form").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); send(); }
  });
  $("model").addEventListener("change", showVersions);
  for (const field of [$("version"), ...document.querySelectorAll("input[type=radio]")]) field.addEventListener("change", showForm);
  $("apart").addEventListener("change", switchFields);
  $("add").addEventListener("click", () => addField().focus());
  $("example").addEventListener("click", example);
  $("stop").addEventListener("click", () => sending?.abort());
  $("key").addEventListener("change", () => (catalogue.length ? key.set($("key").value) : connect()));
  if (location.hash === "#live") select("live", false);
  await connect();
  document.documentElement.dataset.ready = "yes";
}

start();
