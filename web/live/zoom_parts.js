// What several pictures of the zoom are made of.

import { el, INK, ink, scroller, svg } from "./common.js";
import { largest, number } from "./zoom_paths.js";

/** The colour of a number of either sign. */
export const signed = (value, most) =>
  ink(value < 0 ? INK.negative : INK.positive, Math.abs(value) / most);
/** The largest size of a number, to be divided by. */
export const farthest = (list) => Math.max(...list.map(Math.abs)) || 1;

/** What the colours of a vector mean. */
export function legend() {
  const patch = (colour) =>
    el("i", { style: `background: ${colour}`, "aria-hidden": "true" });
  return el(
    "p",
    { class: "zoom-legend" },
    patch(INK.negative),
    " negative, ",
    patch(INK.positive),
    " positive, fullest at the size written.",
  );
}

/** The names of three columns. */
export const heads = (...names) =>
  el(
    "div",
    { class: "zoom-titles" },
    names.map((name) => el("span", {}, name)),
  );

/** A title with the size that the fullest colour of a strip has. */
export const scaled = (title, most) => `${title}, up to ±${number(most)}`;

/** A table of products: of what, by what, and what they come to. */
export function multiplied(caption, [name, left, right], { names, x, y, ends }) {
  const product = (i) => number(x[i] * y[i], 5);
  return {
    caption,
    head: [name, left, right, "product"],
    rows: [
      ...names.map((one, i) => [
        one,
        number(x[i], 5),
        number(y[i], 5),
        product(i),
      ]),
      ...ends.map(([end, value]) => [end, "", "", number(value, 5)]),
    ],
  };
}
export const counted = (list) => list.map((_, i) => i + 1);

/** One number that a row of a matrix makes of a vector. */
export function product(what) {
  const { x, weights, symbol: own, of, from, matrix } = what;
  const size = x.length;
  const products = x.map((one, j) => one * weights[j]);
  const best = largest(products.map(Math.abs));
  const readout = el("p", { class: "zoom-read" });
  const tell = (j) =>
    (readout.textContent =
      `number ${j + 1} of ${size}${j === best ? ", the largest in size" : ""}: ` +
      `${number(x[j], 3)} × ${number(weights[j], 3)} = ` +
      number(products[j], 3));
  const chart = (values, title, kind) => {
    const most = farthest(values);
    return el(
      "figure",
      {},
      el("figcaption", {}, title),
      svg(
        "svg",
        {
          viewBox: `0 0 ${size} 2`,
          preserveAspectRatio: "none",
          "aria-hidden": "true",
          class: kind,
        },
        values.map((value, j) =>
          svg("rect", {
            x: j + 0.1,
            y: value > 0 ? 1 - value / most : 1,
            width: 0.8,
            height: Math.abs(value) / most,
            class: value < 0 ? "zoom-minus" : "zoom-plus",
            "data-number": j,
          }),
        ),
      ),
    );
  };
  const region = scroller(`the products that make ${own}`);
  region.classList.add("zoom-product-chart");
  region.append(
    chart(x, what.captions[0]),
    chart(weights, what.captions[1], what.look),
    chart(products, "their products", "zoom-signed"),
    readout,
    el("p", { class: "zoom-equation" }, what.equation),
  );
  const mark = (j) => {
    tell(j);
    for (const one of region.querySelectorAll("rect"))
      one.classList.toggle("zoom-lit", one.dataset.number === String(j));
  };
  mark(best);
  region.onpointerdown = region.onpointermove = (event) => {
    const picture = event.target.closest("svg");
    if (!picture) return;
    const box = picture.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    const j = Math.floor(share * size);
    mark(Math.min(size - 1, Math.max(0, j)));
  };
  return {
    words: what.words,
    picture: region,
    numbers: multiplied(
      `the ${size} products that make ${own} of ${of}`,
      ["j", from, matrix],
      { names: counted(x), x, y: weights, ends: what.ends },
    ),
  };
}
