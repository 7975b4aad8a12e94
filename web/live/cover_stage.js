// The picture of the first page: a sentence, its translation, and ribbons.

import { el, svg } from "./common.js";
import { align, attention } from "./covering.js";
import { point, ribbons } from "./ribbons.js";

/** The stage; `press(number, event)` is told which word was touched. */
export function stageOf(press) {
  const source = el("p", {
    class: "cover-words cover-source",
    role: "group",
    "aria-label": "The sentence: press a word to cover it",
  });
  const arcs = svg("svg", { class: "ribbons", "aria-hidden": "true" });
  const target = el("p", { class: "cover-words cover-target" });
  const beside = ({ target: touched }) =>
    touched.matches("div, p") && point(arcs, "target", null);
  const about = { class: "cover-stage", onpointerdown: beside };
  const node = el("div", about, arcs, source, target);
  const chips = { source: [], target: [] }; // a node for each word and sign
  let sentence, state; // what is drawn

  /** Another sentence, with nothing covered. */
  function open(one) {
    sentence = one;
    [source.lang, target.lang] = one.codes;
    chips.source = lay(source, one.words, (word, number) =>
      word.isWord
        ? el(
            "button",
            {
              type: "button",
              "aria-pressed": "false",
              onclick: (event) => press(number, event),
              ...pointing("source", number),
            },
            word.text,
          )
        : el("span", {}, word.text),
    );
    reserve();
  }

  /** These words are covered: the ribbons of new ones let go. */
  function cover(hidden) {
    const snapped = new Set();
    sentence.words.forEach(({ isWord }, number) => {
      if (!isWord) return;
      const chip = chips.source[number];
      const on = hidden.has(number);
      if (on && chip.getAttribute("aria-pressed") === "false")
        snapped.add(number);
      chip.setAttribute("aria-pressed", String(on));
    });
    for (const path of arcs.children)
      if (snapped.has(Number(path.dataset.source)))
        path.classList.add("cover-snapped");
    return snapped.size > 0;
  }

  /** What is written now, with what has come into it marked. */
  function draw(now) {
    state = now;
    const texts = (line) => line.map(({ text }) => text);
    const { added } = align(texts(sentence.states[0].words), texts(now.words));
    chips.target = lay(target, now.words, (word, number) =>
      el(
        added.has(number) ? "ins" : "span",
        pointing("target", number),
        word.text,
      ),
    );
    if (!now.words.length) target.replaceChildren(el("i", {}, "nothing"));
    bands();
  }

  /** On the word that is covered, or on the first. */
  const focus = () =>
    (
      source.querySelector("[aria-pressed=true]") ??
      source.querySelector("button")
    ).focus();

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

  /** How much each word looked at each; a sign has no ribbon. */
  const bands = () =>
    ribbons(arcs, node, chips, (from, to) => {
      const [word, seen] = [state.words[to], sentence.words[from]];
      if (!word.isWord || !seen.isWord) return 0;
      return attention(state.looked, word.places, seen.places);
    });

  /** Pointing at a word leaves its own ribbons strong, and no others; what
   * a finger touched stays so when it has left. */
  function pointing(side, number) {
    const on = () => point(arcs, side, number);
    const off = () => point(arcs, side, null);
    return {
      onpointerenter: on,
      onpointerleave: ({ pointerType }) => pointerType === "touch" || off(),
      onfocus: on,
      onblur: off,
    };
  }

  let width = 0;
  new ResizeObserver(() => {
    if (!state) return;
    if (node.clientWidth !== width) reserve();
    width = node.clientWidth;
    bands();
  }).observe(node);
  document.fonts.ready.then(() => state && bands());
  return { node, open, cover, draw, focus };
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
