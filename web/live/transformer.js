// A Transformer in the browser: it translates, and it learns.
//
// One that is given its weights translates with them. One that is not can
// learn: each part of it computes its output and leaves, on a tape, what
// brings the gradient of the output back to its inputs. Five parts can then
// be left out, to see what they are for: `without` holds their names.
// Its numbers are 32-bit floats in the memory of a small WebAssembly
// module, which multiplies matrices; all else is written here.

import { sinusoid } from "./encodings.js";
import { product } from "./mm.js";
import { PAD } from "./tokenizer.js";

const ROOM = 1600; // pages of 64 KiB: a hundred sentences at once
const SMOOTHING = 0.1;
/** The sub-layers of each stack's layers. */
export const SIDES = {
  encoder: ["self_attention", "feed_forward"],
  decoder: ["self_attention", "cross_attention", "feed_forward"],
};
/** What is multiplied by, and not looked up or added. */
const MULTIPLIED = /\.w_.\.weight$|^pre_softmax/;

/** By each weight's name in the library its rows and its columns. */
export function shapesOf({ N, d_model, d_ff, h, d_k, ...sizes }) {
  const { vocab_size, positions, norm, max_length } = sizes;
  const shapes = {};
  for (const table of ["source_embedding", "target_embedding", "pre_softmax"])
    shapes[`${table}.weight`] = [vocab_size, d_model];
  if (positions === "learned")
    shapes["positions.weight"] = [max_length, d_model];
  const add = (path, rows, columns) => {
    shapes[`${path}.weight`] = [rows, columns];
  };
  const addNorm = (path) => {
    for (const end of ["weight", "bias"])
      shapes[`${path}.norm.${end}`] = [1, d_model];
  };
  for (const [side, parts] of Object.entries(SIDES)) {
    for (let i = 0; i < N; i++)
      parts.forEach((part, j) => {
        const path = `${side}.layers.${i}.${part}`;
        if (part === "feed_forward") {
          add(`${path}.w_1`, d_ff, d_model);
          shapes[`${path}.w_1.bias`] = [1, d_ff];
          add(`${path}.w_2`, d_model, d_ff);
          shapes[`${path}.w_2.bias`] = [1, d_model];
        } else {
          for (const letter of "qkv")
            add(`${path}.w_${letter}`, h * d_k, d_model);
          add(`${path}.w_o`, d_model, h * d_k);
        }
        addNorm(`${side}.layers.${i}.residuals.${j}`);
      });
    if (norm === "pre") addNorm(side);
  }
  return shapes;
}

/** One sentence, as a batch. */
export const single = (ids) => ({
  ids,
  count: 1,
  length: ids.length,
  words: [ids.length],
});

export class Transformer {
  /** `sizes` are those of a config.json; `tensors` are by their names
   * {numbers()}, of a model that has learnt. */
  constructor(sizes, tensors = null) {
    const d_k = sizes.d_k ?? sizes.d_model / sizes.h;
    this.sizes = { norm: "post", positions: "sinusoid", ...sizes, d_k };
    this.tensors = tensors;
    this.words = sizes.vocab_size;
    this.without = new Set(); // of positions, mask, root, norm, residual
    this.watch = () => {}; // is told what every part computes
    this.tape = tensors ? null : [];
    const shapes = shapesOf({
      ...this.sizes,
      vocab_size: 8 * Math.ceil(this.words / 8), // a tile of the product
    });
    let count = 0;
    for (const [rows, columns] of Object.values(shapes))
      count += rows * columns;
    const copies = tensors ? 1 : 4; // or also a gradient and two moments
    const pages = ROOM + Math.ceil((4 * copies * count) / 2 ** 16);
    Object.assign(this, product(pages));
    this.top = 0; // of the memory in use, in bytes
    this.weights = {};
    for (const [name, [rows, columns]] of Object.entries(shapes))
      this.weights[name] = tensors
        ? this.learnt(name, rows, columns, tensors)
        : this.unlearnt(name, rows, columns);
    this.bottom = this.top; // what is above is for one use
  }

  /** A weight that stays: a matrix turned as the product wants it. */
  learnt(name, rows, columns, tensors) {
    const weight = { rows, columns, data: tensors[name].numbers() };
    if (!MULTIPLIED.test(name)) return weight;
    return { rows, columns, turned: this.turn(weight) };
  }
  /** A weight that learns; the three tables are one. */
  unlearnt(name, rows, columns) {
    const table = this.weights["source_embedding.weight"];
    if (table && /embedding|pre_softmax/.test(name)) return table;
    const moments = [1, 2].map(() => this.take(rows * columns));
    return { ...this.matrix(rows, columns), moments };
  }

  /** The numbers of a weight, as the library has them. */
  numbers(name) {
    return this.tensors?.[name].numbers() ?? this.weights[name].data;
  }

  /** Random weights, as PyTorch gives them. */
  start(random) {
    this.steps = 0;
    const [[, table], ...others] = Object.entries(this.weights);
    const { data, columns } = table;
    for (let i = 0; i < this.words * columns; i++) {
      const far = columns ** -0.5 * Math.sqrt(-2 * Math.log(1 - random()));
      data[i] = far * Math.cos(2 * Math.PI * random());
    }
    for (const moment of table.moments) moment.fill(0);
    for (const [name, weight] of others) {
      if (weight === table) continue;
      for (const moment of weight.moments) moment.fill(0);
      if (name.includes("norm")) weight.data.fill(name.endsWith("weight"));
      else {
        const matrix = this.weights[name.replace("bias", "weight")];
        const limit = matrix.columns ** -0.5;
        for (let i = 0; i < weight.data.length; i++)
          weight.data[i] = limit * (2 * random() - 1);
      }
    }
  }

  // Memory and the tape

  take(length) {
    const bytes = 16 * Math.ceil(length / 4);
    if (this.top + bytes > this.memory.buffer.byteLength)
      throw new Error("The sentences are too long for this page's memory.");
    const found = new Float32Array(this.memory.buffer, this.top, length);
    this.top += bytes;
    return found.fill(0);
  }
  /** Zeros, with room behind them: the product takes four rows at a time. */
  matrix(rows, columns) {
    const room = 4 * Math.ceil(rows / 4) * columns;
    const numbers = () => this.take(room).subarray(0, rows * columns);
    return { rows, columns, data: numbers(), grad: this.tape && numbers() };
  }
  /** Forget what was computed, and its tape. */
  begin() {
    this.top = this.bottom;
    this.tape &&= [];
  }
  /** c += a b, with a (m, k); a `turned` is given as (k, m). */
  product(a, b, c, [m, n, k], turned = false) {
    if (n % 8) {
      for (let i = 0; i < m; i++)
        for (let p = 0; p < k; p++)
          for (let j = 0; j < n; j++)
            c[i * n + j] += a[i * k + p] * b[p * n + j];
      return;
    }
    const [down, right] = turned ? [4, 4 * m] : [4 * k, 4];
    const [at, by, to] = [a, b, c].map((array) => array.byteOffset);
    this.multiply(at, by, to, m, n, k, down, right);
  }
  turn({ rows, columns, data }) {
    const turned = this.take(rows * columns);
    for (let at = 0, i = 0; at < data.length; i++)
      for (let j = 0; j < columns; j++) turned[j * rows + i] = data[at++];
    return turned;
  }

  // The parts

  /** (rows, from) to (rows, to): x W^T + bias. */
  linear(x, name) {
    const weight = this.weights[`${name}.weight`];
    const bias = this.weights[`${name}.bias`];
    const [rows, to, from] = [x.rows, weight.rows, weight.columns];
    const y = this.matrix(rows, to);
    if (bias) for (let i = 0; i < rows; i++) y.data.set(bias.data, i * to);
    const turned = weight.turned ?? this.turn(weight);
    this.product(x.data, turned, y.data, [rows, to, from]);
    this.tape?.push(() => {
      this.product(y.grad, weight.data, x.grad, [rows, from, to]);
      this.product(y.grad, x.data, weight.grad, [to, from, rows], true);
      if (bias)
        for (let i = 0; i < rows * to; i++) bias.grad[i % to] += y.grad[i];
    });
    return y;
  }

  relu({ data, grad }) {
    for (let i = 0; i < data.length; i++) data[i] = Math.max(0, data[i]);
    this.tape?.push(() => {
      for (let i = 0; i < data.length; i++) grad[i] *= Math.sign(data[i]);
    });
  }

  /** x + y, or y alone without the residual connection. */
  add(x, y) {
    if (this.without.has("residual")) return y;
    const sum = this.matrix(x.rows, x.columns);
    for (let i = 0; i < sum.data.length; i++)
      sum.data[i] = x.data[i] + y.data[i];
    this.tape?.push(() => {
      for (let i = 0; i < sum.grad.length; i++) {
        x.grad[i] += sum.grad[i];
        y.grad[i] += sum.grad[i];
      }
    });
    return sum;
  }

  /** LayerNorm, row by row. */
  norm(x, name) {
    if (this.without.has("norm")) return x;
    const gain = this.weights[`${name}.weight`];
    const bias = this.weights[`${name}.bias`];
    const { rows, columns: d } = x;
    const out = this.matrix(rows, d);
    const normal = this.take(rows * d);
    const sizes = this.take(rows);
    for (let at = 0, row = 0; row < rows; row++, at += d) {
      let [mean, squares] = [0, 0];
      for (let i = at; i < at + d; i++) mean += x.data[i] / d;
      for (let i = at; i < at + d; i++) squares += (x.data[i] - mean) ** 2;
      sizes[row] = 1 / Math.sqrt(squares / d + 1e-5);
      for (let i = at; i < at + d; i++) {
        normal[i] = (x.data[i] - mean) * sizes[row];
        out.data[i] = normal[i] * gain.data[i - at] + bias.data[i - at];
      }
    }
    this.tape?.push(() => {
      for (let at = 0, row = 0; row < rows; row++, at += d) {
        let [mean, along] = [0, 0];
        for (let i = at; i < at + d; i++) {
          const slope = out.grad[i] * gain.data[i - at];
          mean += slope / d;
          along += (slope * normal[i]) / d;
          gain.grad[i - at] += out.grad[i] * normal[i];
          bias.grad[i - at] += out.grad[i];
        }
        for (let i = at; i < at + d; i++) {
          const slope = out.grad[i] * gain.data[i - at];
          x.grad[i] += (slope - mean - normal[i] * along) * sizes[row];
        }
      }
    });
    return out;
  }

  /** Equation 1 in every head; `seen(b, i)`: so many keys may be seen, and
   * none of those that are `covered`. */
  attend(query, key, value, { count, length, others, seen, covered }) {
    const { h, d_k } = this.sizes;
    const d = h * d_k;
    const out = this.matrix(query.rows, d);
    const weights = this.take(count * h * length * others);
    const each = (use) => {
      for (let b = 0; b < count; b++)
        for (let head = 0; head < h; head++)
          for (let i = 0; i < length; i++) {
            const q = (b * length + i) * d + head * d_k;
            const k = b * others * d + head * d_k;
            use(q, k, ((b * h + head) * length + i) * others, seen(b, i));
          }
    };
    const dot = (x, at, y, by) => {
      let sum = 0;
      for (let c = 0; c < d_k; c++) sum += x[at + c] * y[by + c];
      return sum;
    };
    const add = (x, at, factor, y, by) => {
      for (let c = 0; c < d_k; c++) x[at + c] += factor * y[by + c];
    };
    const scale = this.without.has("root") ? 1 : 1 / Math.sqrt(d_k);
    each((q, k, w, keys) => {
      let [most, sum] = [-Infinity, 0];
      for (let j = 0; j < keys; j++) {
        weights[w + j] = covered?.has(j)
          ? -Infinity
          : scale * dot(query.data, q, key.data, k + j * d);
        most = Math.max(most, weights[w + j]);
      }
      for (let j = 0; j < keys; j++)
        sum += weights[w + j] = Math.exp(weights[w + j] - most);
      for (let j = 0; j < keys; j++) {
        weights[w + j] /= sum;
        add(out.data, q, weights[w + j], value.data, k + j * d);
      }
    });
    const slopes = new Float64Array(others);
    this.tape?.push(() =>
      each((q, k, w, keys) => {
        let mean = 0;
        for (let j = 0; j < keys; j++) {
          slopes[j] = dot(out.grad, q, value.data, k + j * d);
          mean += weights[w + j] * slopes[j];
          add(value.grad, k + j * d, weights[w + j], out.grad, q);
        }
        for (let j = 0; j < keys; j++) {
          const slope = scale * weights[w + j] * (slopes[j] - mean);
          add(query.grad, q, slope, key.data, k + j * d);
          add(key.grad, k + j * d, slope, query.data, q);
        }
      }),
    );
    return { out, weights };
  }

  /** Words, and section 3.5 of the paper: where they are. */
  embed({ ids, length, first = 0 }, side) {
    const table = this.weights[`${side}_embedding.weight`];
    const { d_model: d, positions, scale_embeddings: scaled } = this.sizes;
    const x = this.matrix(ids.length, d);
    const scale = scaled === false ? 1 : Math.sqrt(d);
    const learned = this.weights["positions.weight"]?.data;
    const place = (row, i) => {
      if (learned) return learned[row * d + i];
      if (this.without.has("positions") || positions === "none") return 0;
      return sinusoid(row, i, d);
    };
    for (let i = 0; i < x.data.length; i++) {
      const [row, column] = [Math.floor(i / d), i % d];
      x.data[i] =
        scale * table.data[ids[row] * d + column] +
        place(first + (row % length), column);
    }
    this.tape?.push(() => {
      for (let i = 0; i < x.grad.length; i++)
        table.grad[ids[Math.floor(i / d)] * d + (i % d)] += scale * x.grad[i];
    });
    return x;
  }

  // The model

  keysValues(memory, path) {
    return ["k", "v"].map((one) => this.linear(memory, `${path}.w_${one}`));
  }
  /** `shape` says how much there is, and may have keys and values kept. */
  attention(x, memory, path, shape) {
    const query = this.linear(x, `${path}.w_q`);
    const [key, value] =
      shape.kept?.(path, memory) ?? this.keysValues(memory, path);
    const { out, weights } = this.attend(query, key, value, shape);
    this.watch(path, { x, query, key, value, weights, ...shape });
    return this.linear(out, `${path}.w_o`);
  }
  feedForward(x, path) {
    this.watch(path, { x });
    const inner = this.linear(x, `${path}.w_1`);
    this.relu(inner);
    return this.linear(inner, `${path}.w_2`);
  }
  /** N layers; those of the decoder also look `across` at a memory. */
  layers(side, x, own, memory, across) {
    const pre = this.sizes.norm === "pre";
    const compute = (x, path) => {
      if (path.endsWith("feed_forward")) return this.feedForward(x, path);
      return path.endsWith("self_attention")
        ? this.attention(x, x, path, own)
        : this.attention(x, memory, path, across);
    };
    for (let i = 0; i < this.sizes.N; i++) {
      const layer = `${side}.layers.${i}`;
      this.watch(layer, { x });
      SIDES[side].forEach((part, j) => {
        const path = `${layer}.${part}`;
        const norm = `${layer}.residuals.${j}.norm`;
        x = pre
          ? this.add(x, compute(this.norm(x, norm), path))
          : this.norm(this.add(x, compute(x, path)), norm);
      });
      this.watch(`${layer}.out`, { x });
    }
    if (pre) x = this.norm(x, `${side}.norm`);
    this.watch(`${side}.out`, { x });
    return x;
  }
  encode(source) {
    const { count, length, words } = source;
    const own = { count, length, others: length, seen: (b) => words[b] };
    return this.layers("encoder", this.embed(source, "source"), own);
  }
  /** Scores of every word: (count * length, the vocabulary and room). */
  decode(target, memory, source) {
    const { count, length } = target;
    const seen = this.without.has("mask") ? () => length : (_, i) => i + 1;
    const own = { count, length, others: length, seen };
    const { length: others, words, covered } = source;
    const across = { count, length, others, covered, seen: (b) => words[b] };
    const x = this.embed(target, "target");
    const hidden = this.layers("decoder", x, own, memory, across);
    return this.linear(hidden, "pre_softmax");
  }
  /** The logarithms of one row's softmax. */
  logs(scores, row) {
    const at = row * scores.columns;
    const own = Float64Array.from(scores.data.subarray(at, at + this.words));
    let [most, sum] = [-Infinity, 0];
    for (const one of own) most = Math.max(most, one);
    for (const one of own) sum += Math.exp(one - most);
    return own.map((one) => one - most - Math.log(sum));
  }

  // Translating, word by word

  /** A sentence that was read, for `following`: what its decoder looks at,
   * but for the places that are `covered`. What is kept lies outside of the
   * memory that the next use of the model begins anew. */
  read(ids, covered = []) {
    this.begin();
    const memory = this.encode(single(ids));
    const across = {};
    for (let i = 0; i < this.sizes.N; i++) {
      const path = `decoder.layers.${i}.cross_attention`;
      const both = this.keysValues(memory, path);
      across[path] = both.map(({ data }) => ({ data: data.slice() }));
    }
    return { length: ids.length, covered: new Set(covered), across, past: {} };
  }

  /** After each beginning, all equally long, the log-probabilities of what
   * comes next. Keys and values of their words are kept, in `past`. */
  following(beginnings, { length: others, covered, across, past }) {
    this.begin();
    const nodes = beginnings.map((ids) => {
      let node = past;
      return ids.map((id) => (node = node[id] ??= {}));
    });
    const [count, whole] = [nodes.length, nodes[0].length];
    const known = nodes[0].findIndex((node) => !node.rows);
    const first = known < 0 ? whole - 1 : known;
    const length = whole - first; // of what is new
    const all = nodes.flat();
    const kept = (path, x) =>
      this.keysValues(x, path).map(({ columns: d, data }, which) => {
        const found = new Float32Array(all.length * d);
        all.forEach((node, at) => {
          const place = at % whole;
          const row = Math.floor(at / whole) * length + place - first;
          const name = `${path}.${which}`;
          node.rows ??= {};
          if (place >= first)
            node.rows[name] = data.slice(row * d, (row + 1) * d);
          found.set(node.rows[name], at * d);
        });
        return { data: found };
      });
    const ids = beginnings.flatMap((one) => one.slice(first));
    const own = { count, length, others: whole, kept };
    own.seen = (_, i) => first + i + 1;
    const source = { count: 1, length: ids.length, others, covered };
    source.seen = () => others;
    source.kept = (path) => across[path];
    const x = this.embed({ ids, length, first }, "target");
    const hidden = this.layers("decoder", x, own, null, source);
    const d = hidden.columns;
    const last = this.matrix(count, d);
    for (let b = 0; b < count; b++) {
      const end = (b + 1) * length * d;
      last.data.set(hidden.data.subarray(end - d, end), b * d);
    }
    const scores = this.linear(last, "pre_softmax");
    return beginnings.map((_, b) => this.logs(scores, b));
  }

  // Learning

  /** The smoothed loss of a word; its gradient goes into the scores. */
  loss(scores, labels) {
    const words = labels.words.reduce((sum, one) => sum + one);
    const spread = SMOOTHING / this.words;
    let loss = 0;
    labels.ids.forEach((right, row) => {
      if (right === PAD) return;
      const logs = this.logs(scores, row);
      const grad = scores.grad.subarray(row * scores.columns);
      for (let i = 0; i < this.words; i++) {
        const wanted = spread + (i === right ? 1 - SMOOTHING : 0);
        loss -= (wanted * logs[i]) / words;
        grad[i] = (Math.exp(logs[i]) - wanted) / words;
      }
    });
    return loss;
  }
  /** The loss of a batch, and the gradients of all weights. */
  gradients({ source, target, labels }) {
    this.begin();
    for (const { grad } of Object.values(this.weights)) grad.fill(0);
    const scores = this.decode(target, this.encode(source), source);
    const loss = this.loss(scores, labels);
    for (const back of this.tape.reverse()) back();
    return loss;
  }
  /** One step of Adam, at the rate of section 5.3. */
  update() {
    const [keep, keepSquares] = [0.9, 0.98];
    const { d_model, warmup } = this.sizes;
    const step = ++this.steps;
    const slow = Math.min(step ** -0.5, step * warmup ** -1.5);
    const rate = (d_model ** -0.5 * slow) / (1 - keep ** step);
    const whole = Math.sqrt(1 - keepSquares ** step);
    const weights = new Set(Object.values(this.weights));
    for (const { data, grad, moments } of weights) {
      const [first, second] = moments;
      for (let i = 0; i < data.length; i++) {
        first[i] = keep * first[i] + (1 - keep) * grad[i];
        second[i] = keepSquares * second[i] + (1 - keepSquares) * grad[i] ** 2;
        data[i] -= (rate * first[i]) / (Math.sqrt(second[i]) / whole + 1e-9);
      }
    }
  }
}
