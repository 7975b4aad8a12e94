// A picture for each level of the zoom, with what is said of it.

import { el, INK, scroller, wash } from "./common.js";
import { NETWORK } from "./zoom_network.js";
import {
  counted,
  farthest,
  heads,
  multiplied,
  product,
  signed,
} from "./zoom_parts.js";
import {
  add,
  at,
  axes,
  largest,
  low,
  number,
  plain,
  TITLES,
  upTo,
} from "./zoom_paths.js";

/** Weights as a row of cells, `told` with their numbers. */
function cells(model, name, head, row, told = false) {
  const [, , count] = model.shape(`${name}.weight`);
  return upTo(count).map((column) => {
    const masked = !model.get(`${name}.may`, row, column);
    const weight = model.get(`${name}.weight`, head, row, column);
    return el(
      "span",
      {
        class: masked ? "zoom-cell zoom-masked" : "zoom-cell",
        style: `background-color: ${wash(INK.attention, weight)}`,
      },
      told ? (masked ? "masked" : number(weight)) : "",
    );
  });
}

export const PICTURES = {
  model({ model }) {
    const { target, next, sure, sizes, text, said, languages } = model;
    const [from, to] = languages;
    const names = ["has read", "says next", "with probability"];
    return {
      words:
        `This is figure 1 of the paper, at work: it reads “${text}”` +
        `${from && ` in ${from}`} and writes “${said}”` +
        `${to && ` in ${to}`}. Every vector has ` +
        `${sizes.d_model} numbers, and the last linear layer and softmax ` +
        `choose among ${sizes.vocab_size} tokens. Open any box, and go on ` +
        "until you reach a single number.",
      picture: el(
        "div",
        { class: "zoom-row" },
        heads(...names),
        target.map((token, i) =>
          el(
            "div",
            { class: "zoom-titles zoom-total" },
            el("span", {}, i ? `… ${plain(token)}` : token),
            el("b", {}, plain(next[i])),
            bar(sure[i], 1, "decoder", number(sure[i])),
          ),
        ),
      ),
      numbers: {
        caption: "what each position of the decoder reads and says",
        head: ["position", ...names],
        rows: target.map((token, i) => [
          i + 1,
          plain(token),
          plain(next[i]),
          number(sure[i], 4),
        ]),
      },
    };
  },

  attention({ model, path, box }) {
    const name = at(path, 3);
    const { rows, columns } = axes(model, path);
    const { h } = model.sizes;
    const of = (head, row) => model.get(`${name}.weight`, head, row);
    const maps = upTo(h).map((head) => {
      const looks = rows.map((word, row) => {
        const weights = of(head, row);
        const best = largest(weights);
        return `${word} at ${columns[best]} ${number(weights[best])}`;
      });
      return box(
        head + 1,
        {
          class: "zoom-box zoom-mini",
          style: `--columns: ${columns.length}`,
          "aria-label": `head ${head + 1}, looks most: ${looks.join(", ")}`,
        },
        el("b", {}, `head ${head + 1}`),
        rows.map((word, row) =>
          el(
            "span",
            { class: "zoom-line" },
            el("span", { class: "zoom-word" }, word),
            ...cells(model, name, head, row),
          ),
        ),
        el(
          "span",
          { class: "zoom-line zoom-below" },
          el("span", { class: "zoom-word" }),
          columns.map((word) => el("span", {}, word)),
        ),
      );
    });
    const masks = rows.some((_, row) =>
      columns.some((_, column) => !model.get(`${name}.may`, row, column)),
    );
    return {
      words:
        "Every head is a map: the word at the left looks at the words below, " +
        "and the stronger a cell's colour, the more of its attention goes " +
        "there." +
        (masks ? " A hatched cell is masked." : ""),
      picture: el("div", { class: "zoom-heads" }, maps),
      numbers: {
        caption: "for each query and head the key that gets most, its weight",
        head: ["query", ...upTo(h).map((i) => `head ${i + 1}`)],
        rows: rows.map((word, i) => [
          word,
          ...upTo(h).map((one) => {
            const weights = of(one, i);
            const key = largest(weights);
            return `${columns[key]} ${number(weights[key], 3)}`;
          }),
        ]),
      },
    };
  },

  head({ model, path, box }) {
    const name = at(path, 3);
    const head = path[3] - 1;
    const { rows, columns } = axes(model, path);
    const region = scroller("the weights of this head");
    const lines = rows.map((word, row) => {
      const each = cells(model, name, head, row, true);
      const spoken = each.map((cell, i) => `${columns[i]} ${cell.textContent}`);
      return box(
        row + 1,
        {
          class: "zoom-box zoom-line",
          "aria-label": `${word}: ${spoken.join(", ")}`,
        },
        el("span", { class: "zoom-word" }, word),
        ...each,
      );
    });
    region.append(
      el(
        "div",
        { class: "zoom-map", style: `--columns: ${columns.length}` },
        el(
          "div",
          { class: "zoom-line" },
          el("span", { class: "zoom-word" }, "looks at"),
          columns.map((word) => el("span", {}, word)),
        ),
        lines,
      ),
    );
    const every = rows.flatMap((word, i) => model.get(`${name}.weight`, head, i));
    const count = columns.length;
    const score = (i, j) => number(model.get(`${name}.score`, head, i, j), 3);
    return {
      words:
        "Each row is one word's attention, shared out over the words at the " +
        "top; a row sums to 1. Open a row to see where its weights come from.",
      picture: region,
      numbers: {
        caption: "score → weight, a row for each query",
        head: ["query", ...columns, "sum of the weights"],
        rows: rows.map((word, i) => [
          word,
          ...columns.map((_, j) =>
            model.get(`${name}.may`, i, j)
              ? `${score(i, j)} → ${number(every[i * count + j], 3)}`
              : "masked",
          ),
          number(add(every.slice(i * count, (i + 1) * count)), 3),
        ]),
      },
    };
  },

  row({ model, path, box }) {
    const now = row(model, path);
    const { word, columns, scores, weights, may, grown } = now;
    const most = farthest(scores);
    const { d_k } = model.sizes;
    return {
      words:
        `The softmax turns the scores of ${word}, at the left, into ` +
        "weights, which are positive and sum to 1. Open a key to see where " +
        "its score comes from, or the values to see what the weights are for.",
      picture: el(
        "div",
        { class: "zoom-row" },
        heads("key", `score, q · k ÷ √${d_k}`, "weight, softmax of scores"),
        columns.map((key, i) =>
          box(
            i + 1,
            {
              class: "zoom-box zoom-titles",
              "aria-label": may[i]
                ? `${key}: score ${number(scores[i])}, weight ${number(weights[i])}`
                : `${key}: masked`,
            },
            el("span", {}, key),
            bar(may[i] ? scores[i] : 0, most, "sign", may[i] ? number(scores[i]) : "masked"),
            bar(weights[i], 1, "attention", number(weights[i])),
          ),
        ),
        el(
          "div",
          { class: "zoom-titles zoom-total" },
          el("span", {}, "sum"),
          el("span", {}),
          el("span", {}, number(add(weights))),
        ),
        box(
          "values",
          { class: "zoom-box" },
          el("b", {}, "values"),
          el("small", {}, " what the weights carry away"),
        ),
      ),
      numbers: {
        caption: "the softmax: exp of each score less the largest, and its share",
        head: ["key", "score", "exp", "weight"],
        rows: [
          ...columns.map((key, i) => [
            key,
            may[i] ? number(scores[i], 5) : "masked",
            may[i] ? number(grown[i], 5) : "0",
            number(weights[i], 5),
          ]),
          ["sum", "", number(add(grown), 5), number(add(weights), 5)],
        ],
      },
    };
  },

  cell({ model, path, box }) {
    const now = row(model, path);
    const column = path[5] - 1;
    const name = at(path, 3);
    const head = path[3] - 1;
    const query = model.get(`${name}.q`, head, path[4] - 1);
    const key = model.get(`${name}.k`, head, column);
    const products = query.map((one, i) => one * key[i]);
    const sum = add(products);
    const most = farthest(products);
    const { d_k } = model.sizes;
    const score = now.scores[column];
    const weight = now.weights[column];
    const may = now.may[column];
    const word = now.columns[column];
    const operand = (kind, i, value) =>
      box(
        `${kind}${i + 1}`,
        {
          class: `zoom-operand zoom-${kind}`,
          "aria-label": `${kind}${low(i + 1)}: ${number(value)}`,
        },
        number(value),
      );
    return {
      words: [
        "Each tile multiplies a number of the ",
        el("mark", { class: "zoom-query" }, `query of ${now.word}`),
        " by the one below it, of the ",
        el("mark", { class: "zoom-key" }, `key of ${word}`),
        ", and has the product underneath. Open a number to see where it " +
          "comes from.",
      ],
      picture: el(
        "div",
        { class: "zoom-score" },
        el(
          "div",
          { class: "zoom-tiles" },
          products.map((product, i) =>
            el(
              "div",
              { class: "zoom-tile" },
              operand("q", i, query[i]),
              operand("k", i, key[i]),
              el(
                "span",
                {
                  class: "zoom-product",
                  style: `background-color: ${signed(product, 2 * most)}`,
                },
                number(product, Math.abs(product) < 9.995 ? 2 : 1),
              ),
            ),
          ),
        ),
        el(
          "p",
          { class: "zoom-equation" },
          el("span", {}, "sum ", el("b", {}, number(sum))),
          ` ÷ √${d_k} = `,
          el("span", {}, "score ", el("b", {}, number(score))),
          may ? ", softmax " : ", masked, ",
          el("span", {}, "weight ", el("b", {}, number(weight))),
        ),
      ),
      numbers: multiplied(
        `the ${d_k} products of ${now.word} and ${word}`,
        ["i", "q", "k"],
        {
          names: counted(query),
          x: query,
          y: key,
          ends: [
            ["sum", sum],
            [`÷ √${d_k}`, score],
          ],
        },
      ),
    };
  },

  values({ model, path, box }) {
    const { word, columns, weights, parts } = mixed(model, path);
    const outputs = parts.map(add);
    const { d_k } = model.sizes;
    const most = farthest(outputs);
    return {
      words:
        `Each of the ${d_k} numbers below is the same mixture: the values' ` +
        "numbers at that place, each times its key's weight, added up. " +
        "Open one to see it mixed.",
      picture: el(
        "div",
        { class: "zoom-score" },
        el(
          "div",
          { class: "zoom-row" },
          columns.map((key, i) =>
            el(
              "div",
              { class: "zoom-titles zoom-total" },
              el("span", {}, key),
              bar(weights[i], 1, "attention", number(weights[i])),
            ),
          ),
        ),
        el(
          "div",
          { class: "zoom-tiles" },
          outputs.map((one, i) =>
            box(
              `o${i + 1}`,
              {
                class: "zoom-operand",
                style: `background-color: ${signed(one, 2 * most)}`,
                "aria-label": `o${low(i + 1)}: ${number(one)}`,
              },
              number(one),
            ),
          ),
        ),
      ),
      numbers: {
        caption: "weight · value of each key, and their sum, the output",
        head: ["i", ...columns, "output"],
        rows: parts.map((part, i) => [
          i + 1,
          ...part.map((one) => number(one, 5)),
          number(outputs[i], 5),
        ]),
      },
    };
  },

  o({ model, path, box }) {
    const { word, columns, weights, values, parts } = mixed(model, path);
    const i = Number(path[6].slice(1)) - 1;
    const total = add(parts[i]);
    const most = farthest(parts[i]);
    const own = values.map((value) => value[i]);
    return {
      words:
        `Number ${i + 1} of each key's value is multiplied by the key's ` +
        "weight. Open a key to see where its value's number comes from.",
      picture: el(
        "div",
        { class: "zoom-row" },
        heads("key", `weight × v${low(i + 1)}`, "their product"),
        columns.map((key, j) =>
          box(
            j + 1,
            {
              class: "zoom-box zoom-titles",
              "aria-label": `${key}: weight ${number(weights[j])} times value ${number(own[j])}`,
            },
            el("span", {}, key),
            el("span", {}, `${number(weights[j])} × ${number(own[j])}`),
            bar(parts[i][j], most, "value", number(parts[i][j])),
          ),
        ),
        el(
          "div",
          { class: "zoom-titles zoom-total" },
          el("span", {}, "sum"),
          el("span", {}),
          el("span", {}, number(total)),
        ),
      ),
      numbers: multiplied(
        `the products that make o${low(i + 1)} of ${word}`,
        ["key", "weight", "value"],
        { names: columns, x: weights, y: own, ends: [["sum", total]] },
      ),
    };
  },

  ...NETWORK,
  q: (show) => projected(show, "query"),
  k: (show) => projected(show, "key"),
  v: (show) => projected(show, "value"),
};

/** One query's scores and weights, over all keys. */
function row(model, path) {
  const name = at(path, 3);
  const [head, query] = [path[3] - 1, path[4] - 1];
  const { rows, columns } = axes(model, path);
  const scores = model.get(`${name}.score`, head, query);
  const may = model.get(`${name}.may`, query);
  const top = Math.max(...scores.filter((_, i) => may[i]));
  return {
    word: rows[query],
    columns,
    scores,
    may,
    weights: model.get(`${name}.weight`, head, query),
    grown: scores.map((one, i) => (may[i] ? Math.exp(one - top) : 0)),
  };
}

/** One query's values: `parts` are weight · value, a row a number. */
function mixed(model, path) {
  const now = row(model, path);
  const name = `${at(path, 3)}.v`;
  const values = now.columns.map((_, j) => model.get(name, path[3] - 1, j));
  const parts = upTo(model.sizes.d_k).map((i) =>
    values.map((value, j) => now.weights[j] * value[i]),
  );
  return { ...now, values, parts };
}

/** A bar with its number; of both signs from the middle. */
function bar(value, most, kind, text) {
  const share = Math.abs(value) / most;
  const signed = kind === "sign" || kind === "value";
  const side = !signed ? "" : value < 0 ? "zoom-minus" : "zoom-plus";
  return el(
    "span",
    { class: `zoom-bar ${side}` },
    el("i", { class: `zoom-${kind}`, style: `--share: ${share}` }),
    el("span", {}, text),
  );
}

/** One number of a query, key or value. */
function projected({ model, path }, kind) {
  const name = at(path, 3);
  const [, , sub] = path;
  const index = Number(path[6].slice(1));
  const { rows, columns } = axes(model, path);
  const { d_model } = model.sizes;
  const isQuery = kind === "query";
  const place = { query: path[4], key: path[5], value: path[7] }[kind] - 1;
  const word = (isQuery ? rows : columns)[place];
  const crossing = sub === "cross_attention" && !isQuery;
  const x = model.get(crossing ? "encoder.out" : name, place);
  const weights = model.matrix(kind[0], index - 1);
  const sum = add(x.map((one, j) => one * weights[j]));
  const own = kind[0] + low(index);
  const matrix = `W_${kind[0].toUpperCase()}`;
  const entered = crossing
    ? "the memory"
    : `what goes into the ${TITLES[sub]} of this layer`;
  return product({
    x,
    weights,
    symbol: own,
    of: word,
    from: "x",
    captions: [
      `x: the vector of ${word}`,
      `row ${index} of this head's ${matrix}`,
    ],
    look: `zoom-${kind}`,
    matrix,
    words:
      `x is the vector of ${word} in ${entered}. Each of its numbers is ` +
      "multiplied by a learnt one, and the products are added up.",
    equation: [
      "sum ",
      el("b", {}, number(sum, 3)),
      ` = ${own}, a number of the ${kind} of ${word}`,
    ],
    ends: [["sum", sum]],
  });
}
