// A picture for each level of the zoom, with what is said of it.

import { el, INK, scroller, wash } from "./common.js";
import { NETWORK } from "./zoom_network.js";
import {
  counted,
  farthest,
  firsts,
  legend,
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
  SUBS,
  TITLES,
  upTo,
} from "./zoom_paths.js";

const shared = ({ d_k, h, d_model }) =>
  d_k * h === d_model ? `${d_k} = ${d_model} / ${h} heads` : `${d_k} = d_k`;

/** Weights as a map, one row for each query. */
function cells(model, name, head, row, attributes = () => ({})) {
  const [, , count] = model.shape(`${name}.weight`);
  return upTo(count).map((column) => {
    const masked = !model.get(`${name}.may`, row, column);
    const weight = model.get(`${name}.weight`, head, row, column);
    const look = masked ? "zoom-masked" : "";
    return el("span", {
      class: `zoom-cell ${look}`,
      style: `background-color: ${wash(INK.attention, weight)}`,
      ...attributes(column, weight, masked),
    });
  });
}

export const PICTURES = {
  model({ model, box }) {
    const { N, d_model, vocab_size } = model.sizes;
    const { source, target, next, languages } = model;
    const [from, to] = languages;
    const chips = (tokens, key) =>
      el(
        "ul",
        { class: "zoom-chips", "data-key": key },
        tokens.map((token) => el("li", {}, plain(token))),
      );
    const flat = (text, key, feeds) =>
      el("div", { class: "zoom-flat", "data-key": key, "data-feeds": feeds }, text);
    const up = () => el("span", { class: "zoom-arrow", "aria-hidden": "true" }, "↑");
    const big = (part, feeds, note) =>
      box(
        part,
        { class: `zoom-box zoom-${part}`, "data-key": part, "data-feeds": feeds },
        el("b", {}, part),
        el("small", {}, note),
      );
    return {
      words:
        "This is figure 1 of the paper, with our sentence in it. Open the " +
        "encoder or the decoder, and go on until you reach a single number. " +
        "Dashes mark what goes into the box that you point at.",
      picture: el(
        "div",
        { class: "zoom-model" },
        el(
          "div",
          {},
          big("encoder", "source", `${N} layers, read once`),
          up(),
          flat("embedding + positions", "source", "english"),
          up(),
          chips(source, "english"),
          el("small", {}, `${from}, what is read`),
        ),
        el(
          "div",
          { class: "zoom-memory", "data-key": "memory", "data-feeds": "encoder" },
          el("span", { "aria-hidden": "true" }, "→"),
          el("small", {}, "memory"),
          el("small", {}, `${source.length} × ${d_model}`),
        ),
        el(
          "div",
          {},
          el("small", {}, "what each position says next"),
          chips(next, "next"),
          up(),
          flat("linear + softmax", "scores", "decoder"),
          up(),
          big("decoder", "target memory", `${N} layers, all positions at once`),
          up(),
          flat("embedding + positions", "target", "spanish"),
          up(),
          chips(target, "spanish"),
          el("small", {}, `${to}, what is already written`),
        ),
      ),
      said: `“${model.text}” becomes “${model.said}”.`,
      sizes:
        `memory: ${source.length} tokens × ${d_model} = d_model · hidden: ` +
        `${target.length} positions × ${d_model} · logits: ${target.length} ` +
        `positions × ${vocab_size} tokens of the vocabulary`,
      numbers: {
        caption: "what each position of the decoder reads and says",
        head: ["position", "reads", "says next", "with probability"],
        rows: target.map((token, i) => [
          i + 1,
          plain(token),
          plain(next[i]),
          number(model.sure[i], 4),
        ]),
      },
    };
  },

  encoder: (show) => stack(show, "a vector for each English token"),
  decoder: (show) => stack(show, "a vector for each position"),

  layer({ model, path, box, strip }) {
    const [name, number] = path;
    const whole = at(path, 2);
    const tokens = model.tokens(name);
    const subs = SUBS[name];
    const parts = subs.flatMap((sub, i) => [
      strip(
        i ? `${whole}.${sub}` : whole,
        i ? "" : "what comes in",
        tokens,
        sub,
        i > 0,
      ),
      box(
        sub,
        {
          class: `zoom-box zoom-wide zoom-${name}`,
          "data-feeds": sub,
        },
        el("b", {}, TITLES[sub]),
        el(
          "small",
          {},
          sub === "cross_attention" ? "with the memory; " : "",
          model.norm === "post"
            ? "its input is added, then a norm"
            : "after a norm; its input is added",
        ),
      ),
    ]);
    const top = strip(`${whole}.out`, "what goes out", tokens, "out");
    const listed = subs.map((sub) => [
      `${whole}.${sub}`,
      `into ${TITLES[sub]}`,
    ]);
    return {
      words:
        `Read from below. Each colour is one of the ${model.sizes.d_model} ` +
        "numbers of a vector, and a sub-layer changes the colours but not " +
        "the shape.",
      picture: el("div", { class: "zoom-column" }, ...parts, top, legend(true)),
      said:
        `Layer ${number} of ${model.sizes.N} in the ${name}: ` +
        `${subs.map((sub) => TITLES[sub]).join(", then ")}.`,
      sizes:
        `x: ${tokens.length} positions × ${model.sizes.d_model} = d_model, ` +
        "before and after every sub-layer",
      numbers: firsts(
        model,
        [...listed, [`${whole}.out`, "out of the layer"]],
        tokens,
      ),
    };
  },

  attention({ model, path, box }) {
    const name = at(path, 3);
    const { rows, columns } = axes(model, path);
    const { h, d_k } = model.sizes;
    const of = (head, row) => model.get(`${name}.weight`, head, row);
    const heads = upTo(h).map((head) => {
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
    const all = upTo(h).flatMap((head) =>
      rows.map((_, row) => Math.max(...of(head, row))),
    );
    const most = largest(all);
    const [head, row] = [Math.floor(most / rows.length), most % rows.length];
    const best = largest(of(head, row));
    return {
      words:
        "Every head is a map: the word at the left looks at the words below, " +
        "and the stronger a cell's colour, the more of its attention goes " +
        "there." +
        (masks ? " A hatched cell is masked." : ""),
      picture: el("div", { class: "zoom-heads", style: `--heads: ${h}` }, heads),
      said:
        `${h} heads look in ${h} ways. The largest weight of all, ` +
        `${number(all[most])}, is in head ${head + 1}, from ${rows[row]} to ` +
        `${columns[best]}.`,
      sizes:
        `query: ${h} heads × ${rows.length} positions × ${d_k} · key: ` +
        `${h} heads × ${columns.length} positions × ${d_k} · ` +
        shared(model.sizes),
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
    const { d_k } = model.sizes;
    const region = scroller("the weights of this head");
    const lines = rows.map((word, row) => {
      const told = (column, weight, masked) =>
        masked ? "masked" : number(weight);
      const each = cells(model, name, head, row);
      const weights = model.get(`${name}.weight`, head, row);
      each.forEach((cell, i) => {
        const masked = !model.get(`${name}.may`, row, i);
        cell.textContent = told(i, weights[i], masked);
      });
      const spoken = each.map((cell, i) => `${columns[i]} ${cell.textContent}`);
      return box(
        row + 1,
        {
          class: "zoom-box zoom-line",
          "aria-label": `${word}: ${spoken.join(", ")}`,
          "data-feeds": "columns",
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
          { class: "zoom-line", "data-key": "columns" },
          el("span", { class: "zoom-word" }, "looks at"),
          columns.map((word) => el("span", {}, word)),
        ),
        lines,
      ),
    );
    const every = rows.flatMap((word, i) => model.get(`${name}.weight`, head, i));
    const most = largest(every);
    const count = columns.length;
    const score = (i, j) => number(model.get(`${name}.score`, head, i, j), 3);
    return {
      words:
        "Each row is one word's attention, shared out over the words at the " +
        "top. Open a row to see where its weights come from. Dashes mark " +
        "those words.",
      picture: region,
      said:
        `Every row sums to 1. The largest weight is ${number(every[most])}, ` +
        `from ${rows[Math.floor(most / count)]} to ${columns[most % count]}.`,
      sizes:
        `query ${rows.length} × ${d_k} times key.mT ${d_k} × ${count} gives ` +
        `scores ${rows.length} × ${count} · ${shared(model.sizes)}`,
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
    const best = largest(weights);
    const { d_k } = model.sizes;
    const next = path[0] === "decoder" ? model.next[path[4] - 1] : null;
    const says = next ? `, where ${plain(next)} comes next,` : "";
    return {
      words:
        `The softmax turns the scores of ${word}, at the left, into ` +
        "weights, which are positive and sum to 1. Open a key to see where " +
        "its score comes from, or the values to see what the weights are for.",
      picture: el(
        "div",
        { class: "zoom-row" },
        el(
          "div",
          { class: "zoom-titles" },
          el("span", {}, "key"),
          el("span", {}, `score, q · k ÷ √${d_k}`),
          el("span", {}, "weight, softmax of the scores"),
        ),
        columns.map((key, i) =>
          box(
            i + 1,
            {
              class: "zoom-box zoom-titles",
              "aria-label": may[i]
                ? `${key}: score ${number(scores[i])}, weight ${number(weights[i])}`
                : `${key}: masked`,
              "data-feeds": "every",
            },
            el("span", {}, key),
            bar(may[i] ? scores[i] : 0, most, "sign", may[i] ? number(scores[i]) : "masked", "every"),
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
      said:
        `${word}${says} looks most at ${columns[best]}: weight ` +
        `${number(weights[best])} of 1.`,
      sizes: `scores and weights of one row: ${columns.length}, one for each key`,
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
    const rank = now.weights.filter((one) => one > weight).length;
    const place = rank ? `number ${rank + 1} of` : "the largest of";
    const operand = (kind, i, value) =>
      box(
        `${kind}${i + 1}`,
        {
          class: `zoom-operand zoom-${kind}`,
          "data-key": `p${i}`,
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
              { class: "zoom-tile", "data-key": "tile" },
              operand("q", i, query[i]),
              operand("k", i, key[i]),
              el(
                "span",
                {
                  class: "zoom-product",
                  "data-feeds": `p${i}`,
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
          el("span", { "data-feeds": "tile" }, "sum ", el("b", {}, number(sum))),
          ` ÷ √${d_k} = `,
          el("span", {}, "score ", el("b", {}, number(score))),
          may ? ", softmax " : ", masked, ",
          el("span", {}, "weight ", el("b", {}, number(weight))),
        ),
        el(
          "div",
          { class: "zoom-softmax" },
          now.columns.map((other, i) =>
            el(
              "div",
              { class: i === column ? "zoom-here" : "" },
              el("span", {}, other),
              bar(now.weights[i], 1, "attention", now.may[i] ? number(now.weights[i]) : "masked"),
            ),
          ),
        ),
      ),
      said:
        `Score ${number(score)} = ${number(sum)} ÷ √${d_k}; ` +
        (may
          ? `weight ${number(weight)}, ${place} ${now.columns.length}.`
          : "but it is masked, so the weight is 0."),
      sizes: `query ${d_k} numbers, key ${d_k} numbers, so ${d_k} products: ${shared(model.sizes)}`,
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
    const best = largest(outputs.map(Math.abs));
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
          { class: "zoom-softmax" },
          columns.map((key, i) =>
            el(
              "div",
              {},
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
      said:
        `What this head says for ${word}: ${d_k} numbers; the largest in ` +
        `size is o${low(best + 1)}, ${number(outputs[best])}.`,
      sizes:
        `weights ${columns.length} times values ${columns.length} × ${d_k} ` +
        `gives ${d_k} numbers · ${shared(model.sizes)}`,
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
    const best = largest(parts[i].map(Math.abs));
    const own = values.map((value) => value[i]);
    return {
      words:
        `Number ${i + 1} of each key's value is multiplied by the key's ` +
        "weight. Open a key to see where its value's number comes from.",
      picture: el(
        "div",
        { class: "zoom-row" },
        el(
          "div",
          { class: "zoom-titles" },
          el("span", {}, "key"),
          el("span", {}, `weight × v${low(i + 1)}`),
          el("span", {}, "their product"),
        ),
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
      said:
        `o${low(i + 1)} of ${word} is ${number(total)}; most of it comes ` +
        `from ${columns[best]}, ${number(parts[i][best])}.`,
      sizes: `${columns.length} products, one for each key`,
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

function stack({ model, path, box, strip }, what) {
  const [name] = path;
  const { N, d_model } = model.sizes;
  const tokens = model.tokens(name);
  const layers = upTo(N).flatMap((i) => {
    const input = `${name}.layers.${i}`;
    const thin = i > 0;
    return [
      strip(input, thin ? "" : "words and places", tokens, `x${i}`, thin),
      box(
        i + 1,
        {
          class: `zoom-box zoom-wide zoom-${name}`,
          "data-feeds": `x${i}`,
        },
        el("b", {}, `layer ${i + 1}`),
        el(
          "small",
          {},
          SUBS[name].map((sub) => TITLES[sub]).join(", "),
        ),
      ),
    ];
  });
  const end = name === "encoder" ? "the memory" : "to the linear layer";
  return {
    words:
      `Read from below: what goes in is ${what}, ${d_model} numbers long and ` +
      "drawn as a row of colours, and every layer rewrites all of them.",
    picture: el(
      "div",
      { class: "zoom-column" },
      ...layers,
      strip(`${name}.out`, end, tokens, "out"),
      legend(true),
    ),
    said:
      `The ${name}: ${N} layers, one after the other. ${tokens.length} ` +
      `vectors go in and ${tokens.length} come out.`,
    sizes:
      `x: ${tokens.length} positions × ${d_model} = d_model · ` +
      `layers: ${N} = N`,
    numbers: firsts(
      model,
      [
        ...upTo(N).map((i) => [
          `${name}.layers.${i}`,
          `into layer ${i + 1}`,
        ]),
        [`${name}.out`, "out of the last"],
      ],
      tokens,
    ),
  };
}

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
function bar(value, most, kind, text, key = null) {
  const share = Math.abs(value) / most;
  const side = kind === "attention" ? "" : value < 0 ? "zoom-minus" : "zoom-plus";
  return el(
    "span",
    { class: `zoom-bar ${side}`, "data-key": key },
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
    axis: "d_model",
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
    said: `${own} = ${number(sum)}, the sum of ${d_model} products.`,
    ends: [["sum", sum]],
  });
}
