// What happens inside the reader's own model while it reads one sentence.
//
// The numbers and their names are those that web/make_data.py writes of
// the shipped model, so that one part of the book shows either.

import { joined } from "./arrays.js";
import { batch, TOGETHER } from "./learner.js";

const SHOWN = 8; // words of its translation: at first it repeats one
const SUBS = { encoder: ["self"], decoder: ["self", "cross"] };

/** Run "I like trees" through the model: what `open` in zoom_paths.js
 * takes, and by their names the files that it asks for.
 *
 * The decoder is given the right words, as in training.
 */
export function lookInside(learner) {
  const { model, vocabulary } = learner;
  const { N, h, d_model, d_ff } = model.sizes;
  const d_k = d_model / h;
  const said = learner.translate(learner.asked[0]);
  const rest = said.length > SHOWN ? " …" : "";
  const { source, target } = batch(Array(TOGETHER).fill(learner.asked));
  const [seen, scores] = watched(model, source, target);
  const { length } = target;
  const named = (ids) => [...ids].map((id) => vocabulary[id]);
  const rows = ({ data }, count) => data.slice(0, count * d_model);

  const arrays = []; // [name, shape, numbers]
  const files = {};
  for (const side of ["encoder", "decoder"]) {
    const count = side === "encoder" ? source.length : length;
    const vectors = (name, { x }) =>
      arrays.push([name, [count, d_model], rows(x, count)]);
    for (let i = 0; i < N; i++) {
      const own = `${side}.${i}`;
      const path = `${side}.layers.${i}`;
      const first = seen[`${own}.self_attention.w_q`];
      vectors(path, first);
      if (i) vectors(`${side}.layers.${i - 1}.out`, first);
      for (const kind of SUBS[side]) {
        const name = `${own}.${kind}_attention`;
        vectors(`${path}.${kind}_attention`, seen[`${name}.w_q`]);
        const others = kind === "cross" ? source.length : count;
        const causal = side === "decoder" && kind === "self";
        const sizes = { h, d_k, count, others, causal };
        for (const [key, shape, data] of attention(seen, name, sizes))
          arrays.push([`${path}.${kind}_attention.${key}`, shape, data]);
        for (let head = 0; head < h; head++)
          files[`${path}.${kind}_attention.${head}.bin`] = joined(
            ["q", "k", "v"].map((letter) => {
              const { data } = model.weights[`${name}.w_${letter}.weight`];
              const size = d_k * d_model;
              return data.subarray(head * size, (head + 1) * size);
            }),
          );
      }
      vectors(`${path}.feed_forward`, seen[`${own}.feed_forward.w_1`]);
      const ends = ["w_1.weight", "w_1.bias", "w_2.weight", "w_2.bias"];
      files[`${path}.feed_forward.bin`] = joined(
        ends.map((end) => model.weights[`${own}.feed_forward.${end}`].data),
      );
    }
    const out =
      side === "encoder" ? seen["decoder.0.cross_attention.w_k"] : seen.table;
    vectors(`${side}.layers.${N - 1}.out`, out);
    vectors(`${side}.out`, out);
  }
  files["numbers.bin"] = joined(arrays.map(([, , data]) => data));
  const next = Array.from({ length }, (_, row) => {
    const logs = model.logs(scores, row);
    const most = logs.reduce((a, b) => Math.max(a, b));
    return [vocabulary[logs.indexOf(most)], Math.exp(most)];
  });
  return {
    files,
    about: {
      text: "I like trees",
      said: (named(said.slice(0, SHOWN)).join(" ") || "nothing") + rest,
      languages: ["English", "Spanish"],
      source: named(source.ids.subarray(0, source.length)),
      target: named(target.ids.subarray(0, length)),
      next: next.map(([token]) => token),
      sure: next.map(([, share]) => share),
      sizes: { N, d_model, d_ff, h, d_k, vocab_size: model.words },
      norm: "post",
      arrays: arrays.map(([name, shape]) => [name, shape]),
    },
  };
}

/** By each matrix's name what it was multiplied by and what came out;
 * and the scores of all words. */
function watched(model, source, target) {
  const seen = {};
  model.begin();
  model.watch = (name, x, y) => {
    // The last attention is the one that this matrix's output goes out of.
    seen[name] = { x, y, looked: model.looked };
  };
  const scores = model.decode(target, model.encode(source), source);
  model.watch = null;
  return [seen, scores];
}

/** The numbers of one attention, head by head. */
function attention(seen, name, { h, d_k, count, others, causal }) {
  const heads = ({ y }, rows) => {
    const found = new Float32Array(h * rows * d_k);
    for (let head = 0; head < h; head++)
      for (let row = 0; row < rows; row++) {
        const from = row * y.columns + head * d_k;
        const part = y.data.subarray(from, from + d_k);
        found.set(part, (head * rows + row) * d_k);
      }
    return found;
  };
  const q = heads(seen[`${name}.w_q`], count);
  const k = heads(seen[`${name}.w_k`], others);
  const v = heads(seen[`${name}.w_v`], others);
  const score = new Float32Array(h * count * others);
  for (let head = 0; head < h; head++)
    for (let i = 0; i < count; i++)
      for (let j = 0; j < others; j++) {
        let sum = 0;
        for (let c = 0; c < d_k; c++)
          sum +=
            q[(head * count + i) * d_k + c] * k[(head * others + j) * d_k + c];
        score[(head * count + i) * others + j] = sum / Math.sqrt(d_k);
      }
  const may = Float32Array.from({ length: count * others }, (_, place) =>
    Number(!causal || place % others <= Math.floor(place / others)),
  );
  const weight = seen[`${name}.w_o`].looked.slice(0, h * count * others);
  return [
    ["q", [h, count, d_k], q],
    ["k", [h, others, d_k], k],
    ["v", [h, others, d_k], v],
    ["score", [h, count, others], score],
    ["weight", [h, count, others], weight],
    ["may", [count, others], may],
  ];
}
