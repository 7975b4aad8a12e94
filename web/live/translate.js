// The page "Translate".

import {
  OWN,
  breathe,
  called,
  choice,
  decimal,
  el,
  inAddress,
  load,
  loading,
  megabytes,
  newId,
  scroller,
  slider,
  table,
  upTo,
} from "./common.js";
import { fetched } from "./model.js";
import { chooser, offer } from "./own_model.js";
import { split } from "./split.js";
import { CHOSEN, heaviest, readable, wordPicker } from "./words.js";

const LONGEST = 80; // tokens that the page takes
const LETTERS = 1000; // and letters, so that no text is cut for long
const MANY = 4; // a word cut into so many tokens is a rare one

const LANGUAGES = { en: "English", de: "German", es: "Spanish" };
const SMALL_WORDS = Object.fromEntries(
  // that a sentence has in one of the languages, and in no other
  Object.entries({
    en: "the is are and not i we you he she it my to with where what how of",
    de: "der das ist sind und nicht ich wir sie er mein zu mit wo wie ein eine",
    es: "el la los las un una y yo mi está dónde cómo qué le gusta gustan",
  }).map(([code, words]) => [code, new Set(words.split(" "))]),
);

export async function start(place) {
  const index = await load("index.json");
  const inLink = inAddress(place, "translate");
  const state = inLink.read();
  const named = () => index.models.map((one) => [one.name, called(one)]);
  const model = choice(
    "model",
    named(),
    state.model ?? place.dataset.part,
    () => chooseModel(),
  );
  const id = newId("text");
  const input = el("input", {
    id,
    type: "text",
    autocomplete: "off",
    spellcheck: "false",
    value: state.text ?? "",
    oninput: () => {
      turn++; // what is below, or on its way, is of other words
      clear();
    },
  });
  const label = el("label", { for: id });
  const beam = slider("beam size", { min: 1, max: 8, value: 4 }, retry);
  const alpha = slider(
    "length penalty α",
    { min: 0, max: 2, step: 0.1, value: 0.6 },
    retry,
  );
  const button = el("button", { type: "submit", class: "live-main" });
  const halt = el(
    "button",
    { type: "button", onclick: () => (stop = true) },
    "Stop",
  );
  const progress = el("progress", {
    max: 1,
    value: 0,
    "aria-label": "Loading the model",
  });
  const examples = el("p", { class: "live-buttons" });
  const said = el("p", { class: "live-result", role: "status" });
  const note = el("p", { class: "live-note" });
  const beams = scroller("The beam");
  const look = lookAround();
  const own = chooser(note, (read) => {
    offer(index, read);
    loaded.set(OWN, read);
    model.options(named(), OWN);
    const told = note.textContent;
    chooseModel();
    note.textContent = told;
    input.focus();
  });
  const form = el(
    "form",
    { class: "live-form", onsubmit: submit },
    model.node,
    label,
    input,
    examples,
    el("p", { class: "live-buttons" }, button, halt, progress),
  );
  const how = el("div", { class: "live-controls" }, beam.node, alpha.node);
  const files = el(
    "details",
    { class: "live-numbers" },
    el("summary", {}, "With a model of your own"),
    own,
  );
  place.replaceChildren(form, said, note, how, beams, look.node, files);
  const loaded = new Map();
  let busy = false;
  let stop = false;
  let again = false; // something else was asked for meanwhile
  let done = false; // whether a translation is shown
  let turn = 0; // one for each choice of a model, and each text
  halt.hidden = progress.hidden = true;
  chooseModel(true);
  if (!state.model && !state.text) begin();

  /** It opens with a sentence that is translated, as recorded. */
  function begin() {
    const { examples: [text], translated, languages } = about();
    input.value = text;
    said.replaceChildren(
      el("strong", { lang: languages[1] }, translated),
      " · recorded; for other sentences the model is loaded",
    );
  }

  function about() {
    return index.models.find(({ name }) => name === model.value);
  }

  function chooseModel(first = false) {
    const { title, examples: texts } = about();
    const [from] = title.split(" ");
    label.textContent = `A sentence${from && ` in ${from}`}`;
    examples.hidden = !texts.length;
    examples.replaceChildren(
      "Or take: ",
      ...texts.map((text) =>
        el(
          "button",
          {
            type: "button",
            onclick: () => {
              input.value = text;
              translate();
            },
          },
          text,
        ),
      ),
    );
    if (!first) input.value = "";
    turn++;
    clear();
    name();
  }

  function name() {
    button.textContent = loaded.has(model.value)
      ? "Translate"
      : `Load the model (${megabytes(about().bytes)}) and translate`;
  }

  function clear() {
    done = false;
    said.textContent = note.textContent = "";
    beams.replaceChildren();
    beams.hidden = true;
    look.node.hidden = true;
  }

  function submit(event) {
    event.preventDefault();
    translate();
  }

  /** Translate once more what has been translated: a slider has moved. */
  function retry() {
    if (busy || done) translate();
  }

  async function translate() {
    if (busy) {
      again = stop = true;
      return;
    }
    busy = true;
    button.setAttribute("aria-disabled", "true");
    do {
      again = stop = false;
      clear();
      const mine = turn;
      try {
        await work(input.value, about());
      } catch (error) {
        if (!again && mine === turn) said.textContent = error.message;
      }
      if (mine !== turn) said.textContent = ""; // of loading, for instance
    } while (again);
    busy = false;
    button.setAttribute("aria-disabled", "false");
    if (document.activeElement === halt) button.focus();
    halt.hidden = progress.hidden = true;
    name();
  }

  async function work(text, chosen) {
    if (!text.trim()) {
      said.textContent = "There is nothing to translate: write a sentence.";
      input.focus();
      return;
    }
    const mine = turn;
    const left = () => mine !== turn;
    const translator = await get(chosen);
    if (left()) return;
    const sentences = split(text, chosen.languages[0]);
    const tokens = (one) => translator.tokenizer.encode(one).length - 1;
    if (
      text.length > LETTERS ||
      sentences.some((one) => tokens(one) > LONGEST)
    ) {
      said.textContent =
        `That is too long: this page takes sentences of up to ${LONGEST} ` +
        `tokens, ${LETTERS} letters in all.`;
      return;
    }
    note.textContent =
      foreign(text, chosen) ||
      unusual(text) ||
      strange(text, chosen, translator.tokenizer);
    halt.hidden = false;
    said.textContent = "Searching …";
    const begun = performance.now();
    const all = [];
    for (const one of sentences) {
      const { found } = await translator.beam(one, {
        beamSize: beam.value,
        alpha: alpha.value,
        progress: breathe,
        stopped: () => stop || left(),
      });
      if (left()) return;
      all.push(found);
    }
    const seconds = (performance.now() - begun) / 1000;
    const best = all.map(([first]) => first);
    const words = best.map((one) => one.text.trim()).join(" ");
    const length = best.reduce((sum, { ids }) => sum + ids.length, 0);
    said.replaceChildren(
      el("strong", { lang: chosen.languages[1] }, words || "(nothing)"),
      best.every(({ ended }) => ended)
        ? ""
        : " (cut off at the longest output allowed)",
      ` · ${seconds.toFixed(2)} s for ${length} tokens` +
        (all.length > 1 ? `, ${all.length} sentences one by one` : ""),
    );
    if (all.length === 1) {
      beams.replaceChildren(beamTable(all[0], chosen));
      beams.hidden = false;
      look.show(translator.looking(text, best[0].ids));
    }
    done = true;
    inLink.write({ model: chosen.name, text });
  }

  async function get(chosen) {
    if (!loaded.has(chosen.name)) {
      progress.hidden = false;
      const translator = await fetched(chosen, (share) => {
        progress.value = share;
        said.textContent = loading(share, chosen);
      });
      loaded.set(chosen.name, translator);
      progress.hidden = true;
    }
    return loaded.get(chosen.name);
  }
}

/** A warning about a sentence in a language that the model doesn't read. */
function foreign(text, { languages: [from] }) {
  const met = text.toLowerCase().match(/\p{L}+/gu) ?? [];
  const count = (code) =>
    met.filter((word) => SMALL_WORDS[code].has(word)).length;
  if (!SMALL_WORDS[from]) return "";
  const [most] = Object.keys(SMALL_WORDS).sort((a, b) => count(b) - count(a));
  if (count(most) <= count(from)) return "";
  const [theirs, ours] = [most, from].map((code) => LANGUAGES[code]);
  return (
    `That looks like ${theirs}, but this model reads ${ours}. It guesses ` +
    "all the same."
  );
}

/** A warning about capitals and numbers, which training hardly had. */
function unusual(text) {
  if (/\p{Lu}{4,}/u.test(text))
    return (
      "Words IN CAPITALS fall apart into single letters, because the " +
      "training sentences have hardly any. Write them small, and the model " +
      "knows them."
    );
  if (/\d[\d.,/-]*\d/.test(text))
    return (
      "A number is read in pieces of one or two digits, of which training " +
      "had few: dates and large numbers often come out wrong. Written as " +
      "words they fare better."
    );
  return "";
}

/** A warning about words that the model cannot know. */
function strange(text, { words }, tokenizer) {
  const known = words && new Set(words);
  const met = [...new Set(text.match(/[^\s.,;:!?¿¡"()]+/gu) ?? [])];
  // A word is cut as it stands: behind a space, or at the beginning.
  const cuts = (word) =>
    text.trimStart().startsWith(word)
      ? tokenizer.encode(word).length - 1
      : tokenizer.encode(`a ${word}`).length - tokenizer.encode("a").length;
  const odd = met.filter((word) =>
    known
      ? (word.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [word]).some(
          (part) => !known.has(part),
        )
      : cuts(word) >= MANY,
  );
  if (!odd.length) return "";
  const listed = odd.slice(0, 8).join(", ");
  return known
    ? `Never seen in training: ${listed}. Every word can be spelt in ` +
        "tokens, so the model guesses all the same, and sounds as sure as " +
        "ever."
    : `Cut into ${MANY} tokens or more: ${listed}. Words like these are ` +
        "rare in the training sentences or not there at all, and the model " +
        "guesses.";
}

function beamTable(found, { languages }) {
  return table(
    "The beam: what the search found, best first",
    ["rank", "translation", "tokens", "log-prob\u00adability", "score"],
    1,
    found.map(({ text, ids, total, score, ended }, rank) => [
      String(rank + 1),
      ended ? text : `${text} … (cut off)`,
      String(ids.length),
      decimal(total, 3),
      decimal(score, 3),
    ]),
    { lang: languages[1] },
  );
}

/** Tokens for a reader who has not met the end sign yet. */
const spelt = (tokens) =>
  tokens.map((token) => (token === "<eos>" ? "▁end sign" : token));

/** Cross-attention of a translation: pick a token of it. */
function lookAround() {
  let maps = null;
  let word = 0;
  const layer = choice("layer", [], "", draw);
  const head = choice("head", [], "", draw);
  const said = el("p", { class: "live-result", role: "status" });
  const words = wordPicker((i) => {
    word = i;
    draw();
  });
  const node = el(
    "div",
    {},
    el("div", { class: "live-controls" }, layer.node, head.node),
    words.node,
    said,
  );
  const counted = (count) => upTo(count).map((i) => [i + 1, String(i + 1)]);

  function draw() {
    const { source, target, N, h, weight } = maps;
    const layers = layer.value === "0" ? upTo(N) : [layer.value - 1];
    const heads = head.value === "0" ? upTo(h) : [head.value - 1];
    const mean = (query, key) => {
      let sum = 0;
      for (const l of layers) for (const n of heads) sum += weight(l, n, query, key);
      return sum / layers.length / heads.length;
    };
    words.show(target, source, word, mean, CHOSEN);
    const values = source.map((_, key) => mean(word, key));
    const chosen = readable(target[word]);
    said.textContent = `${chosen} looked at ${heaviest(values, source)}.`;
  }

  return {
    node,
    show(found) {
      maps = {
        ...found,
        source: spelt(found.source),
        target: spelt(found.target),
      };
      word = 0;
      layer.options([[0, "average"], ...counted(found.N)], layer.value);
      head.options([[0, "average"], ...counted(found.h)], head.value);
      node.hidden = false;
      draw();
    },
  };
}
