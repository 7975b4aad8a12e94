// The table of the right words: how likely, and where the model looks.

import { el, percent, svg } from "./common.js";
import { STEPS } from "./train_runs.js";

const SOURCE = ["I", "like", "trees", "end"];
const RIGHT = ["Me", "gustan", "los", "árboles", "end"];

/** The table's node, and what draws moment `to` of some. */
export function wordsTable() {
  const rows = RIGHT.map((word) => {
    const likely = el("td", { class: "train-likely" });
    const line = svg("polyline");
    const spark = svg(
      "svg",
      {
        viewBox: `0 0 ${STEPS} 1`,
        preserveAspectRatio: "none",
        "aria-hidden": "true",
      },
      line,
    );
    const looked = SOURCE.map(() => el("td", { class: "train-looked" }));
    const name = word === "end" ? {} : { lang: "es" };
    const head = el("th", { scope: "row", ...name }, word);
    const over = el("td", { class: "train-spark" }, spark);
    return { likely, line, looked, node: [head, likely, over, ...looked] };
  });
  const head = (text, name = {}) =>
    el("th", { scope: "col", ...name }, text);
  const node = el(
    "table",
    { class: "train-words" },
    el(
      "caption",
      {},
      "For each right word, after the right ones before it: how likely " +
        "the model thinks it is",
      el("span", { class: "train-spark" }, ", now and over the steps"),
      ", and how much the model looks at each English word (last layer, " +
        "mean of the heads).",
    ),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        head("word"),
        head("likely"),
        head("over steps", { class: "train-spark" }),
        SOURCE.map((word) =>
          head(word, word === "end" ? {} : { lang: "en" }),
        ),
      ),
    ),
    el(
      "tbody",
      {},
      rows.map((row) => el("tr", {}, row.node)),
    ),
  );
  function draw(moments, to) {
    moments[to].words.forEach(({ likely, looked }, i) => {
      const row = rows[i];
      row.likely.textContent = percent(likely);
      row.likely.style.setProperty("--share", `${100 * likely}%`);
      row.line.setAttribute(
        "points",
        moments
          .slice(0, to + 1)
          .map((one) => `${one.step},${1 - one.words[i].likely}`)
          .join(" "),
      );
      looked.forEach((share, j) => {
        row.looked[j].textContent = `${Math.round(100 * share)}\u00a0%`;
        row.looked[j].style.setProperty("--share", `${100 * share}%`);
      });
    });
  }
  return { node, draw };
}
