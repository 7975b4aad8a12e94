// Pick a word, see where it looks: for attention maps of any kind.

import { el, percent, wash } from "./common.js";

/** A row of words to pick from, and a row that shows the weights. */
export function wordPicker(labels, pick) {
  const from = el("div", {
    class: "live-words",
    role: "group",
    "aria-label": labels.from,
  });
  const to = el("p", { class: "live-words" });
  const title = (text) => el("p", { class: "live-axis" }, text);
  return {
    node: el("div", {}, title(labels.from), from, title(labels.to), to),
    show(words, keys, chosen, values, colour) {
      const focused = [...from.children].indexOf(document.activeElement);
      from.replaceChildren(
        ...words.map((word, i) =>
          el(
            "button",
            {
              type: "button",
              class: "live-word",
              "aria-pressed": String(i === chosen),
              onclick: () => pick(i),
            },
            word,
          ),
        ),
      );
      arrows(from, true);
      if (focused >= 0) from.children[focused]?.focus();
      to.replaceChildren(
        ...keys.flatMap((word, i) => [
          el(
            "span",
            {
              class: "live-key",
              style: `background-color: ${wash(colour, values[i])}`,
            },
            el("span", {}, word),
            el("small", {}, percent(values[i])),
          ),
          " ",
        ]),
      );
    },
  };
}

/** Left and right move between the buttons of a group. */
export function arrows(group, press = false) {
  group.onkeydown = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const buttons = [...group.querySelectorAll("button")];
    const next = buttons[buttons.indexOf(document.activeElement) + by];
    if (!by || !next) return;
    event.preventDefault();
    next.focus();
    if (press) next.click();
  };
}

/** The heaviest of some weights, in words. */
export function heaviest(values, words, least = 0.05, most = 3) {
  const best = values
    .map((value, i) => [value, words[i]])
    .sort((a, b) => b[0] - a[0])
    .filter(([value]) => value >= least)
    .slice(0, most)
    .map(([value, word]) => `${word} ${percent(value)}`);
  return best.join(", ") || "spread over everything";
}
