// What the model of "one sitting" learns from, and how it is asked.

import { watched } from "./inside.js";
import { largest } from "./search.js";
import { BOS, EOS, PAD, UNK } from "./tokenizer.js";
import { Transformer } from "./transformer.js";

const SIZES = {
  N: 2,
  d_model: 64,
  d_ff: 256,
  h: 4,
  warmup: 400,
};
export const STEPS = 800;
const BATCH = 64;
const ASKED = ["I like trees", "Me gustan los árboles"];
export const TELLING = 10; // steps from one moment to the next
const COUNTING = 50; // steps until it is asked to translate
const COUNTED = 100; // so many of the test sentences
const LONGEST = 20; // words of a translation
const SHOWN = 8; // of them beside what is inside: at first it repeats one

/** Numbers from 0 to 1, the same for the same seed (mulberry32). */
function chance(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const words = (text) => text.match(/[\p{L}\p{N}_]+|[^\p{L}\p{N}_\s]/gu);

/** The page's pairs, out of the package's two files. */
function readPairs(large, people) {
  const rows = [large, people].map((text) =>
    text
      .trimEnd()
      .split("\n")
      .map((line) => line.split("\t")),
  );
  const part = (kind, table) =>
    table
      .filter((row) => row[0] === kind)
      .map(([, ...pair]) => pair.map(words));
  const train = rows.flatMap((table) => part("train", table));
  const found = [...new Set(train.flat(2))].sort();
  const vocabulary = ["<pad>", "<unk>", "<bos>", "<eos>", ...found];
  const places = new Map(vocabulary.map((word, id) => [word, id]));
  const encode = (sentence) => [
    ...sentence.map((word) => places.get(word) ?? UNK),
    EOS,
  ];
  const ids = (pairs) => pairs.map((pair) => pair.map(encode));
  return {
    vocabulary,
    train: ids(train),
    test: ids(part("test", rows[0])),
    asked: ASKED.map((text) => encode(words(text))),
  };
}

/** Rows of ids in one array, and how many words each has. */
function padded(rows) {
  const words = rows.map((row) => row.length);
  const length = Math.max(...words);
  const ids = new Int32Array(rows.length * length).fill(PAD);
  rows.forEach((row, i) => ids.set(row, i * length));
  return { ids, length, count: rows.length, words };
}

/** Source, the decoder's input, and what it should say. */
export function batch(pairs) {
  return {
    source: padded(pairs.map(([source]) => source)),
    target: padded(pairs.map(([, label]) => [BOS, ...label.slice(0, -1)])),
    labels: padded(pairs.map(([, label]) => label)),
  };
}

export class Learner {
  /** `texts` are those of the two files. */
  constructor(texts) {
    Object.assign(this, readPairs(...texts));
    const vocab_size = this.vocabulary.length;
    this.model = new Transformer({ ...SIZES, vocab_size });
  }
  /** Begin anew; `without` names the parts that are left out. */
  start(seed, without = []) {
    this.model.without = new Set(without);
    this.model.start(chance(seed));
    this.random = chance(seed + 1);
  }

  /** One step on pairs drawn at random; their loss. */
  step() {
    const pairs = Array.from(
      { length: BATCH },
      () => this.train[Math.floor(this.random() * this.train.length)],
    );
    const loss = this.model.gradients(batch(pairs));
    this.model.update();
    return loss;
  }

  /** What it writes for a source by itself, the likeliest word each time. */
  translate(source) {
    const sentence = this.model.read(source);
    const ids = [BOS];
    while (ids.at(-1) !== EOS && ids.length <= LONGEST) {
      const [logs] = this.model.following([ids], sentence);
      ids.push(...largest(logs, 1));
    }
    return ids.slice(1).filter((id) => id !== EOS);
  }

  /** How many of these pairs it translates exactly, word by word. */
  exact(pairs) {
    const { model } = this;
    const source = padded(pairs.map(([ids]) => ids));
    const longest = Math.max(...pairs.map(([, label]) => label.length));
    model.begin();
    const memory = model.encode(source);
    const { top } = model;
    const ids = pairs.map(() => [BOS]);
    for (let t = 0; t < longest; t++) {
      model.top = top;
      const { data, columns } = model.decode(padded(ids), memory, source);
      ids.forEach((row, i) => {
        const at = (i * (t + 1) + t) * columns;
        row.push(...largest(data.subarray(at, at + model.words), 1));
      });
    }
    const same = ([, label], i) =>
      label.every((id, t) => id !== UNK && ids[i][t + 1] === id);
    return pairs.filter(same).length;
  }

  /** Given the right words before it, each word of "I like trees":
   * its probability, and the last layer's cross-attention for it. */
  look() {
    const { model } = this;
    const { source, target } = batch([this.asked]);
    let last = null; // of the attentions
    model.begin();
    model.watch = (_, { weights }) => (last = weights ?? last);
    const scores = model.decode(target, model.encode(source), source);
    model.watch = () => {};
    const { h } = model.sizes;
    return this.asked[1].map((id, i) => ({
      likely: Math.exp(model.logs(scores, i)[id]),
      looked: Array.from({ length: source.length }, (_, j) => {
        let sum = 0;
        for (let head = 0; head < h; head++)
          sum += last[(head * target.length + i) * source.length + j];
        return sum / h;
      }),
    }));
  }

  /** What there is to see after the steps that had these losses. */
  moment(losses) {
    const step = this.model.steps;
    const sum = losses.reduce((total, loss) => total + loss, 0);
    return {
      step,
      loss: losses.length ? sum / losses.length : null,
      exact: step % COUNTING ? null : this.exact(this.test.slice(0, COUNTED)),
      said: this.translate(this.asked[0])
        .map((id) => this.vocabulary[id])
        .join(" "),
      words: this.look(),
    };
  }

  /** All that happens while it reads "I like trees", as in inside.js.
   *
   * Its decoder is given the right words, as in training.
   */
  inside() {
    const { source, target } = batch([this.asked]);
    const pieces = (ids) => Array.from(ids, (id) => this.vocabulary[id]);
    const words = pieces(this.translate(this.asked[0]));
    const rest = words.length > SHOWN ? " …" : "";
    const said = (words.slice(0, SHOWN).join(" ") || "nothing") + rest;
    const { about, files } = watched(this.model, source, target, pieces);
    const languages = ["English", "Spanish"];
    Object.assign(about, { text: ASKED[0], said, languages });
    return { about, files };
  }
}
