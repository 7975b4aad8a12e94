// Any model that the library saved, opened in the browser.
//
// Three files are enough: model.safetensors, config.json, tokenizer.json.
// `read` checks them and says in words what does not fit; `Model` runs
// them as the library does, in plain arrays of 32-bit floats; `inside`
// keeps what happens in it while it translates one sentence, under the
// names that web/make_data.py gives the shipped model's numbers; `played`
// is what play.js plays.

import { joined } from "./arrays.js";
import { sinusoid } from "./encodings.js";
import { largest, translations } from "./search.js";
import { BOS, EOS, Tokenizer } from "./tokenizer.js";

export const FILES = ["model.safetensors", "config.json", "tokenizer.json"];
const EXTRA = 50; // tokens that an output may be longer, section 6.1
const EPS = 1e-5; // of nn.LayerNorm
const MOST = 100e6; // weights: the base model has 60 million
const RIVALS = 2; // of a token that is played; a third if it is serious
const SERIOUS = 0.02;
const SIDES = {
  encoder: ["self_attention", "feed_forward"],
  decoder: ["self_attention", "cross_attention", "feed_forward"],
};

// Reading

/** 16 bits as a number: float16, or bfloat16. */
function widened(bits, brain) {
  if (brain) {
    const whole = Uint32Array.from(bits, (one) => one << 16);
    return new Float32Array(whole.buffer);
  }
  return Float32Array.from(bits, (one) => {
    const sign = one & 0x8000 ? -1 : 1;
    const exponent = (one >> 10) & 0x1f;
    const rest = one & 0x3ff;
    if (exponent === 31) return rest ? NaN : sign * Infinity;
    return exponent
      ? sign * 2 ** (exponent - 15) * (1 + rest / 1024)
      : sign * 2 ** -24 * rest;
  });
}

/** The tensors of a file: by name, [shape, numbers()]. */
export function safetensors(buffer) {
  const broken = () =>
    new Error("model.safetensors is no such file, or was cut off.");
  if (buffer.byteLength < 8) throw broken();
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  if (!length || 8 + length > buffer.byteLength) throw broken();
  let head;
  try {
    const text = new Uint8Array(buffer, 8, length);
    head = JSON.parse(new TextDecoder().decode(text));
  } catch {
    throw broken();
  }
  const { __metadata__: about = {}, ...listed } = head;
  const tensors = {};
  for (const [name, { dtype, shape, data_offsets }] of Object.entries(listed)) {
    const [from, to] = data_offsets.map((at) => at + 8 + length);
    if (to > buffer.byteLength) throw broken();
    if (!["F32", "F16", "BF16"].includes(dtype))
      throw new Error(
        `${name} is stored as ${dtype}: this page reads F32, F16 and BF16.`,
      );
    const numbers = () =>
      dtype === "F32"
        ? new Float32Array(buffer.slice(from, to))
        : widened(new Uint16Array(buffer.slice(from, to)), dtype === "BF16");
    tensors[name] = { shape, numbers };
  }
  for (const [name, same] of Object.entries(about))
    if (tensors[same]) tensors[name] ??= tensors[same];
  return tensors;
}

function json(text, name) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`${name} is not JSON: is it the right file?`);
  }
}

/** A model from its three files: {name: ArrayBuffer}.
 *
 * An error says which file does not fit, and why.
 */
export function read(files) {
  for (const name of FILES)
    if (!files[name])
      throw new Error(
        `${name} is missing. A model's folder has ${FILES.join(", ")}: ` +
          "choose all three.",
      );
  const text = (name) => new TextDecoder().decode(files[name]);
  const { model: sizes, info = {} } = json(text("config.json"), "config.json");
  if (!sizes?.d_model || !sizes.vocab_size)
    throw new Error(
      "config.json has no \"model\" with d_model and vocab_size: it is not " +
        "one that this book's library wrote.",
    );
  if (sizes.bias)
    throw new Error(
      "This model's projections have a bias. The pictures here are of " +
        "projections without one, so they would be wrong.",
    );
  const d_k = sizes.d_k ?? sizes.d_model / sizes.h;
  if ((sizes.d_v ?? sizes.d_model / sizes.h) !== d_k)
    throw new Error(
      `d_v=${sizes.d_v} and d_k=${d_k}: the pictures here show values as ` +
        "long as keys.",
    );
  const file = json(text("tokenizer.json"), "tokenizer.json");
  if (!file.model?.vocab || !file.model.merges)
    throw new Error(
      "tokenizer.json has no vocabulary with merges: this page reads byte " +
        "pairs, as the library's own tokenizer.",
    );
  const tokenizer = new Tokenizer(file);
  const count = tokenizer.tokens.length;
  if (count !== sizes.vocab_size)
    throw new Error(
      `tokenizer.json has ${count} tokens and config.json says ` +
        `vocab_size=${sizes.vocab_size}: they are of two models.`,
    );
  const tensors = safetensors(files["model.safetensors"]);
  const config = { positions: "sinusoid", norm: "post", ...sizes, d_k };
  for (const [name, shape] of Object.entries(wanted(config))) {
    const found = tensors[name]?.shape;
    if (!found)
      throw new Error(
        `model.safetensors has no ${name}, which config.json asks for: ` +
          "they are of two models, or the model is of a class of your own.",
      );
    if (String(found) !== String(shape))
      throw new Error(
        `${name} is (${found.join(", ")}) in model.safetensors; by ` +
          `config.json it is (${shape.join(", ")}).`,
      );
  }
  const weights = Object.values(tensors).reduce(
    (sum, { shape }) => sum + shape.reduce((all, axis) => all * axis, 1),
    0,
  );
  if (weights > MOST)
    throw new Error(
      `This model has ${Math.round(weights / 1e6)} million weights: a page ` +
        "takes up to the base model's 60 million.",
    );
  return new Model(config, info, tensors, tokenizer);
}

/** The tensors that a model has, and their shapes. */
function wanted({ N, d_model, d_ff, h, d_k, vocab_size, ...config }) {
  const shapes = { "pre_softmax.weight": [vocab_size, d_model] };
  for (const side of ["source", "target"])
    shapes[`${side}_embedding.weight`] = [vocab_size, d_model];
  if (config.positions === "learned")
    shapes["positions.weight"] = [config.max_length, d_model];
  const norm = (path) => {
    for (const end of ["weight", "bias"])
      shapes[`${path}.norm.${end}`] = [d_model];
  };
  for (const [side, subs] of Object.entries(SIDES)) {
    if (config.norm === "pre") norm(side);
    for (let i = 0; i < N; i++)
      subs.forEach((sub, j) => {
        const path = `${side}.layers.${i}.${sub}`;
        norm(`${side}.layers.${i}.residuals.${j}`);
        if (sub === "feed_forward") {
          shapes[`${path}.w_1.weight`] = [d_ff, d_model];
          shapes[`${path}.w_1.bias`] = [d_ff];
          shapes[`${path}.w_2.weight`] = [d_model, d_ff];
          shapes[`${path}.w_2.bias`] = [d_model];
        } else {
          for (const letter of "qkv")
            shapes[`${path}.w_${letter}.weight`] = [h * d_k, d_model];
          shapes[`${path}.w_o.weight`] = [d_model, h * d_k];
        }
      });
  }
  return shapes;
}

/** A language's name in English, from its code. */
function called(code) {
  try {
    return new Intl.DisplayNames("en", { type: "language" }).of(code);
  } catch {
    return code ?? "";
  }
}

// Running. A matrix is {rows, columns, data}, its rows one by one.

const matrix = (rows, columns) => ({
  rows,
  columns,
  data: new Float32Array(rows * columns),
});

export class Model {
  constructor(config, info, tensors, tokenizer) {
    Object.assign(this, { config, info, tensors, tokenizer });
    this.kept = new Map(); // tensors as numbers, once they are needed
    this.watch = () => {};
  }

  /** Of the source and the target, as a reader calls them. */
  get languages() {
    const [from, to] = this.info.languages ?? [];
    return [called(from), called(to)];
  }

  weight(name) {
    if (!this.kept.has(name))
      this.kept.set(name, this.tensors[name].numbers());
    return this.kept.get(name);
  }

  /** x W^T + b. */
  linear(x, name, bias = null) {
    const weights = this.weight(`${name}.weight`);
    const from = x.columns;
    const y = matrix(x.rows, weights.length / from);
    const added = bias ? this.weight(`${name}.bias`) : null;
    for (let row = 0; row < x.rows; row++)
      for (let to = 0; to < y.columns; to++) {
        let sum = added ? added[to] : 0;
        const [a, b] = [row * from, to * from];
        for (let i = 0; i < from; i++) sum += x.data[a + i] * weights[b + i];
        y.data[row * y.columns + to] = sum;
      }
    return y;
  }

  norm(x, name) {
    const gain = this.weight(`${name}.weight`);
    const bias = this.weight(`${name}.bias`);
    const y = matrix(x.rows, x.columns);
    const d = x.columns;
    for (let at = 0; at < x.data.length; at += d) {
      let mean = 0;
      let squares = 0;
      for (let i = 0; i < d; i++) mean += x.data[at + i] / d;
      for (let i = 0; i < d; i++) squares += (x.data[at + i] - mean) ** 2;
      const size = Math.sqrt(squares / d + EPS);
      for (let i = 0; i < d; i++)
        y.data[at + i] = ((x.data[at + i] - mean) / size) * gain[i] + bias[i];
    }
    return y;
  }

  embed(ids, side) {
    const { d_model, positions, scale_embeddings: scaled } = this.config;
    const table = this.weight(`${side}_embedding.weight`);
    const factor = scaled === false ? 1 : Math.sqrt(d_model);
    const learned =
      positions === "learned" ? this.weight("positions.weight") : null;
    const place = (row, i) => {
      if (learned) return learned[row * d_model + i];
      return positions === "sinusoid" ? sinusoid(row, i, d_model) : 0;
    };
    const x = matrix(ids.length, d_model);
    ids.forEach((id, row) => {
      for (let i = 0; i < d_model; i++)
        x.data[row * d_model + i] =
          factor * table[id * d_model + i] + place(row, i);
    });
    return x;
  }

  /** Section 3.2; `may(i, j)`: whether row i may look at place j. */
  attend(x, memory, path, may) {
    const { h, d_k } = this.config;
    const query = this.linear(x, `${path}.w_q`);
    const key = this.linear(memory, `${path}.w_k`);
    const value = this.linear(memory, `${path}.w_v`);
    const [rows, others] = [x.rows, memory.rows];
    const out = matrix(rows, h * d_k);
    const scores = new Float32Array(h * rows * others);
    const weights = new Float32Array(h * rows * others);
    for (let head = 0; head < h; head++)
      for (let i = 0; i < rows; i++) {
        const at = (head * rows + i) * others;
        const q = i * h * d_k + head * d_k;
        let most = -Infinity;
        for (let j = 0; j < others; j++) {
          const k = j * h * d_k + head * d_k;
          let sum = 0;
          for (let c = 0; c < d_k; c++)
            sum += query.data[q + c] * key.data[k + c];
          scores[at + j] = sum / Math.sqrt(d_k);
          if (may(i, j)) most = Math.max(most, scores[at + j]);
        }
        let sum = 0;
        for (let j = 0; j < others; j++) {
          weights[at + j] = may(i, j) ? Math.exp(scores[at + j] - most) : 0;
          sum += weights[at + j];
        }
        for (let j = 0; j < others; j++) {
          weights[at + j] /= sum;
          const v = j * h * d_k + head * d_k;
          for (let c = 0; c < d_k; c++)
            out.data[q + c] += weights[at + j] * value.data[v + c];
        }
      }
    this.watch(path, { x, query, key, value, scores, weights, may });
    return this.linear(out, `${path}.w_o`);
  }

  feedForward(x, path) {
    this.watch(path, { x });
    const inner = this.linear(x, `${path}.w_1`, true);
    for (let i = 0; i < inner.data.length; i++)
      inner.data[i] = Math.max(0, inner.data[i]);
    return this.linear(inner, `${path}.w_2`, true);
  }

  /** The layers of a side; a decoder's look at `memory` too. */
  stack(side, x, memory, maySource) {
    const pre = this.config.norm === "pre";
    const causal = (i, j) => side === "encoder" || j <= i;
    for (let i = 0; i < this.config.N; i++) {
      const layer = `${side}.layers.${i}`;
      this.watch(layer, { x });
      SIDES[side].forEach((sub, j) => {
        const path = `${layer}.${sub}`;
        const norm = `${layer}.residuals.${j}.norm`;
        const given = pre ? this.norm(x, norm) : x;
        const found =
          sub === "feed_forward"
            ? this.feedForward(given, path)
            : sub === "self_attention"
              ? this.attend(given, given, path, causal)
              : this.attend(given, memory, path, maySource);
        const sum = matrix(x.rows, x.columns);
        for (let k = 0; k < sum.data.length; k++)
          sum.data[k] = x.data[k] + found.data[k];
        x = pre ? sum : this.norm(sum, norm);
      });
      this.watch(`${layer}.out`, { x });
    }
    if (pre) x = this.norm(x, `${side}.norm`);
    this.watch(`${side}.out`, { x });
    return x;
  }

  encode(ids) {
    return this.stack("encoder", this.embed(ids, "source"));
  }

  /** Logits of every place; the decoder may not look at `covered` ones. */
  decode(ids, memory, covered = []) {
    const may = (_, j) => !covered.includes(j);
    const x = this.stack("decoder", this.embed(ids, "target"), memory, may);
    return this.linear(x, "pre_softmax");
  }

  /** What comes next after each beginning, as `beamSearch` asks. */
  following(beginnings, memory, covered) {
    const rows = beginnings.map((ids) => {
      const { data, columns } = this.decode(ids, memory, covered);
      const row = data.slice(-columns);
      const most = row.reduce((a, b) => Math.max(a, b));
      const sum = row.reduce((all, one) => all + Math.exp(one - most), 0);
      return row.map((one) => one - most - Math.log(sum));
    });
    return { values: joined(rows), vocabulary: this.config.vocab_size };
  }

  /** A sentence's translations, best first, and its ids: as `beam` of
   * translator.js. */
  async beam(text, { maxExtra = EXTRA, covered = [], ...options } = {}) {
    const source = this.tokenizer.encode(text);
    const memory = this.encode(source);
    const next = (beginnings) => this.following(beginnings, memory, covered);
    const { positions, max_length } = this.config;
    const limit = Math.min(
      source.length - 1 + maxExtra,
      positions === "learned" ? max_length : Infinity,
    );
    const found = await translations(this.tokenizer, next, limit, options);
    return { source, found };
  }

  /** Cross-attention while `ids` are said: weight(layer, head, t, s). */
  async attention(text, ids, covered = []) {
    const source = this.tokenizer.encode(text);
    const { N, h } = this.config;
    const looked = {};
    this.watch = (path, { weights }) => (looked[path] = weights);
    const target = [BOS, ...ids.slice(0, -1)];
    this.decode(target, this.encode(source), covered);
    this.watch = () => {};
    const [T, S] = [target.length, source.length];
    return {
      source: this.tokenizer.pieces(source),
      target: this.tokenizer.pieces(ids),
      N,
      h,
      weight: (layer, head, t, s) =>
        looked[`decoder.layers.${layer}.cross_attention`][
          (head * T + t) * S + s
        ],
    };
  }
}

// Looking inside

/** Translate a text, and keep all that `open` in zoom_paths.js takes:
 * {about, files}. */
export async function inside(model, text, pause) {
  const { N, h, d_k, d_model, d_ff, vocab_size, norm } = model.config;
  const { tokenizer } = model;
  const source = tokenizer.encode(text);
  if (source.length < 2) throw new Error("Write a sentence first.");
  const { found } = await model.beam(text, { beamSize: 1, progress: pause });
  const best = found[0].ids;
  const target = [BOS, ...best.slice(0, -1)];
  const seen = {};
  model.watch = (path, found) => (seen[path] = found);
  const memory = model.encode(source);
  const logits = model.decode(target, memory);
  model.watch = () => {};

  const arrays = [];
  const files = {};
  for (const [path, found] of Object.entries(seen)) {
    const { x, query, key, value, scores, weights, may } = found;
    arrays.push([path, [x.rows, d_model], x.data]);
    if (path.endsWith("feed_forward"))
      files[`${path}.bin`] = () =>
        joined(
          ["w_1.weight", "w_1.bias", "w_2.weight", "w_2.bias"].map((end) =>
            model.weight(`${path}.${end}`),
          ),
        );
    if (!query) continue;
    const [rows, others] = [x.rows, key.rows];
    const grid = Float32Array.from({ length: rows * others }, (_, at) =>
      Number(may(Math.floor(at / others), at % others)),
    );
    arrays.push(
      [`${path}.q`, [h, rows, d_k], byHead(query, h, d_k)],
      [`${path}.k`, [h, others, d_k], byHead(key, h, d_k)],
      [`${path}.v`, [h, others, d_k], byHead(value, h, d_k)],
      [`${path}.score`, [h, rows, others], scores],
      [`${path}.weight`, [h, rows, others], weights],
      [`${path}.may`, [rows, others], grid],
    );
    for (let head = 0; head < h; head++)
      files[`${path}.${head}.bin`] = () =>
        joined(
          ["w_q", "w_k", "w_v"].map((name) => {
            const size = d_k * d_model;
            const all = model.weight(`${path}.${name}.weight`);
            return all.subarray(head * size, (head + 1) * size);
          }),
        );
  }
  files["numbers.bin"] = () => joined(arrays.map(([, , data]) => data));
  const shares = target.map((_, row) => {
    const own = softmax(logits, row);
    const most = own.reduce((a, b) => Math.max(a, b));
    return [own.indexOf(most), most];
  });
  return {
    files,
    about: {
      text,
      said: tokenizer.decode(best).trim() || "nothing",
      languages: model.languages,
      source: tokenizer.pieces(source),
      target: tokenizer.pieces(target),
      next: tokenizer.pieces(shares.map(([id]) => id)),
      sure: shares.map(([, share]) => share),
      sizes: { N, d_model, d_ff, h, d_k, vocab_size },
      norm,
      arrays: arrays.map(([name, shape]) => [name, shape]),
    },
  };
}

/** A row of logits as probabilities. */
function softmax({ data, columns }, row) {
  const own = data.slice(row * columns, (row + 1) * columns);
  const most = own.reduce((a, b) => Math.max(a, b));
  const sum = own.reduce((all, one) => all + Math.exp(one - most), 0);
  return own.map((one) => Math.exp(one - most) / sum);
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

// Playing

/** A sentence's decoding, as `open` of play.js makes it of a recorded one;
 * where a rival leads is translated when it is asked for. */
export async function played(model, text, progress) {
  const { tokenizer, languages, info } = model;
  const source = tokenizer.encode(text);
  if (source.length < 2) throw new Error("Write a sentence first.");
  const greedy = async (begun, progress) => {
    if (begun.at(-1) === EOS) return begun;
    const options = { beamSize: 1, begun, progress };
    return (await model.beam(text, options)).found[0].ids;
  };
  const breathe = () => new Promise((done) => setTimeout(done));
  const said = (ids) => tokenizer.decode(ids).trim() || "nothing";
  const ids = await greedy([], progress);
  const steps = stepsOf(model, source, ids, true);
  return {
    text,
    languages,
    codes: info.languages ?? ["", ""],
    source: tokenizer.pieces(source),
    said: said(ids),
    steps,
    async line(at, bar) {
      const { id } = steps[at].bars[bar];
      const line = await greedy([...ids.slice(0, at), id], breathe);
      const follow = stepsOf(model, source, line, false).slice(at + 1);
      const fork = { ...steps[at], taken: bar };
      return { said: said(line), steps: [...steps.slice(0, at), fork, ...follow] };
    },
  };
}

/** Of each token of an output: what else could have come, and where the
 * decoder looked, the mean of all layers and heads in percent. */
function stepsOf(model, source, ids, free) {
  const { N, h } = model.config;
  const { tokenizer } = model;
  const maps = [];
  const memory = model.encode(source);
  model.watch = (path, { weights }) => {
    if (path.endsWith("cross_attention")) maps.push(weights);
  };
  const logits = model.decode([BOS, ...ids.slice(0, -1)], memory);
  model.watch = () => {};
  const [T, S] = [ids.length, source.length];
  const looked = (t, s) => {
    let sum = 0;
    for (const weights of maps)
      for (let head = 0; head < h; head++)
        sum += weights[(head * T + t) * S + s];
    return Math.round((100 * sum) / (N * h));
  };
  return ids.map((_, t) => {
    const shares = softmax(logits, t);
    const bars = largest(shares, RIVALS + 1 + Number(free))
      .filter((id, rank) => rank <= RIVALS || shares[id] >= SERIOUS)
      .map((id) => {
        const [token] = tokenizer.pieces([id]);
        return { id, token, share: shares[id] };
      });
    const lines = free; // whether another bar can be picked
    return { bars, looked: source.map((_, s) => looked(t, s)), taken: 0, lines };
  });
}
