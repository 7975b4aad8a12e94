// A model of the reader's own: its three files, chosen or dropped.

import { el, newId } from "./common.js";

export const OWN = "your own";

/** A model from its files, by their names: one of microscope.js. */
export async function readFiles(files) {
  const { read } = await import("./microscope.js");
  const found = {};
  for (const file of files) found[file.name] = await file.arrayBuffer();
  return read(found);
}

/** What index.json says of a shipped model, of this one. */
export function describe({ config, info, languages }) {
  return {
    name: OWN,
    title: languages.join(" to "),
    corpus_title: OWN,
    languages: info.languages ?? ["", ""],
    N: config.N,
    h: config.h,
    examples: [],
    words: null,
    bytes: {},
  };
}

/** Let a part's models end with this one, in place of another. */
export function offer(index, model) {
  index.models = index.models.filter(({ name }) => name !== OWN);
  index.models.push(describe(model));
}

/** Where the files go: {nodes, drop}; `use(model)` gets what they are.
 *
 * What does not fit is said in words, in `note`. `drop` are listeners of
 * the box into which they may be dropped.
 */
export function chooser(note, use) {
  const id = newId("files");
  async function take(files) {
    note.textContent = "Reading the model …";
    try {
      const model = await readFiles(files);
      const { N, d_model, h } = model.config;
      const known = model.info.languages
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
    onchange: () => take(input.files),
  });
  const label = el(
    "label",
    { for: id },
    "A model of your own: choose its model.safetensors, config.json and " +
      "tokenizer.json, or drop them here. They stay on your machine.",
  );
  return {
    nodes: [label, input],
    drop: {
      ondragover: (event) => event.preventDefault(),
      ondrop: (event) => {
        event.preventDefault();
        take(event.dataTransfer.files);
      },
    },
  };
}

/** A folded form: a model of the reader's own, and a sentence for it.
 *
 * `look(model, text, note)` shows what comes of them, and returns what is
 * then said; what it throws is said in its place. `verb` is the button's.
 */
export function ownSentence(verb, look) {
  let model = null;
  const note = el("p", { class: "live-note", role: "status" });
  const id = newId("own");
  const input = el("input", { id, type: "text", maxlength: 200 });
  const ask = el(
    "div",
    { hidden: true },
    el("label", { for: id }, "A sentence for it"),
    input,
    el("button", { type: "submit", class: "live-main" }, verb),
  );
  const files = chooser(note, (read) => {
    model = read;
    ask.hidden = false;
    input.focus();
  });
  async function submit(event) {
    event.preventDefault();
    note.textContent = "Translating …";
    try {
      note.textContent = await look(model, input.value, note);
    } catch (error) {
      note.textContent = error.message;
    }
  }
  return el(
    "details",
    { class: "live-numbers", ...files.drop },
    el("summary", {}, "With a model of your own"),
    el("form", { class: "live-form", onsubmit: submit }, files.nodes, ask),
    note,
  );
}
