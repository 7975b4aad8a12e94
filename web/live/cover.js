// The first page: cover a word, and the decoder may no longer look at it.

import { choice, el, inAddress, load, newId, svg } from "./common.js";
import { align, wordsOf } from "./cover_words.js";
import { OWN, chooser, offer } from "./own_model.js";

const WAIT = 2000; // milliseconds until it covers a word by itself
const SNAP = 350; // while the ribbons of a covered word let go
const LEAST = 0.1; // an attention that is drawn
const FEWER = 0.25; // the same where the sentence has several lines
const THICK = 24; // pixels of a ribbon that has all the attention
const LONGEST = 30; // tokens of a sentence of one's own

const languages = new Intl.DisplayNames(["en"], { type: "language" });
/** " in German", or nothing where a code is no language's. */
const inLanguage = (code) => {
  try {
    const name = languages.of(code);
    return name === code ? "" : `, in ${name}`;
  } catch {
    return "";
  }
};
const listed = (names) =>
  names.length > 1
    ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`
    : names[0];
const megabytes = (bytes) => `${(bytes / 1e6).toFixed(0)}\u00a0MB`;

export function start(place) {
  const still = place.querySelector(".cover-still");
  const given = place.querySelector("script").textContent;
  const recorded = JSON.parse(given).map(open);
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const inLink = inAddress(place, "cover");

  let sentence; // what is shown: one that was recorded, or one's own
  let state; // what the model writes, with the words that are covered
  let hidden = new Set(); // the covered words, by number
  let turn = 0; // of the reader: what is on its way may be of the last one
  let timer = 0;
  const chips = { source: [], target: [] }; // a node for each word and sign

  // The frame

  const source = el("p", {
    class: "cover-words cover-source",
    role: "group",
    "aria-label": "The sentence: press a word to cover it",
  });
  const arcs = svg("svg", { class: "cover-arcs", "aria-hidden": "true" });
  const target = el("p", { class: "cover-words cover-target" });
  const stage = el("div", { class: "cover-stage" }, arcs, source, target);
  const means = el("p", { class: "cover-means" });
  const was = el("p", { class: "cover-was" });
  const said = el("p", { class: "live-spoken", role: "status" });
  const button = (text, press) =>
    el("button", { type: "button", onclick: press }, text);
  const move = button("Pause", () => (timer ? halt() : show(new Set())));
  const copy = button("Copy link", copyLink);
  const next = el("span", {}, "Touch another, or");
  const picks = recorded.map((one) => button(one.text, () => take(one)));
  const own = ownSentence();
  place.replaceChildren(
    stage,
    el("div", { class: "cover-told" }, means, was),
    el("div", { class: "live-buttons cover-ways" }, next, move, copy),
    el(
      "div",
      { class: "live-buttons cover-picks", role: "group" },
      picks,
      own.opener,
    ),
    own.node,
    said,
    still,
  );
  place
    .querySelector(".cover-picks")
    .setAttribute("aria-label", "Another sentence");

  // What the reader does

  /** Another sentence, with nothing covered. */
  function take(one, covered = new Set()) {
    halt();
    sentence = one;
    source.lang = one.codes[0];
    target.lang = one.codes[1];
    picks.forEach((pick, i) =>
      pick.setAttribute("aria-pressed", String(recorded[i] === one)),
    );
    own.opener.setAttribute("aria-pressed", String(!recorded.includes(one)));
    own.follow(one);
    chips.source = lay(source, one.words, (word, number) =>
      word.isWord
        ? el(
            "button",
            {
              type: "button",
              "aria-pressed": "false",
              onclick: () => press(number),
              ...pointing("source", number),
            },
            word.text,
          )
        : el("span", {}, word.text),
    );
    state = one.states[0];
    hidden = new Set();
    reserve();
    return show(covered);
  }

  function press(number) {
    halt();
    const covered = new Set(hidden);
    if (!covered.delete(number)) covered.add(number);
    return show(covered);
  }

  /** Cover these words and no others, and translate again. */
  async function show(covered) {
    halt();
    const mine = ++turn;
    const snapped = [...covered].some((number) => !hidden.has(number));
    hidden = covered;
    sentence.words.forEach((word, number) => {
      const pressed = String(hidden.has(number));
      if (word.isWord) chips.source[number].setAttribute("aria-pressed", pressed);
    });
    if (snapped && state) snap();
    const known = recall();
    if (snapped && !calm.matches)
      await new Promise((done) => setTimeout(done, SNAP));
    const found = known ?? (await written());
    if (mine !== turn || !found) return;
    state = found;
    draw();
    if (turn > 1) say(); // not of what the page opens with
    keep();
  }

  /** The places of the covered words' tokens. */
  const places = () =>
    sentence.words.flatMap((word, number) =>
      hidden.has(number) ? word.places : [],
    );
  /** What the model writes now, if that was recorded or has run here. */
  function recall() {
    const now = String(places());
    return sentence.states.find(({ covered }) => String(covered) === now);
  }

  /** The same from the model itself, if it is there. */
  async function written() {
    const { states } = sentence;
    if (!own.loaded(sentence.model)) {
      own.offer();
      return null;
    }
    const found = await own.write(sentence, places());
    states.push(found);
    return found;
  }

  // What is shown

  function draw() {
    const { words } = state;
    const first = sentence.states[0].words;
    const texts = (line) => line.map(({ text }) => text);
    const changes = align(texts(first), texts(words));
    target.classList.remove("cover-waiting");
    chips.target = lay(target, words, (word, number) =>
      el(
        changes.added.has(number) ? "ins" : "span",
        pointing("target", number),
        word.text,
      ),
    );
    if (!words.length) target.replaceChildren(el("i", {}, "nothing"));
    means.replaceChildren(
      ...(state.means && hidden.size
        ? ["In English: ", el("q", {}, state.means)]
        : []),
    );
    const lost = first.map((word, number) => [
      word.glued ? "" : " ",
      el(changes.removed.has(number) ? "del" : "span", {}, word.text),
    ]);
    const verdict = !hidden.size
      ? ["Touch an English word, and the decoder may no longer look at it."]
      : changes.removed.size || changes.added.size
        ? [
            "Before",
            el("span", { class: "cover-in" }, inLanguage(sentence.codes[1])),
            ": ",
            el("span", { lang: sentence.codes[1] }, lost.flat()),
          ]
        : ["Nothing changes: the model can do without looking at this word."];
    was.replaceChildren(...verdict);
    if (!timer) move.hidden = !hidden.size;
    move.textContent = timer ? "Pause" : "Uncover";
    next.hidden = copy.hidden = Boolean(timer) || !hidden.size;
    copy.textContent = "Copy link";
    ribbons();
  }

  /** Room for the longest of the sentence's translations. */
  function reserve() {
    target.style.minHeight = "";
    const shown = [...target.childNodes];
    let most = 0;
    for (const one of sentence.states) {
      lay(target, one.words, (word) => el("span", {}, word.text));
      most = Math.max(most, target.getBoundingClientRect().height);
    }
    target.replaceChildren(...shown);
    target.style.minHeight = `${most}px`;
  }

  /** How much each word looked at each: as bands between their boxes.

      Behind another line of words a band goes straight down, and comes out
      where it went in. */
  function ribbons() {
    const { words, looked } = state;
    const box = stage.getBoundingClientRect();
    if (!box.width) return;
    arcs.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    const centre = (node) => {
      const one = node.getBoundingClientRect();
      return [one.left + one.width / 2 - box.left, one.top - box.top, one.height];
    };
    const bands = [];
    const tops = chips.source.map((node) => centre(node)[1]);
    const lines = new Set(tops);
    const under = Math.max(...tops) + centre(chips.source[0])[2];
    const above = Math.min(...chips.target.map((node) => centre(node)[1]));
    const least = lines.size > 1 ? FEWER : LEAST;
    words.forEach((word, to) => {
      if (!word.isWord) return;
      const [x1, y1] = centre(chips.target[to]);
      sentence.words.forEach((seen, from) => {
        if (!seen.isWord) return;
        const share = attention(looked, word.places, seen.places);
        if (share < least) return;
        const [x0, top, high] = centre(chips.source[from]);
        const y0 = top + high;
        const half = (share * THICK) / 2;
        const bend = (under + above) / 2;
        bands.push(
          svg("path", {
            "data-source": from,
            "data-target": to,
            d:
              `M${x0 - half} ${y0}V${under}C${x0 - half} ${bend} ` +
              `${x1 - half} ${bend} ${x1 - half} ${above}V${y1}` +
              `H${x1 + half}V${above}C${x1 + half} ${bend} ` +
              `${x0 + half} ${bend} ${x0 + half} ${under}V${y0}Z`,
          }),
        );
      });
    });
    arcs.replaceChildren(...bands);
  }

  function snap() {
    for (const path of arcs.children)
      if (hidden.has(Number(path.dataset.source)))
        path.classList.add("cover-snapped");
    target.classList.add("cover-waiting");
  }

  /** Pointing at a word leaves its own ribbons strong, and no others. */
  function pointing(side, number) {
    const on = () => {
      for (const path of arcs.children)
        path.classList.toggle(
          "cover-dim",
          Number(path.dataset[side]) !== number,
        );
    };
    const off = () => {
      for (const path of arcs.children) path.classList.remove("cover-dim");
    };
    return { onpointerenter: on, onpointerleave: off, onfocus: on, onblur: off };
  }

  function say() {
    const names = sentence.words
      .filter((_, number) => hidden.has(number))
      .map(({ text }) => text);
    const ended = (text) => text.replace(/[^.?!…]$/, "$&."); // read aloud
    const now = state.means
      ? `${ended(state.said)} That is: ${ended(state.means)}`
      : state.said;
    said.textContent = names.length
      ? `Covered: ${listed(names)}. Now: ${now}`
      : `Nothing is covered. ${now}`;
  }

  // The address

  function keep() {
    const number = recorded.indexOf(sentence);
    inLink.write({
      ...(number >= 0
        ? { sentence: number + 1 }
        : { model: sentence.model, text: sentence.text }),
      ...(hidden.size
        ? { covered: [...hidden].map((n) => n + 1).sort((a, b) => a - b).join(".") }
        : {}),
    });
  }

  function copyLink() {
    keep();
    navigator.clipboard
      .writeText(location.href)
      .then(() => (copy.textContent = "Copied"))
      .catch(() => (copy.textContent = "The link is in the address bar"));
  }

  // A sentence of one's own, and two words at once: these need the model

  function ownSentence() {
    const models = new Map(); // by name, once they are loaded
    const id = newId("own");
    const input = el("input", {
      id,
      type: "text",
      autocomplete: "off",
      spellcheck: "false",
      maxlength: 200,
    });
    const form = el(
      "form",
      { class: "cover-own", hidden: true, onsubmit: submit },
    );
    const opener = button("Your own sentence", () => {
      halt();
      form.hidden = !form.hidden;
      opener.setAttribute("aria-expanded", String(!form.hidden));
      if (!form.hidden) prepare().then(() => input.focus());
    });
    opener.setAttribute("aria-expanded", "false");
    const note = el("p", {
      class: "live-note cover-note",
      "aria-live": "polite",
    });
    const node = el("div", {}, note, form);
    let index, kind, go, weight, Translator;

    /** What this site can run, and what a model weighs. */
    async function prepare() {
      if (index) return;
      [index, { weight, Translator }] = await Promise.all([
        load("index.json"),
        import("./translator.js"),
      ]);
      const english = index.models.filter(({ title }) =>
        title.startsWith("English"),
      );
      const options = english.map((one) => [
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
      go = el("button", { type: "submit", class: "live-main" });
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
    const size = (name) =>
      models.has(name) ? "" : ` (${megabytes(weight(index, about(name)))})`;
    const label = () =>
      (go.textContent = models.has(kind.value)
        ? "Translate"
        : `Load the model${size(kind.value)}`);

    async function get(name) {
      if (index.missing && name !== OWN)
        throw new Error(
          "This copy of the site was built without onnxruntime-web, which " +
            `runs the model: ${index.missing}.`,
        );
      if (!models.has(name)) {
        const progress = el("progress", { max: 1, value: 0 });
        progress.setAttribute("aria-label", "Loading the model");
        note.replaceChildren("Loading the model … ", progress);
        const load = (share) => (progress.value = share);
        models.set(name, await Translator.load(index, name, load));
        label();
      }
      note.replaceChildren();
      return models.get(name);
    }

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
        if (mine === turn) await take(made);
      } catch (error) {
        note.textContent = error.message;
      }
    }

    /** A sentence of the reader's, and what its model makes of it. */
    async function make(text, name) {
      await prepare();
      const model = await get(name);
      const ids = model.tokenizer.encode(text);
      if (ids.length - 1 > LONGEST)
        throw new Error(
          `That is too long for this frame: it takes up to ${LONGEST} tokens.`,
        );
      return {
        text,
        model: name,
        codes: about(name).languages,
        words: wordsIn(model.tokenizer, ids),
        states: [await run(model, text, [])],
      };
    }

    async function run(model, text, covered) {
      const { found } = await model.beam(text, { beamSize: 1, covered });
      const { ids, text: said } = found[0];
      const maps = await model.attention(text, ids, covered);
      const looked = maps.target.map((_, t) =>
        maps.source.map((_, s) => {
          let sum = 0;
          for (let layer = 0; layer < maps.N; layer++)
            for (let head = 0; head < maps.h; head++)
              sum += maps.weight(layer, head, t, s);
          return (100 * sum) / (maps.N * maps.h);
        }),
      );
      const words = wordsIn(model.tokenizer, ids);
      return { covered, said: said.trim() || "nothing", means: "", words, looked };
    }
    const wordsIn = (tokenizer, ids) =>
      wordsOf(tokenizer.pieces(ids), (places) =>
        tokenizer.decode(places.map((place) => ids[place])).trim(),
      );

    return {
      opener,
      node,
      loaded: (name) => models.has(name),
      make,
      /** The note goes; the form is there for a sentence of one's own. */
      follow(one) {
        note.replaceChildren();
        if (recorded.includes(one)) return;
        input.value = one.text;
        form.hidden = false;
        opener.setAttribute("aria-expanded", "true");
      },
      /** Say what the model weighs, and load it if the reader wants. */
      async offer() {
        await prepare();
        if (index.missing) {
          note.textContent =
            "Single words are recorded. Two at once need the model, and " +
            `this copy of the site cannot run it: ${index.missing}.`;
          return;
        }
        const name = sentence.model;
        note.replaceChildren(
          "Single words are recorded. For two at once the model has to run " +
            "here: ",
          button(`Load the model${size(name)}`, async () => {
            try {
              await get(name);
              await show(new Set(hidden));
            } catch (error) {
              note.textContent = error.message;
            }
          }),
        );
      },
      write: (one, covered) =>
        run(models.get(one.model), one.text, covered),
    };
  }

  // Beginning

  function halt() {
    clearTimeout(timer);
    timer = 0;
    move.textContent = "Uncover";
    move.hidden = !hidden.size;
  }

  /** Once, and only where it is seen: a word is covered by itself. */
  function wait() {
    const number = sentence.words.findIndex(
      ({ text }) => text === sentence.opens_on,
    );
    if (calm.matches || number < 0) return;
    timer = setTimeout(() => show(new Set([number])), WAIT);
    move.textContent = "Pause";
    move.hidden = false;
  }

  const asked = inLink.read();
  const covered = new Set(
    (asked.covered ?? "").split(".").map((number) => Number(number) - 1),
  );
  const wanted = recorded[Number(asked.sentence) - 1];
  const known = (one) =>
    new Set([...covered].filter((number) => one.words[number]?.isWord));
  if (wanted) {
    take(wanted, known(wanted));
    place.scrollIntoView({ block: "center" });
  } else {
    take(recorded[0]);
    if (asked.text)
      own
        .make(asked.text, asked.model)
        .then((one) => take(one, known(one)))
        .catch((error) => (was.textContent = error.message));
    else {
      const seen = new IntersectionObserver(([entry]) => {
        if (entry.intersectionRatio < 0.5 || document.hidden) return;
        seen.disconnect();
        wait();
      }, { threshold: 0.5 });
      seen.observe(stage);
    }
  }
  let width = 0;
  new ResizeObserver(() => {
    const now = stage.clientWidth;
    if (!chips.target.length) return;
    if (now !== width) reserve();
    width = now;
    ribbons();
  }).observe(stage);
  document.fonts.ready.then(() => chips.target.length && ribbons());
}

/** Put words into a line, what is glued to a word beside it. */
function lay(line, words, make) {
  const nodes = words.map(make);
  const together = [];
  words.forEach((word, number) => {
    if (word.glued) together.at(-1).append(nodes[number]);
    else together.push(el("span", {}, nodes[number]));
  });
  line.replaceChildren(...together.flatMap((one) => [one, " "]));
  return nodes;
}

/** A recorded sentence, with its words. */
function open(one) {
  const states = one.states.map((state) => ({
    ...state,
    words: wordsOf(state.tokens),
  }));
  return { ...one, states, words: wordsOf(one.source) };
}

/** How much of its attention a word paid to another, from 0 to 1. */
function attention(rows, to, from) {
  const sums = to.map((t) => from.reduce((sum, s) => sum + rows[t][s], 0));
  return sums.reduce((sum, one) => sum + one, 0) / to.length / 100;
}
