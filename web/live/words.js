// Pick a word, see where it looks: for attention maps of any kind.

import { el, percent, wash } from "./common.js";

/** What a click on a token means: of a translation, everywhere the same.
 *
 * Its token is the one that was being chosen, so its row of weights is
 * that of the step that wrote it, not of the step that was fed with it.
 */
export const CHOSEN = {
  from: "Pick a token of the translation",
  to: "Where the decoder looked when it chose that token",
};

/** A token as a reader knows it, without the mark of a space. */
export const readable = (token) => token.replaceAll("▁", "");

/** Whether a token goes on with the word before it. */
const joined = (tokens, i) => i > 0 && /^\p{L}/u.test(tokens[i]);

/** A row of words to pick from, and a row that shows the weights. */
export function wordPicker(pick) {
  const title = () => el("p", { class: "live-axis" });
  const [fromTitle, toTitle] = [title(), title()];
  const from = el("div", { class: "live-words", role: "group" });
  const to = el("p", { class: "live-words" });
  return {
    node: el("div", {}, fromTitle, from, toTitle, to),
    show(words, keys, chosen, values, { colour, labels }) {
      fromTitle.textContent = labels.from;
      toTitle.textContent = labels.to;
      from.setAttribute("aria-label", labels.from);
      const focused = [...from.children].indexOf(document.activeElement);
      from.replaceChildren(
        ...words.map((token, i) =>
          el(
            "button",
            {
              type: "button",
              class: joined(words, i) ? "live-word live-joined" : "live-word",
              "aria-pressed": String(i === chosen),
              onclick: () => pick(i),
            },
            readable(token),
          ),
        ),
      );
      arrows(from, true);
      if (focused >= 0) from.children[focused]?.focus();
      to.replaceChildren(
        ...keys.flatMap((token, i) => [
          el(
            "span",
            {
              class: joined(keys, i) ? "live-key live-joined" : "live-key",
              style:
                `background-color: ${wash(colour, values[i])};` +
                `--weight: ${(100 * values[i]).toFixed(1)}%;` +
                `--ink: ${colour}`,
            },
            el("span", {}, readable(token)),
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

/** A sign between words is seen to be none of the sentence's own. */
const quoted = (token) =>
  /[\p{L}\p{N}]/u.test(token) ? token : `“${token}”`;

/** The heaviest of some weights, in words. */
export function heaviest(values, words, least = 0.05, most = 3) {
  const best = values
    .map((value, i) => [value, words[i]])
    .sort((a, b) => b[0] - a[0])
    .filter(([value]) => value >= least)
    .slice(0, most)
    .map(([value, token]) => `${quoted(readable(token))} ${percent(value)}`);
  return best.join(", ") || "spread over everything";
}
