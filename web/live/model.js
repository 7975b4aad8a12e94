// Any model that the library saved, opened in the browser.
//
// Three files are enough: model.safetensors, config.json, tokenizer.json.
// `read` checks them and says in words what does not fit; `fetched` gets
// those of a model that ships.

import { load } from "./common.js";
import { translations } from "./search.js";
import { BOS, Tokenizer } from "./tokenizer.js";
import { Transformer, shapesOf, single } from "./transformer.js";

export const FILES = ["model.safetensors", "config.json", "tokenizer.json"];
const EXTRA = 50; // tokens that an output may be longer, section 6.1
const MOST = 100e6; // weights: the base model has 60 million
const SIZES = [
  ..."vocab_size N d_model d_ff h d_k d_v max_length init".split(" "),
  ..."dropout attention_dropout relu_dropout".split(" "),
];
const TIED = { // one matrix, which a file holds under one of its names
  "three-way": ["pre_softmax", "source_embedding", "target_embedding"],
  decoder: ["pre_softmax", "target_embedding"],
  none: [],
};
const KNOWN = {
  bias: [false],
  norm: ["post", "pre"],
  positions: ["sinusoid", "learned", "none"],
  scale_embeddings: [true, false],
  tie: Object.keys(TIED),
};

// Reading

/** 16 bits as a number: float16, or bfloat16. */
function widened(bits, brain) {
  if (brain) {
    const whole = Uint32Array.from(bits, (one) => one << 16);
    return new Float32Array(whole.buffer);
  }
  halves ??= Float32Array.from({ length: 2 ** 16 }, (_, one) => half(one));
  const found = new Float32Array(bits.length);
  for (let i = 0; i < bits.length; i++) found[i] = halves[bits[i]];
  return found;
}
let halves = null; // every float16 there is
function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const rest = bits & 0x3ff;
  if (exponent === 31) return rest ? NaN : sign * Infinity;
  return exponent
    ? sign * 2 ** (exponent - 15) * (1 + rest / 1024)
    : sign * 2 ** -24 * rest;
}

/** The tensors of a file: by name, [shape, numbers()]. */
function safetensors(buffer) {
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
  const { __metadata__: tied = {}, ...listed } = head;
  const tensors = {};
  for (const [name, about] of Object.entries(listed)) {
    const { dtype, shape, data_offsets } = about;
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
  for (const [name, same] of Object.entries(tied))
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
  const note = json(text("config.json"), "config.json");
  const { model: sizes, info = {} } = note;
  if (!sizes?.d_model || !sizes.vocab_size)
    throw new Error(
      "config.json has no \"model\" with d_model and vocab_size: it is not " +
        "one that this book's library wrote.",
    );
  const own = note.parts?.[0] ?? note.class ?? "Transformer";
  if (own !== "Transformer")
    throw new Error(
      `This model is of a class of your own (${own}): this page has only ` +
        "the library's Transformer, and would show another model's numbers.",
    );
  for (const [name, value] of Object.entries(sizes))
    if (!(KNOWN[name]?.includes(value) ?? SIZES.includes(name)))
      throw new Error(
        `config.json says ${name}=${value}. This page does not know that, ` +
          "and would show another model's numbers.",
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
  const names = TIED[sizes.tie ?? "three-way"].map((one) => `${one}.weight`);
  const held = tensors[names.find((name) => tensors[name])];
  for (const name of names) tensors[name] ??= held;
  const wanted = shapesOf(config);
  for (const name of Object.keys(tensors))
    if (!wanted[name])
      throw new Error(
        `model.safetensors has ${name}, which no model of the library has: ` +
          "it is of a class of your own.",
      );
  for (const [name, shape] of Object.entries(wanted)) {
    const found = tensors[name]?.shape;
    if (!found)
      throw new Error(
        `model.safetensors has no ${name}, which config.json asks for: ` +
          "they are of two models, or the model is of a class of your own.",
      );
    const asked = shape[0] === 1 ? shape.slice(1) : shape; // a vector
    if (String(found) !== String(asked))
      throw new Error(
        `${name} is (${found.join(", ")}) in model.safetensors; by ` +
          `config.json it is (${asked.join(", ")}).`,
      );
  }
  const weights = [...new Set(Object.values(tensors))].reduce(
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

const shipped = new Map(); // by name, what has been or is being loaded

/** A model that ships, as index.json has it; progress(share) goes from 0
 * to 1. What cannot be loaded may be asked for again. */
export function fetched({ name, bytes }, progress = () => {}) {
  let got = 0;
  let lost = false; // then what still arrives is no progress
  const count = (size) => {
    got += size;
    if (!lost) progress(Math.min(1, got / bytes));
  };
  const file = async (one) => [
    one,
    await load(
      `${name}/${one.replace("safetensors", "bin")}`,
      "arrayBuffer",
      count,
    ),
  ];
  if (!shipped.has(name)) {
    const model = Promise.all(FILES.map(file)).then((files) =>
      read(Object.fromEntries(files)),
    );
    model.catch(() => {
      lost = true;
      shipped.delete(name);
    });
    shipped.set(name, model);
  }
  return shipped.get(name);
}

/** A language's name in English, from its code. */
export function called(code) {
  if (!code) return ""; // and not "root", as browsers call it
  try {
    return new Intl.DisplayNames("en", { type: "language" }).of(code);
  } catch {
    return code;
  }
}

// Running

class Model extends Transformer {
  constructor(config, info, tensors, tokenizer) {
    super(config, tensors);
    Object.assign(this, { info, tokenizer });
  }

  /** Of the source and the target, as a reader calls them. */
  get languages() {
    const [from, to] = this.info.languages ?? [];
    return [called(from), called(to)];
  }

  /** A sentence's translations, best first, and its ids; the decoder may
   * not look at `covered` places. */
  async beam(text, { maxExtra = EXTRA, covered, ...options } = {}) {
    const source = this.tokenizer.encode(text);
    const sentence = this.read(source, covered);
    const next = (beginnings) => this.following(beginnings, sentence);
    const { positions, max_length } = this.sizes;
    const limit = Math.min(
      source.length - 1 + maxExtra,
      positions === "learned" ? max_length : Infinity,
    );
    const found = await translations(this.tokenizer, next, limit, options);
    return { source, found };
  }

  /** The decoder while it says `ids`: its log-probabilities, and its
   * cross-attention, weight(layer, head, t, s) and the mean(t, s) of all. */
  looking(text, ids, covered = []) {
    const source = this.tokenizer.encode(text);
    const { N, h } = this.sizes;
    const maps = [];
    this.begin();
    const memory = this.encode(single(source));
    this.watch = (path, { weights }) => {
      if (path.endsWith("cross_attention")) maps.push(weights.slice());
    };
    const read = { ...single(source), covered: new Set(covered) };
    const target = single([BOS, ...ids.slice(0, -1)]);
    const scores = this.decode(target, memory, read);
    this.watch = () => {};
    const [T, S] = [target.length, source.length];
    const weight = (layer, head, t, s) => maps[layer][(head * T + t) * S + s];
    return {
      source: this.tokenizer.pieces(source),
      target: this.tokenizer.pieces(ids),
      logs: ids.map((_, t) => this.logs(scores, t)),
      N,
      h,
      weight,
      mean(t, s) {
        let sum = 0;
        for (let layer = 0; layer < N; layer++)
          for (let head = 0; head < h; head++)
            sum += weight(layer, head, t, s);
        return sum / (N * h);
      },
    };
  }
}
