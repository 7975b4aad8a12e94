// Ribbons between two lines of words: how much one looked at another.

import { svg } from "./common.js";

const THICK = 24; // pixels of a ribbon that has all the attention
const LEAST = 0.1; // an attention that is drawn
const FEWER = 0.25; // the same where the sentence has several lines

/** Fill `arcs`, which lies over `node`, with bands from chip to chip.
 *
 * `looked(from, to)` is a share from 0 to 1, of the chips' numbers. Behind
 * another line of words a band goes straight down, and comes out where it
 * went in.
 */
export function ribbons(arcs, node, { source, target }, looked) {
  const box = node.getBoundingClientRect();
  if (!box.width || !source.length || !target.length) return;
  arcs.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
  const centre = (chip) => {
    const { left, top, width, height } = chip.getBoundingClientRect();
    return [left + width / 2 - box.left, top - box.top, height];
  };
  const tops = source.map((chip) => centre(chip)[1]);
  const under = Math.max(...tops) + centre(source[0])[2];
  const above = Math.min(...target.map((chip) => centre(chip)[1]));
  const bend = (under + above) / 2;
  const least = new Set(tops).size > 1 ? FEWER : LEAST;
  const bands = [];
  for (const [to, below] of target.entries())
    for (const [from, chip] of source.entries()) {
      const share = looked(from, to);
      if (share < least) continue;
      const [x1, y1] = centre(below);
      const [x0, top, high] = centre(chip);
      const y0 = top + high;
      const half = (share * THICK) / 2;
      const band = svg("path", {
        "data-source": from,
        "data-target": to,
        d:
          `M${x0 - half} ${y0}V${under}C${x0 - half} ${bend} ` +
          `${x1 - half} ${bend} ${x1 - half} ${above}V${y1}` +
          `H${x1 + half}V${above}C${x1 + half} ${bend} ` +
          `${x0 + half} ${bend} ${x0 + half} ${under}V${y0}Z`,
      });
      bands.push({ share, band });
    }
  bands.sort((one, other) => one.share - other.share); // strongest in front
  arcs.replaceChildren(...bands.map(({ band }) => band));
}

/** Leave the ribbons of one word strong, in front; or all, if it is null. */
export function point(arcs, side, number) {
  const strong = (path) =>
    number === null || Number(path.dataset[side]) === number;
  const paths = [...arcs.children];
  for (const path of paths)
    path.classList.toggle("ribbon-dim", !strong(path));
  if (number !== null) arcs.append(...paths.filter(strong));
}
