// A model's numbers for one sentence, and the ways into them.
//
// A path is a list of steps from the model inwards: decoder, layer 2,
// cross_attention, head 3, row 3, column 3, q7. An address has the same
// steps with dots between them.

import { upTo } from "./common.js";
import { SIDES } from "./transformer.js";
import { readable as plain } from "./words.js";

export { decimal as number, upTo } from "./common.js";
export { plain };

export const TITLES = {
  self_attention: "self-attention",
  cross_attention: "cross-attention",
  feed_forward: "feed-forward",
};

export const low = (number) =>
  String(number).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]);
export const largest = (list) => list.indexOf(Math.max(...list));
export const add = (list) => list.reduce((sum, one) => sum + one, 0);

/** What is known of a model; `look()` gives what `inside` finds in it. */
export function open(about, look) {
  const { d_k, d_model, d_ff } = about.sizes;
  const places = {}; // of arrays in the numbers
  let numbers = null;
  let matrices = null;
  const part = (from, size) => [...matrices.subarray(from, from + size)];
  return {
    ...about,
    /** All that the level of a path needs. */
    async fetch(path) {
      if (!path.length) return;
      const { about: found, files } = await look();
      let offset = 0;
      for (const [name, shape] of found.arrays) {
        places[name] = [offset, shape];
        offset += shape.reduce((size, axis) => size * axis);
      }
      numbers ??= files["numbers.bin"]();
      const name = fileOf(path);
      if (name) matrices = files[name]();
    },
    shape: (name) => places[name][1],
    /** A row of an array, or one number: its indices from the left. */
    get(name, ...indices) {
      const [start, shape] = places[name];
      let [from, size] = [start, shape.reduce((all, axis) => all * axis)];
      indices.forEach((index, axis) => {
        size /= shape[axis];
        from += index * size;
      });
      if (indices.length === shape.length) return numbers[from];
      return [...numbers.subarray(from, from + size)];
    },
    /** A row of W_Q, W_K or W_V of the head that was fetched. */
    matrix(kind, row) {
      const from = ("qkv".indexOf(kind) * d_k + row) * d_model;
      return part(from, d_model);
    },
    /** A row of W_1 or W_2 of the network that was fetched, and its bias. */
    network(kind, row) {
      const second = d_ff * (d_model + 1); // behind W_1 and b_1
      const [start, rows, length] =
        kind === "1" ? [0, d_ff, d_model] : [second, d_model, d_ff];
      const [bias] = part(start + rows * length + row, 1);
      return { weights: part(start + row * length, length), bias };
    },
    tokens: (stack) => about[stack === "encoder" ? "source" : "target"],
  };
}

/** The file of the matrices that the level of a path needs. */
function fileOf(path) {
  const name = at(path, 3);
  if (path[2] === "feed_forward")
    return path.length > 3 ? `${name}.bin` : null;
  return path.length > 6 ? `${name}.${path[3] - 1}.bin` : null;
}

/** The library's name of what a path leads to, `depth` steps deep. */
export function at(path, depth) {
  const [stack, layer, sub] = path;
  const names = [stack, `layers.${layer - 1}`, sub];
  return names.slice(0, depth).join(".");
}

/** What an attention's rows and columns are. */
export function axes(model, [stack, , sub]) {
  const source = sub === "cross_attention" ? "encoder" : stack;
  return {
    rows: model.tokens(stack).map(plain),
    columns: model.tokens(source).map(plain),
  };
}

/** Of a number's path: of the query, the key or the output of a head;
 * of a network between its two matrices, or what comes out. */
function letter(path) {
  if (path[2] === "feed_forward") return path[4].startsWith("y") ? "y" : "i";
  if (path[5] === "values") return "o";
  return path[6].startsWith("k") ? "k" : "q";
}

/** The last steps that a path may have instead of its own. */
export function siblings(model, path) {
  const { N, h, d_k, d_ff, d_model } = model.sizes;
  const network = path[2] === "feed_forward";
  const counted = (count) => upTo(count).map((i) => String(i + 1));
  switch (path.length) {
    case 1:
      return ["encoder", "decoder"];
    case 2:
      return counted(N);
    case 3:
      return SIDES[path[0]];
    case 4:
      return counted(network ? axes(model, path).rows.length : h);
    case 5:
      return network
        ? counted(letter(path) === "y" ? d_model : d_ff).map(
            (i) => letter(path) + i,
          )
        : counted(axes(model, path).rows.length);
    case 6:
      if (network) return [];
      return [...counted(axes(model, path).columns.length), "values"];
    case 7:
      return counted(d_k).map((i) => letter(path) + i);
    case 8:
      return letter(path) === "o"
        ? counted(axes(model, path).columns.length)
        : [];
    default:
      return [];
  }
}

/** A path from an address; the model itself if it leads nowhere.
 *
 * A stack or a layer alone is no level: the model shows them all.
 */
export function find(model, text = "") {
  const path = text.split(".");
  const good = path.every((last, i) =>
    siblings(model, path.slice(0, i + 1)).includes(last),
  );
  return good && path.length > 2 ? path : [];
}

/** A number of a vector, q7 or i12, as the reader sees it. */
export function symbol(step) {
  const name = step.startsWith("i") ? "inner" : step[0];
  return name + low(step.slice(1));
}

/** A path's last step, as the reader sees it. */
export function title(model, path) {
  const last = path.at(-1);
  const network = path[2] === "feed_forward";
  const word = (place) => axes(model, path).rows[place - 1];
  switch (path.length) {
    case 0:
      return "model";
    case 3:
      return `${path[0]} ${path[1]}, ${TITLES[last]}`;
    case 4:
      return network ? word(last) : `head ${last}`;
    case 5:
      return network ? symbol(last) : word(last);
    case 7:
      return symbol(last);
    default:
      return last === "values" ? last : axes(model, path).columns[last - 1];
  }
}

/** What is shown: the key of its lines of code. */
export function level(path) {
  if (!path.length) return "model";
  const kinds =
    path[2] === "feed_forward"
      ? ["feed_forward", "position", path[4]?.[0]]
      : [
          "attention",
          "head",
          "row",
          path[5] === "values" ? "values" : "cell",
          path[6]?.[0],
          "v",
        ];
  return kinds[path.length - 3];
}
