// The table of the right words: how likely, and where the model looks.

import { el, percent, rowHead, tabulate } from "./common.js";

const SOURCE = ["I", "like", "trees", "<eos>"];
const RIGHT = ["Me", "gustan", "los", "árboles", "<eos>"];

/** The table's node, and what draws a moment. */
export function wordsTable() {
  const rows = RIGHT.map((word) => {
    const likely = el("td", { class: "train-likely" });
    const looked = SOURCE.map(() => el("td", { class: "train-looked" }));
    const name = word === "<eos>" ? {} : { lang: "es" };
    return { likely, looked, node: [rowHead(word, name), likely, ...looked] };
  });
  const node = tabulate(
    ["word", "likely", ...SOURCE],
    rows.map((row) => row.node),
    { class: "train-words" },
  );
  node.prepend(
    el(
      "caption",
      {},
      "How likely each right word is after the ones before it, and where " +
        "the model looks (last layer, mean of the heads)",
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
