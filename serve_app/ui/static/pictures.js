// Chosen, dropped, pasted and drawn pictures: a list of {name, url, base64}.

import { $, h } from "./dom.js";

const chosen = [];
let changed = () => {};

export const files = () => chosen;

export function watch(listener) {
  changed = listener;
  const drop = $("drop");
  $("files").addEventListener("change", (event) => { add(event.target.files); event.target.value = ""; });
  drop.addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    add(event.dataTransfer.files);
  });
  document.addEventListener("paste", (event) => {
    if (!$("images-field").hidden && event.clipboardData.files.length) add(event.clipboardData.files);
  });
}

export function clear() {
  for (const picture of chosen.splice(0)) URL.revokeObjectURL(picture.url);
  render();
}

/** Adds files in their order; waits until all are read. */
export async function add(list) {
  const added = [...list].map((file) => ({ name: file.name, url: URL.createObjectURL(file), base64: read(file) }));
  chosen.push(...added);
  render();
  await Promise.allSettled(added.map((picture) => picture.base64));
}

function read(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(new Error(`${file.name}: could not be read`));
    reader.readAsDataURL(file);
  });
}

function render() {
  $("file-list").replaceChildren(...chosen.map((picture, index) => h("li", {},
    h("img", { src: picture.url, alt: "" }),
    h("span", { class: "name", title: picture.name }, picture.name),
    h("button", {
      type: "button",
      class: "small",
      "aria-label": `Remove ${picture.name}`,
      onclick: () => {
        URL.revokeObjectURL(picture.url);
        chosen.splice(index, 1);
        render();
        ($("file-list").querySelectorAll("button")[Math.min(index, chosen.length - 1)] ?? $("files")).focus();
      },
    }, "✕"))));
  changed();
}

/** Pictures of plain shapes, drawn here, for the example. */
export async function drawn() {
  const shapes = [["square", "blue"], ["circle", "red"], ["circle", "green"], ["triangle", "orange"]];
  return Promise.all(shapes.map(async ([shape, colour]) => {
    const canvas = h("canvas", { width: 128, height: 128 });
    const pen = canvas.getContext("2d");
    pen.fillStyle = "lightgrey";
    pen.fillRect(0, 0, 128, 128);
    pen.fillStyle = colour;
    pen.beginPath();
    if (shape === "square") pen.rect(34, 34, 60, 60);
    else if (shape === "circle") pen.arc(64, 64, 32, 0, 7);
    else { pen.moveTo(64, 30); pen.lineTo(98, 94); pen.lineTo(30, 94); }
    pen.fill();
    const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
    return new File([blob], `${colour}-${shape}.png`, { type: "image/png" });
  }));
}
