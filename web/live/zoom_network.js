// The feed-forward network in the zoom: a position's vector, its inner
// numbers, and what makes one of them.

import { el } from "./common.js";
import {
  farthest,
  firsts,
  legend,
  product,
  scaled,
  signed,
} from "./zoom_parts.js";
import { add, at, axes, largest, number, symbol, upTo } from "./zoom_paths.js";

const MOST = 12; // numbers that can be opened from above

export const NETWORK = {
  feed_forward({ model, path, box, colours }) {
    const name = at(path, 3);
    const { rows } = axes(model, path);
    const { d_model, d_ff } = model.sizes;
    const most = farthest(model.get(name));
    return {
      words:
        `The network takes each vector by itself, widens it to ${d_ff} ` +
        "numbers, sets the negative ones to zero and comes back to " +
        `${d_model}. Open a position to see its vector on the way.`,
      picture: el(
        "div",
        { class: "zoom-row" },
        el("small", {}, scaled("what comes in", most)),
        rows.map((word, i) =>
          box(
            i + 1,
            { class: "zoom-box zoom-vector", "aria-label": word },
            el("span", {}, word),
            colours([model.get(name, i)], most, 14),
          ),
        ),
        legend(),
      ),
      said:
        `${rows.length} vectors, one after the other, through the same ` +
        "network: no position looks at another.",
      sizes: `inner: ${rows.length} positions × ${d_ff} = d_ff, and back to ${d_model} = d_model`,
      numbers: firsts(
        model,
        [[name, "what comes in"]],
        model.tokens(path[0]),
      ),
    };
  },

  position({ model, path, box, colours }) {
    const { word, x, before, after, out } = widened(model, path);
    const { d_model, d_ff } = model.sizes;
    const zero = after.filter((one) => one === 0).length;
    const best = largest(after);
    const line = (title, values) =>
      el(
        "figure",
        {},
        el("figcaption", {}, scaled(title, farthest(values))),
        colours([values], farthest(values), 14),
      );
    const tiles = (name, values) => {
      const most = farthest(values);
      const places = upTo(values.length)
        .sort((i, j) => Math.abs(values[j]) - Math.abs(values[i]))
        .slice(0, MOST);
      return el(
        "div",
        { class: "zoom-tiles zoom-largest" },
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
      said:
        `For ${word}, ${zero} of the ${d_ff} inner numbers are zero. The ` +
        `largest is ${symbol(`i${best + 1}`)}, ${number(after[best])}.`,
      sizes:
        `W₁: d_ff × d_model = ${d_ff} × ${d_model} · ` +
        `W₂: d_model × d_ff = ${d_model} × ${d_ff}`,
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

  i({ model, path }) {
    const { word, x } = widened(model, path);
    const name = symbol(path[4]);
    const row = Number(path[4].slice(1));
    const { weights, bias } = model.network("1", row - 1);
    const sum = add(x.map((one, j) => one * weights[j]));
    const before = sum + bias;
    const kept = Math.max(0, before);
    return product({
      x,
      weights,
      symbol: name,
      of: word,
      from: "x",
      axis: "d_model",
      captions: [`x: the vector of ${word}`, `row ${row} of W₁`],
      look: "zoom-plain",
      matrix: "W₁",
      words:
        `x is the vector of ${word} in what goes into the network. Each of ` +
        "its numbers is multiplied by a learnt one, the products and a " +
        "learnt b₁ are added up, and a negative sum becomes zero.",
      equation: [
        `sum ${number(sum, 3)}, with b₁ ${number(bias, 3)} it is `,
        el("b", {}, number(before, 3)),
        ", after the ReLU ",
        el("b", {}, number(kept, 3)),
        ` = ${name}`,
      ],
      said:
        `${name} is ${number(kept)}: ` +
        (before > 0
          ? "the sum is positive, so the ReLU leaves it."
          : `the sum is ${number(before)}, so the ReLU makes it zero.`),
      ends: [
        ["sum", sum],
        ["b₁", bias],
        ["with b₁", before],
        ["after the ReLU", kept],
      ],
    });
  },

  y({ model, path }) {
    const { word, after } = widened(model, path);
    const name = symbol(path[4]);
    const row = Number(path[4].slice(1));
    const { weights, bias } = model.network("2", row - 1);
    const sum = add(after.map((one, j) => one * weights[j]));
    const used = after.filter((one) => one > 0).length;
    return product({
      x: after,
      weights,
      symbol: name,
      of: word,
      from: "inner",
      axis: "d_ff",
      captions: ["inner, after the ReLU", `row ${row} of W₂`],
      look: "zoom-plain",
      matrix: "W₂",
      words:
        "Each inner number is multiplied by a learnt one; where it is zero, " +
        "the weight is not used. The products and a learnt b₂ are added up.",
      equation: [
        `sum ${number(sum, 3)}, with b₂ ${number(bias, 3)} it is `,
        el("b", {}, number(sum + bias, 3)),
        ` = ${name}, a number of what comes out for ${word}`,
      ],
      said:
        `${name} = ${number(sum + bias)}. Of its ${after.length} products ` +
        `${used} are not zero.`,
      ends: [
        ["sum", sum],
        ["b₂", bias],
        ["with b₂", sum + bias],
      ],
    });
  },
};

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
