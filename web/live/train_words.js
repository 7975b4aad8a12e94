// The table of the right words: how likely, and where the model looks.

import { el, percent } from "./common.js";

const SOURCE = ["I", "like", "trees", "<eos>"];
const RIGHT = ["Me", "gustan", "los", "árboles", "<eos>"];

/** The table's node, and what draws a moment. */
export function wordsTable() {
  const rows = RIGHT.map((word) => {
    const likely = el("td", { class: "train-likely" });
    const looked = SOURCE.map(() => el("td", { class: "train-looked" }));
    const name = word === "<eos>" ? {} : { lang: "es" };
    const head = el("th", { scope: "row", ...name }, word);
    return { likely, looked, node: [head, likely, ...looked] };
  });
  const head = (text, name = {}) =>
    el("th", { scope: "col", ...name }, text);
  const node = el(
    "table",
    { class: "train-words" },
    el(
      "caption",
      {},
      "How likely each right word is after the ones before it, and where " +
        "the model looks (last layer, mean of the heads)",
    ),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        head("word"),
        head("likely"),
        SOURCE.map((word) =>
          head(word, word === "<eos>" ? {} : { lang: "en" }),
        ),
      ),
    ),
    el(
      "tbody",
      {},
      rows.map((row) => el("tr", {}, row.node)),
    ),
  );
  function draw(moment) {
    moment.words.forEach(({ likely, looked }, i) => {
      const row = rows[i];
      row.likely.textContent = percent(likely);
      row.likely.style.setProperty("--share", `${100 * likely}%`);
      looked.forEach((share, j) => {
        row.looked[j].textContent = `${Math.round(100 * share)}\u00a0%`;
        row.looked[j].style.setProperty("--share", `${100 * share}%`);
      });
    });
  }
  return { node, draw };
}
