// The feed-forward network in the zoom: a position's vector, its inner
// numbers, and what makes one of them.

import { el } from "./common.js";
import {
  farthest,
  heads,
  legend,
  product,
  scaled,
  signed,
} from "./zoom_parts.js";
import { add, at, axes, number, symbol, upTo } from "./zoom_paths.js";

const MOST = 6; // numbers that can be opened from above

export const NETWORK = {
  feed_forward({ model, path, box, colours }) {
    const name = at(path, 3);
    const out = `${at(path, 2)}.out`;
    const { rows } = axes(model, path);
    const { d_model, d_ff } = model.sizes;
    const strip = (of, i) => {
      const most = farthest(model.get(of));
      return colours([model.get(of, i)], 20, (one) => signed(one, most));
    };
    return {
      words:
        `The network takes each vector by itself, widens it to ${d_ff} ` +
        "numbers, sets the negative ones to zero and comes back to " +
        `${d_model}. Open a position to see its vector on the way.`,
      picture: el(
        "div",
        { class: "zoom-row" },
        heads(
          "position",
          "what comes in",
          `what goes out, after the ${model.norm === "pre" ? "sum" : "norm"}`,
        ),
        rows.map((word, i) =>
          box(
            i + 1,
            { class: "zoom-box zoom-titles", "aria-label": word },
            el("span", {}, word),
            strip(name, i),
            strip(out, i),
          ),
        ),
        legend(),
      ),
      numbers: {
        caption: `the ${d_model} numbers of each vector that comes in`,
        head: ["j", ...rows],
        rows: upTo(d_model).map((j) => [
          j + 1,
          ...rows.map((_, i) => number(model.get(name, i, j), 3)),
        ]),
      },
    };
  },

  position({ model, path, box, colours }) {
    const { word, x, before, after, out } = widened(model, path);
    const { d_model, d_ff } = model.sizes;
    const zero = after.filter((one) => one === 0).length;
    const line = (title, values) => {
      const most = farthest(values);
      return el(
        "figure",
        {},
        el("figcaption", {}, scaled(title, most)),
        colours([values], 14, (one) => signed(one, most)),
      );
    };
    const tiles = (name, values) => {
      const most = farthest(values);
      const places = upTo(values.length)
        .sort((i, j) => Math.abs(values[j]) - Math.abs(values[i]))
        .slice(0, MOST);
      return el(
        "div",
        { class: "zoom-tiles" },
        places.map((i) => {
          const step = `${name}${i + 1}`;
          return box(
            step,
            {
              class: "zoom-operand zoom-named",
              style: `background-color: ${signed(values[i], 2 * most)}`,
              "aria-label": `${symbol(step)}: ${number(values[i])}`,
            },
            el("small", {}, symbol(step)),
            number(values[i]),
          );
        }),
      );
    };
    return {
      words:
        `The vector of ${word} is widened, loses its negative numbers, and ` +
        "is narrowed again. The tiles are the largest numbers. Open one; " +
        "then ‹ and › lead to all others.",
      picture: el(
        "div",
        { class: "zoom-product-chart" },
        line(`x: the vector of ${word}, ${d_model} numbers`, x),
        line(`x W₁ + b₁: ${d_ff} numbers of both signs`, before),
        line(`inner, after the ReLU: ${zero} of ${d_ff} are zero`, after),
        tiles("i", after),
        line(`y = inner W₂ + b₂: ${d_model} numbers again`, out),
        tiles("y", out),
        legend(),
      ),
      numbers: {
        caption: `the ${d_ff} inner numbers of ${word}`,
        head: ["j", "x W₁ + b₁", "after the ReLU"],
        rows: before.map((one, j) => [
          j + 1,
          number(one, 5),
          number(after[j], 5),
        ]),
      },
    };
  },

  i: (show) => made(show, "W₁", "b₁"),
  y: (show) => made(show, "W₂", "b₂"),
};

/** One number of what a matrix of the network makes. */
function made({ model, path }, matrix, bias) {
  const { word, x, after } = widened(model, path);
  const inner = matrix === "W₁";
  const [name, row] = [symbol(path[4]), Number(path[4].slice(1))];
  const from = inner ? x : after;
  const { weights, bias: added } = model.network(inner ? "1" : "2", row - 1);
  const sum = add(from.map((one, j) => one * weights[j]));
  const before = sum + added;
  const kept = inner ? Math.max(0, before) : before;
  return product({
    x: from,
    weights,
    symbol: name,
    of: word,
    from: inner ? "x" : "inner",
    captions: [
      inner ? `x: the vector of ${word}` : "inner, after the ReLU",
      `row ${row} of ${matrix}`,
    ],
    matrix,
    words: inner
      ? `x is the vector of ${word} in what goes into the network. Each of ` +
        "its numbers is multiplied by a learnt one, the products and a " +
        "learnt b₁ are added up, and a negative sum becomes zero."
      : "Each inner number is multiplied by a learnt one; where it is zero, " +
        "the weight is not used. The products and a learnt b₂ are added up.",
    equation: [
      `sum ${number(sum, 3)}, with ${bias} ${number(added, 3)} it is ` +
        `${number(before, 3)}${inner ? ", after the ReLU" : ""}: ${name} = `,
      el("b", {}, number(kept, 3)),
    ],
    ends: [
      ["sum", sum],
      [bias, added],
      [name, kept],
    ],
  });
}

/** One position on its way through the network of a path. */
function widened(model, path) {
  const place = path[3] - 1;
  const x = model.get(at(path, 3), place);
  const { d_model, d_ff } = model.sizes;
  const through = (kind, size, from) =>
    upTo(size).map((row) => {
      const { weights, bias } = model.network(kind, row);
      return add(from.map((one, j) => one * weights[j])) + bias;
    });
  const before = through("1", d_ff, x);
  const after = before.map((one) => Math.max(0, one));
  return {
    word: axes(model, path).rows[place],
    x,
    before,
    after,
    out: through("2", d_model, after),
  };
}
