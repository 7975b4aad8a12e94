// Pick a word, see where it looks: for attention maps of any kind.

import { INK, el, percent, svg, wash } from "./common.js";
import { point, ribbons } from "./ribbons.js";

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

/** Two lines of words with ribbons between: pick one that looks. */
export function wordPicker(pick) {
  const title = () => el("p", { class: "live-axis" });
  const [fromTitle, toTitle] = [title(), title()];
  const arcs = svg("svg", { class: "ribbons", "aria-hidden": "true" });
  const from = el("div", { class: "live-words", role: "group" });
  const to = el("p", { class: "live-words" });
  const node = el("div", { class: "live-ribbons" }, arcs, toTitle, to, from);
  let draw = () => {};
  new ResizeObserver(() => draw()).observe(node);
  return {
    node: el("div", {}, node, fromTitle),
    /** `weight(query, key)` is from 0 to 1; `labels` are the titles. */
    show(words, keys, chosen, weight, labels) {
      fromTitle.textContent = labels.from;
      toTitle.textContent = labels.to;
      from.setAttribute("aria-label", labels.from);
      const chip = (tokens, kind, make) =>
        tokens.map((token, i) => {
          const joins = joined(tokens, i) ? " live-joined" : "";
          return make(i, { class: kind + joins }, readable(token));
        });
      const focused = [...from.children].indexOf(document.activeElement);
      from.replaceChildren(
        ...chip(words, "live-word", (i, attributes, text) =>
          el(
            "button",
            {
              type: "button",
              "aria-pressed": String(i === chosen),
              onclick: () => pick(i),
              onpointerenter: () => point(arcs, "target", i),
              onpointerleave: () => point(arcs, "target", chosen),
              ...attributes,
            },
            text,
          ),
        ),
      );
      arrows(from, true);
      if (focused >= 0) from.children[focused]?.focus();
      to.replaceChildren(
        ...chip(keys, "live-key", (i, attributes, text) => {
          const colour = wash(INK.attention, weight(chosen, i));
          const style = `background-color: ${colour}`;
          return el("span", { style, ...attributes }, text);
        }),
      );
      draw = () => {
        const chips = { source: [...to.children], target: [...from.children] };
        ribbons(arcs, node, chips, (key, query) => weight(query, key));
        point(arcs, "target", chosen);
      };
      draw();
    },
  };
}

/** Arrows move between the buttons of a group, which is one stop of Tab. */
export function arrows(group, press = false) {
  const buttons = [...group.querySelectorAll("button")];
  const stop = (at) =>
    buttons.forEach((one) => (one.tabIndex = one === at ? 0 : -1));
  const pressed = (one) => one.getAttribute("aria-pressed") === "true";
  stop(buttons.find(pressed) ?? buttons[0]);
  group.onkeydown = (event) => {
    const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };
    const at = buttons.indexOf(document.activeElement);
    const next = at < 0 ? null : buttons[at + by[event.key]];
    if (!next || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    stop(next);
    next.focus();
    if (press) next.click();
  };
}

/** A sign between words is seen to be none of the sentence's own. */
const quoted = (token) =>
  /[\p{L}\p{N}]/u.test(token) ? token : `“${token}”`;

/** The heaviest of some weights, in words. */
export function heaviest(values, words) {
  const best = values
    .map((value, i) => [value, words[i]])
    .sort((a, b) => b[0] - a[0])
    .filter(([value]) => value >= 0.05)
    .slice(0, 3)
    .map(([value, token]) => `${quoted(readable(token))} ${percent(value)}`);
  return best.join(", ") || "spread over everything";
}
