// A sentence of the reader's own, on the first page: it needs a model.

import {
  OWN,
  choice,
  el,
  load,
  loading,
  megabytes,
  newId,
} from "./common.js";
import { wordsIn, written } from "./covering.js";
import { fetched } from "./model.js";
import { chooser, offer } from "./own_model.js";
import { split } from "./split.js";

const LONGEST = 30; // tokens of a sentence of one's own

/** The form and its opener; `use(sentence)` shows what was asked for. */
export function ownSentence(use) {
  const models = new Map(); // by name, once they are loaded
  let index, kind;
  let turn = 0; // only what was asked for last is shown
  const id = newId("own");
  const input = el("input", {
    id,
    type: "text",
    autocomplete: "off",
    spellcheck: "false",
    maxlength: 200,
  });
  const go = el("button", { type: "submit", class: "live-main" });
  const note = el("p", {
    class: "live-note cover-note",
    "aria-live": "polite",
  });
  const form = el("form", {
    class: "cover-own",
    hidden: true,
    onsubmit: submit,
  });
  const opener = el(
    "button",
    {
      type: "button",
      "aria-expanded": "false",
      onclick: () => show(form.hidden),
    },
    "Your own sentence",
  );

  async function show(on) {
    form.hidden = !on;
    opener.setAttribute("aria-expanded", String(on));
    if (!on) return;
    try {
      await prepare();
      input.focus();
      form.scrollIntoView({ block: "nearest" }); // with its button
    } catch (error) {
      note.textContent = error.message;
    }
  }

  /** What models there are, and what they weigh. */
  async function prepare() {
    if (index) return;
    index = await load("index.json");
    const options = index.models
      .filter(({ title }) => title.startsWith("English"))
      .map((one) => [
        one.name,
        `${one.title.split(" ").at(-1)} (${one.corpus_title})`,
      ]);
    kind = choice("to", options, "tatoeba-en-de", label);
    const files = chooser(note, (model) => {
      offer(index, model);
      models.set(OWN, model);
      kind.options([...options, [OWN, "your own model"]], OWN);
      input.value = "";
      label();
      input.focus();
    });
    form.replaceChildren(
      el("label", { for: id }, "A sentence in English"),
      input,
      kind.node,
      go,
      el(
        "details",
        {},
        el("summary", {}, "With a model of your own"),
        files,
      ),
    );
    label();
  }
  const about = (name) => index.models.find((one) => one.name === name);
  const label = () =>
    (go.textContent = models.has(kind.value)
      ? "Translate"
      : `Load the model (${megabytes(about(kind.value).bytes)})`);

  async function submit(event) {
    event.preventDefault();
    const text = input.value.trim();
    if (!text) {
      note.textContent = "Write a sentence first.";
      return;
    }
    const mine = ++turn;
    try {
      const made = await make(text, kind.value);
      if (mine === turn) await use(made);
    } catch (error) {
      note.textContent = error.message;
    }
  }

  /** A sentence of the reader's, and what its model makes of it. */
  async function make(text, name) {
    await prepare();
    const known = about(name);
    if (!known) throw new Error("This site has no model of that name.");
    if (!models.has(name)) {
      const told = (share) => (note.textContent = loading(share, known));
      models.set(name, await fetched(known, told));
      label();
    }
    note.textContent = "";
    const model = models.get(name);
    const [first, ...more] = split(text, known.languages[0]);
    if (more.length)
      note.textContent =
        "One sentence has room here, so this is the first. The translator " +
        "below takes them all.";
    text = first;
    const ids = model.tokenizer.encode(text);
    if (ids.length - 1 > LONGEST)
      throw new Error(
        `That is too long for this frame: it takes up to ${LONGEST} tokens.`,
      );
    return {
      text,
      model: name,
      codes: known.languages,
      words: wordsIn(model.tokenizer, ids),
      states: [await written(model, text, [])],
    };
  }

  return {
    opener,
    node: el("div", {}, note, form),
    make,
    loaded: (one) => models.has(one.model),
    write: (one, covered) => written(models.get(one.model), one.text, covered),
    /** The form is there while a sentence of the reader's is shown. */
    follow(one, recorded) {
      turn++;
      if (recorded) note.textContent = "";
      opener.setAttribute("aria-pressed", String(!recorded));
      if (recorded) return;
      input.value = one.text;
      kind.value = one.model;
      label();
      form.hidden = false;
      opener.setAttribute("aria-expanded", "true");
    },
  };
}
