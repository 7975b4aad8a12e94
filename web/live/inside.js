// What happens inside a model while it reads one sentence.

import { largest } from "./search.js";
import { BOS } from "./tokenizer.js";
import { single } from "./transformer.js";

/** Translate a text, and keep all that `open` in zoom_paths.js takes:
 * {about, files}. */
export async function inside(model, text, pause) {
  const { tokenizer } = model;
  const source = tokenizer.encode(text);
  if (source.length < 2) throw new Error("Write a sentence first.");
  const { found } = await model.beam(text, { beamSize: 1, progress: pause });
  const best = found[0].ids;
  const pieces = (ids) => tokenizer.pieces(ids);
  const target = [BOS, ...best.slice(0, -1)];
  const said = tokenizer.decode(best).trim() || "nothing";
  const { languages } = model;
  const { about, files } = watched(
    model,
    single(source),
    single(target),
    pieces,
  );
  return { files, about: { ...about, text, said, languages } };
}

/** Arrays by their names, and what comes next after each token. */
export function watched(model, source, target, pieces) {
  const { N, h, d_k, d_model, d_ff, norm } = model.sizes;
  const arrays = []; // name, shape, numbers
  const files = {};
  model.begin();
  model.watch = (path, { x, query, key, value, weights, seen }) => {
    arrays.push([path, [x.rows, d_model], x.data.slice()]);
    const matrices = (names, from, size) => () =>
      joined(
        names.map((name) =>
          model.numbers(`${path}.${name}`).subarray(from, from + size),
        ),
      );
    if (path.endsWith("feed_forward"))
      files[`${path}.bin`] = matrices(
        ["w_1.weight", "w_1.bias", "w_2.weight", "w_2.bias"],
        0,
        Infinity,
      );
    if (!query) return;
    const [rows, others] = [query.rows, key.rows];
    const [q, k, v] = [query, key, value].map((one) => byHead(one, h, d_k));
    const shape = [h, rows, others];
    const may = Float32Array.from({ length: rows * others }, (_, at) =>
      Number(at % others < seen(0, Math.floor(at / others))),
    );
    arrays.push(
      [`${path}.q`, [h, rows, d_k], q],
      [`${path}.k`, [h, others, d_k], k],
      [`${path}.v`, [h, others, d_k], v],
      [`${path}.score`, shape, products(q, k, shape, d_k)],
      [`${path}.weight`, shape, weights.slice()],
      [`${path}.may`, [rows, others], may],
    );
    const size = d_k * d_model;
    for (let head = 0; head < h; head++)
      files[`${path}.${head}.bin`] = matrices(
        ["w_q.weight", "w_k.weight", "w_v.weight"],
        head * size,
        size,
      );
  };
  const scores = model.decode(target, model.encode(source), source);
  model.watch = () => {};
  files["numbers.bin"] = () => joined(arrays.map(([, , data]) => data));
  const next = Array.from(target.ids, (_, row) => {
    const logs = model.logs(scores, row);
    const [most] = largest(logs, 1);
    return [most, Math.exp(logs[most])];
  });
  return {
    files,
    about: {
      source: pieces(source.ids),
      target: pieces(target.ids),
      next: pieces(next.map(([id]) => id)),
      sure: next.map(([, share]) => share),
      sizes: { N, d_model, d_ff, h, d_k, vocab_size: model.words },
      norm,
      arrays: arrays.map(([name, shape]) => [name, shape]),
    },
  };
}

/** Arrays of numbers in one. */
function joined(arrays) {
  const size = arrays.reduce((sum, one) => sum + one.length, 0);
  const whole = new Float32Array(size);
  let at = 0;
  for (const one of arrays) {
    whole.set(one, at);
    at += one.length;
  }
  return whole;
}

/** (len, h * d_k) as (h, len, d_k). */
function byHead({ rows, columns, data }, h, d_k) {
  const found = new Float32Array(rows * columns);
  for (let head = 0; head < h; head++)
    for (let row = 0; row < rows; row++) {
      const from = row * columns + head * d_k;
      found.set(data.subarray(from, from + d_k), (head * rows + row) * d_k);
    }
  return found;
}

/** The scores of every query and key, also of those that a mask closes. */
function products(q, k, [h, rows, others], d_k) {
  return Float32Array.from({ length: h * rows * others }, (_, at) => {
    const query = Math.floor(at / others) * d_k;
    const head = Math.floor(at / (rows * others));
    const key = (head * others + (at % others)) * d_k;
    let sum = 0;
    for (let c = 0; c < d_k; c++) sum += q[query + c] * k[key + c];
    return sum / Math.sqrt(d_k);
  });
}
