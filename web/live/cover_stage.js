// The picture of the first page: a sentence, its translation, and ribbons.

import { el, svg } from "./common.js";
import { align, attention } from "./covering.js";

const LEAST = 0.1; // an attention that is drawn
const FEWER = 0.25; // the same where the sentence has several lines
const THICK = 24; // pixels of a ribbon that has all the attention

/** The stage; `press(number, event)` is told which word was touched. */
export function stageOf(press) {
  const source = el("p", {
    class: "cover-words cover-source",
    role: "group",
    "aria-label": "The sentence: press a word to cover it",
  });
  const arcs = svg("svg", { class: "cover-arcs", "aria-hidden": "true" });
  const target = el("p", { class: "cover-words cover-target" });
  const node = el("div", { class: "cover-stage" }, arcs, source, target);
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
    target.classList.toggle("cover-waiting", snapped.size > 0);
    return snapped.size > 0;
  }

  /** What is written now, with what has come into it marked. */
  function draw(now) {
    state = now;
    const texts = (line) => line.map(({ text }) => text);
    const { added } = align(texts(sentence.states[0].words), texts(now.words));
    target.classList.remove("cover-waiting");
    chips.target = lay(target, now.words, (word, number) =>
      el(
        added.has(number) ? "ins" : "span",
        pointing("target", number),
        word.text,
      ),
    );
    if (!now.words.length) target.replaceChildren(el("i", {}, "nothing"));
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
    const box = node.getBoundingClientRect();
    if (!box.width) return;
    arcs.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    const centre = (chip) => {
      const { left, top, width, height } = chip.getBoundingClientRect();
      return [left + width / 2 - box.left, top - box.top, height];
    };
    const bands = [];
    const tops = chips.source.map((chip) => centre(chip)[1]);
    const under = Math.max(...tops) + centre(chips.source[0])[2];
    const above = Math.min(...chips.target.map((chip) => centre(chip)[1]));
    const bend = (under + above) / 2;
    const least = new Set(tops).size > 1 ? FEWER : LEAST;
    state.words.forEach((word, to) => {
      if (!word.isWord) return;
      const [x1, y1] = centre(chips.target[to]);
      sentence.words.forEach((seen, from) => {
        const share = attention(state.looked, word.places, seen.places);
        if (!seen.isWord || share < least) return;
        const [x0, top, high] = centre(chips.source[from]);
        const y0 = top + high;
        const half = (share * THICK) / 2;
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
    return {
      onpointerenter: on,
      onpointerleave: off,
      onfocus: on,
      onblur: off,
    };
  }

  let width = 0;
  new ResizeObserver(() => {
    if (!state) return;
    if (node.clientWidth !== width) reserve();
    width = node.clientWidth;
    ribbons();
  }).observe(node);
  document.fonts.ready.then(() => state && ribbons());
  return { node, open, cover, draw };
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
