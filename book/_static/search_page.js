/* The search page: excerpts without raw LaTeX, words found whether they
   are written with a hyphen or without one, and chapters first. */
(function () {
  "use strict";
  if (typeof Search === "undefined") return;

  /** A hit in the appendix, a term of the glossary among them, comes after
      a chapter that has the words in its title or as often in its text. */
  Scorer.score = function (hit) {
    var score = hit[4];
    if (!hit[0].startsWith("book/appendix/")) return score;
    return Math.min(score, Scorer.title) - 1;
  };

  var NO_TEXT = "#jb-print-docs-body, nav, details.hide > summary";
  var SIGNS = {
    alpha: "α", beta: "β", epsilon: "ε", theta: "θ", sigma: "σ",
    pi: "π", cdot: "·", times: "×", sqrt: "√", sum: "∑", le: "≤", ge: "≥",
    dots: "…", ldots: "…", cdots: "…", infty: "∞", in: "∈", approx: "≈",
  };

  /** A formula's LaTeX as a reader may say it. */
  function readable(tex) {
    return tex
      .replace(/\\[()[\]]/g, "")
      .replace(/\\(?:begin|end)\{\w+\*?\}|\\(?:left|right|[,;!&]|quad)/g, " ")
      .replace(/\\(?:text|math|operatorname)\w*\{([^{}]*)\}/g, "$1")
      .replace(/\\frac\{([^{}]*)\}\{([^{}]*)\}/g, "$1 / $2")
      .replace(/\\([a-zA-Z]+)/g, function (_, name) {
        return SIGNS[name] || name;
      })
      .replace(/[{}\\&]/g, "")
      .replace(/\s+/g, " ");
  }

  var textOf = Search.htmlToText;
  Search.htmlToText = function (page, anchor) {
    var parsed = new DOMParser().parseFromString(page, "text/html");
    parsed.querySelectorAll(NO_TEXT).forEach(function (part) {
      part.remove();
    });
    parsed.querySelectorAll(".math").forEach(function (formula) {
      formula.textContent = readable(formula.textContent);
    });
    return textOf(parsed.documentElement.outerHTML, anchor);
  };

  /** The words as the page has them, so that the excerpt is around one. */
  var summaryOf = Search.makeSearchSummary;
  Search.makeSearchSummary = function (page, words, anchor) {
    var text = Search.htmlToText(page, anchor);
    var found = new Set();
    words.forEach(function (word) {
      // Letters, digits and _ alone: `splitQuery` leaves no other sign.
      var seen = text.match(new RegExp(Array.from(word).join("-?"), "iu"));
      found.add(seen ? seen[0] : word);
    });
    return summaryOf(page, found, anchor);
  };
})();
