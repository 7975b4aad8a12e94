// A small Transformer that learns, by hand: the model of "one sitting".
//
// Its numbers are 32-bit floats in the memory of a small WebAssembly
// module, mm.wasm, which multiplies matrices; all else is written here.
// A part of the model computes its output and leaves, on a tape, what
// brings the gradient of the output back to its inputs. Five parts can be
// left out, to see what they are for: `without` holds their names.

import { sinusoid } from "./encodings.js";

export const [PAD, UNK, BOS, EOS] = [0, 1, 2, 3];
const MEMORY = 1600; // pages of 64 KiB: a hundred sentences at once
const SMOOTHING = 0.1;

/** By each weight's name in PyTorch its rows, its columns, and the limit
 * of its first random numbers. */
function shapesOf(words, { N, d_model, d_ff }) {
  const rows = 8 * Math.ceil(words / 8); // the product takes eight at a time
  const shapes = { table: [rows, d_model, d_model ** -0.5] };
  const add = (name, rows, columns, bias) => {
    shapes[`${name}.weight`] = [rows, columns, columns ** -0.5];
    if (bias) shapes[`${name}.bias`] = [1, bias, columns ** -0.5];
  };
  for (const side of ["encoder", "decoder"])
    for (let i = 0; i < N; i++) {
      const layer = `${side}.${i}`;
      const attentions = side === "encoder" ? ["self"] : ["self", "cross"];
      for (const kind of attentions)
        for (const letter of "qkvo")
          add(`${layer}.${kind}_attention.w_${letter}`, d_model, d_model);
      add(`${layer}.feed_forward.w_1`, d_ff, d_model, d_ff);
      add(`${layer}.feed_forward.w_2`, d_model, d_ff, d_model);
      for (let j = 1; j <= attentions.length + 1; j++)
        add(`${layer}.norm_${j}`, 1, d_model, d_model);
    }
  return shapes;
}

export class Transformer {
  /** `bytes` are those of mm.wasm; the vocabulary has `words` words. */
  constructor(bytes, words, sizes) {
    const memory = new WebAssembly.Memory({ initial: MEMORY });
    const module = new WebAssembly.Module(bytes);
    const { exports } = new WebAssembly.Instance(module, { js: { memory } });
    Object.assign(this, { words, sizes, weights: {}, moments: {} });
    this.without = new Set(); // of positions, mask, root, norm, residual
    // `top` is that of the memory in use, in bytes.
    Object.assign(this, { memory, multiply: exports.mm, top: 0 });
    this.shapes = shapesOf(words, sizes);
    for (const [name, [rows, columns]] of Object.entries(this.shapes)) {
      this.weights[name] = this.matrix(rows, columns);
      this.moments[name] = [1, 2].map(() => this.take(rows * columns));
    }
    this.bottom = this.top; // what is above is for one use
  }

  /** Random weights, as PyTorch and the page give them. */
  start(random) {
    this.steps = 0;
    for (const [name, [, columns, limit]] of Object.entries(this.shapes)) {
      const { data } = this.weights[name];
      for (const moment of this.moments[name]) moment.fill(0);
      if (name === "table")
        for (let i = 0; i < this.words * columns; i++) {
          const far = limit * Math.sqrt(-2 * Math.log(1 - random()));
          data[i] = far * Math.cos(2 * Math.PI * random());
        }
      else if (name.includes("norm")) data.fill(name.endsWith("weight"));
      else
        for (let i = 0; i < data.length; i++)
          data[i] = limit * (2 * random() - 1);
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
  matrix(rows, columns) {
    const size = rows * columns;
    return { rows, columns, data: this.take(size), grad: this.take(size) };
  }
  /** Forget what was computed, and its tape. */
  begin() {
    this.top = this.bottom;
    this.tape = [];
  }
  /** c += a b, with a (m, k); a `turned` is given as (k, m). */
  product(a, b, c, [m, n, k], turned = false) {
    const [down, right] = turned ? [4, 4 * m] : [4 * k, 4];
    const [at, by, to] = [a, b, c].map((array) => array.byteOffset);
    this.multiply(at, by, to, m, n, k, down, right);
  }

  // The parts

  /** (rows, from) to (rows, to): x W^T + bias. */
  linear(x, name) {
    const weight = this.weights[`${name}.weight`] ?? this.weights[name];
    const bias = this.weights[`${name}.bias`];
    const [rows, to, from] = [x.rows, weight.rows, weight.columns];
    const y = this.matrix(rows, to);
    if (bias) for (let i = 0; i < rows; i++) y.data.set(bias.data, i * to);
    const turned = this.take(from * to);
    for (let i = 0; i < to; i++)
      for (let j = 0; j < from; j++)
        turned[j * to + i] = weight.data[i * from + j];
    this.product(x.data, turned, y.data, [rows, to, from]);
    this.watch?.(name, x, y); // of inside.js
    this.tape.push(() => {
      this.product(y.grad, weight.data, x.grad, [rows, from, to]);
      this.product(y.grad, x.data, weight.grad, [to, from, rows], true);
      if (bias)
        for (let i = 0; i < rows * to; i++) bias.grad[i % to] += y.grad[i];
    });
    return y;
  }

  relu({ data, grad }) {
    for (let i = 0; i < data.length; i++) data[i] = Math.max(0, data[i]);
    this.tape.push(() => {
      for (let i = 0; i < data.length; i++) grad[i] *= Math.sign(data[i]);
    });
  }

  /** x + y, or y alone without the residual connection. */
  add(x, y) {
    if (this.without.has("residual")) return y;
    const sum = this.matrix(x.rows, x.columns);
    for (let i = 0; i < sum.data.length; i++)
      sum.data[i] = x.data[i] + y.data[i];
    this.tape.push(() => {
      for (let i = 0; i < sum.grad.length; i++) {
        x.grad[i] += sum.grad[i];
        y.grad[i] += sum.grad[i];
      }
    });
    return sum;
  }

  /** LayerNorm(x + y). */
  addNorm(x, y, name) {
    const sum = this.add(x, y);
    return this.without.has("norm") ? sum : this.norm(sum, name);
  }

  /** LayerNorm, row by row. */
  norm(x, name) {
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
    this.tape.push(() => {
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

  /** Equation 1 in every head; `seen(b, i)`: so many keys may be seen. */
  attend(query, key, value, { count, length, others, seen }) {
    const { h, d_model: d } = this.sizes;
    const d_k = d / h;
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
        weights[w + j] = scale * dot(query.data, q, key.data, k + j * d);
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
    this.tape.push(() =>
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
    this.looked = weights; // of the last attention that was computed
    return out;
  }

  /** Words, and section 3.5 of the paper: where they are. */
  embed({ ids, length }) {
    const { table } = this.weights;
    const d = this.sizes.d_model;
    const x = this.matrix(ids.length, d);
    const scale = Math.sqrt(d);
    const places = !this.without.has("positions");
    for (let i = 0; i < x.data.length; i++) {
      const [row, column] = [Math.floor(i / d), i % d];
      const wave = places ? sinusoid(row % length, column, d) : 0;
      x.data[i] = scale * table.data[ids[row] * d + column] + wave;
    }
    this.tape.push(() => {
      for (let i = 0; i < x.grad.length; i++)
        table.grad[ids[Math.floor(i / d)] * d + (i % d)] += scale * x.grad[i];
    });
    return x;
  }

  // The model

  attention(x, memory, name, shape) {
    const query = this.linear(x, `${name}.w_q`);
    const key = this.linear(memory, `${name}.w_k`);
    const value = this.linear(memory, `${name}.w_v`);
    const out = this.attend(query, key, value, shape);
    return this.linear(out, `${name}.w_o`);
  }
  feedForward(x, name) {
    const inner = this.linear(x, `${name}.w_1`);
    this.relu(inner);
    return this.linear(inner, `${name}.w_2`);
  }
  encode(source) {
    return this.layers("encoder", source);
  }
  /** Scores of every word: (count * length, the vocabulary and room). */
  decode(target, memory, source) {
    const x = this.layers("decoder", target, memory, source);
    return this.linear(x, "table");
  }
  /** N layers; with a memory they also look at that of a source. */
  layers(side, text, memory, source = text) {
    const { count, length } = text;
    const all = (b) => source.words[b];
    const causal = this.without.has("mask") ? () => length : (_, i) => i + 1;
    const seen = memory ? causal : all;
    const own = { count, length, others: length, seen };
    const across = { count, length, others: source.length, seen: all };
    let x = this.embed(text);
    for (let i = 0; i < this.sizes.N; i++) {
      const layer = `${side}.${i}`;
      const self = this.attention(x, x, `${layer}.self_attention`, own);
      x = this.addNorm(x, self, `${layer}.norm_1`);
      if (memory) {
        const name = `${layer}.cross_attention`;
        const cross = this.attention(x, memory, name, across);
        x = this.addNorm(x, cross, `${layer}.norm_2`);
      }
      const network = this.feedForward(x, `${layer}.feed_forward`);
      x = this.addNorm(x, network, `${layer}.norm_${memory ? 3 : 2}`);
    }
    return x;
  }
  /** The logarithms of one row's softmax. */
  logs(scores, row) {
    const at = row * scores.columns;
    const own = Float64Array.from(scores.data.subarray(at, at + this.words));
    const most = own.reduce((a, b) => Math.max(a, b));
    const sum = own.reduce((total, one) => total + Math.exp(one - most), 0);
    return own.map((one) => one - most - Math.log(sum));
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
    for (const [name, { data, grad }] of Object.entries(this.weights)) {
      const [first, second] = this.moments[name];
      for (let i = 0; i < data.length; i++) {
        first[i] = keep * first[i] + (1 - keep) * grad[i];
        second[i] = keepSquares * second[i] + (1 - keepSquares) * grad[i] ** 2;
        data[i] -= (rate * first[i]) / (Math.sqrt(second[i]) / whole + 1e-9);
      }
    }
  }
}
