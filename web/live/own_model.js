// A model of the reader's own: its three files, chosen or dropped.

import { OWN, el, newId } from "./common.js";
import { FILES, read } from "./model.js";

/** A model from its files, by their names. */
async function readFiles(files) {
  const found = {};
  for (const file of files)
    if (FILES.includes(file.name)) found[file.name] = await file.arrayBuffer();
  return read(found);
}

/** The files that were dropped; of a folder, those in it. */
async function dropped({ items, files }) {
  const entries = [...items].map((item) => item.webkitGetAsEntry());
  const [folder] = entries.filter((entry) => entry?.isDirectory);
  if (!folder) return [...files];
  const reader = folder.createReader();
  const read = () =>
    new Promise((done, failed) => reader.readEntries(done, failed));
  const listed = [];
  for (let some = await read(); some.length; some = await read())
    listed.push(...some.filter((entry) => entry.isFile));
  return Promise.all(
    listed.map((one) => new Promise((done, failed) => one.file(done, failed))),
  );
}

/** What index.json says of a shipped model, of this one. */
export function describe({ sizes, info, languages }) {
  return {
    name: OWN,
    title: languages.every(Boolean) ? languages.join(" to ") : "",
    corpus_title: OWN,
    languages: info.languages ?? ["", ""],
    N: sizes.N,
    h: sizes.h,
    examples: [],
    words: null,
    bytes: 0,
  };
}

/** Let a part's models end with this one, in place of another. */
export function offer(index, model) {
  index.models = index.models.filter(({ name }) => name !== OWN);
  index.models.push(describe(model));
}

/** What a model made of a text, as a sentence. */
export const becomes = (text, said) =>
  `“${text}” becomes “${said}”${/[.?!…]$/.test(said) ? "" : "."}`;

/** Where the files go, as nodes; `use(model)` gets what they are.
 *
 * What does not fit is said in words, in `note`. Files may be dropped
 * anywhere on the part that has these nodes.
 */
export function chooser(note, use) {
  const id = newId("files");
  async function take(chosen) {
    note.textContent = "Reading the model …";
    try {
      const model = await readFiles(await chosen);
      const { N, d_model, h } = model.sizes;
      const known = model.languages.every(Boolean)
        ? `, from ${model.languages.join(" to ")}`
        : "";
      note.textContent =
        `Your model: N=${N}, d_model=${d_model}, h=${h}${known}. ` +
        "Write a sentence in its language.";
      use(model);
    } catch (error) {
      note.textContent = error.message;
    }
  }
  const input = el("input", {
    id,
    type: "file",
    multiple: true,
    onclick: () => (input.value = ""), // the same files may be given again
    onchange: () => take([...input.files]),
  });
  const label = el(
    "label",
    { for: id },
    "A model of your own: choose its model.safetensors, config.json and " +
      "tokenizer.json, or drop them here. They stay on your machine.",
  );
  const here = ({ target, dataTransfer }) =>
    dataTransfer.types.includes("Files") &&
    input.closest("[data-live]")?.contains(target);
  document.addEventListener("dragover", (event) => {
    if (here(event)) event.preventDefault();
  });
  document.addEventListener("drop", (event) => {
    if (!here(event)) return;
    event.preventDefault();
    const fold = input.closest("details");
    if (fold) fold.open = true;
    take(dropped(event.dataTransfer));
  });
  return [label, input];
}

/** A folded form: a model of the reader's own, and a sentence for it.
 *
 * `look(model, text, note)` shows what comes of them, and returns what is
 * then said; what it throws is said in its place. `verb` is the button's.
 * With `usual(note)`, which gets a model, a sentence alone is enough.
 */
export function ownSentence(verb, look, usual = null) {
  let model = null;
  const note = el("p", { class: "live-note", role: "status" });
  const id = newId("own");
  const input = el("input", { id, type: "text", maxlength: 200 });
  const ask = el(
    "div",
    { hidden: !usual },
    el("label", { for: id }, usual ? "Another sentence" : "A sentence for it"),
    input,
    el("button", { type: "submit", class: "live-main" }, verb),
  );
  const files = chooser(note, (read) => {
    model = read;
    ask.hidden = false;
    input.focus();
  });
  let busy = false;
  let again = false; // something else was asked for meanwhile
  async function submit(event) {
    event.preventDefault();
    again = true;
    if (busy) return;
    busy = true;
    while (again) {
      again = false;
      try {
        model ??= await usual(note);
        note.textContent = "Translating …";
        note.textContent = await look(model, input.value, note);
      } catch (error) {
        note.textContent = error.message;
      }
    }
    busy = false;
  }
  const called = "a model of your own";
  const asked = usual ? [ask, ...files] : [...files, ask];
  return el(
    "details",
    { class: "live-numbers" },
    el("summary", {}, usual ? `Another sentence, or ${called}` : `With ${called}`),
    el("form", { class: "live-form", onsubmit: submit }, asked),
    note,
  );
}
