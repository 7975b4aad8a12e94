// A small Transformer that learns, by hand: the model of "one sitting".
//
// Its numbers are 32-bit floats in the memory of a small WebAssembly
// module, mm.wat, which multiplies matrices; all else is written here.
// A part of the model computes its output and leaves, on a tape, what
// brings the gradient of the output back to its inputs.

export const [PAD, UNK, BOS, EOS] = [0, 1, 2, 3];
const MEMORY = 1600; // pages of 64 KiB: a hundred sentences at once
const SMOOTHING = 0.1;

/** Numbers from 0 to 1, the same for the same seed (mulberry32). */
export function chance(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Section 5.3 of the paper. */
export const learningRate = (step, { d_model, warmup }) =>
  d_model ** -0.5 * Math.min(step ** -0.5, step * warmup ** -1.5);

/** What a perfect model would pay: the tenth that smoothing spreads. */
export function leastLoss(words) {
  const other = SMOOTHING / words;
  const right = 1 - SMOOTHING + other;
  return -right * Math.log(right) - (words - 1) * other * Math.log(other);
}

/** Section 3.5 of the paper: a row for each position. */
function sinusoids(length, d_model) {
  return Float64Array.from({ length: length * d_model }, (_, at) => {
    const i = at % d_model;
    const place = (at - i) / d_model;
    const angle = place / 10_000 ** ((i - (i % 2)) / d_model);
    return i % 2 ? Math.cos(angle) : Math.sin(angle);
  });
}

/** Rows of ids of one length, in one array. */
export function padded(rows) {
  const length = Math.max(...rows.map((row) => row.length));
  const ids = new Int32Array(rows.length * length).fill(PAD);
  rows.forEach((row, i) => ids.set(row, i * length));
  return { ids, length, count: rows.length };
}

/** A matrix's numbers, their gradient, and the number of rows. */
class Matrix {
  constructor(rows, columns, data, grad) {
    Object.assign(this, { rows, columns, data, grad });
  }
}

export class Transformer {
  /** `bytes` are those of mm.wasm; the vocabulary has `words` words. */
  static async open(bytes, words, sizes) {
    const memory = new WebAssembly.Memory({ initial: MEMORY });
    const imports = { js: { memory } };
    const { instance } = await WebAssembly.instantiate(bytes, imports);
    return new Transformer(memory.buffer, instance.exports.mm, words, sizes);
  }

  constructor(buffer, mm, words, sizes) {
    Object.assign(this, { buffer, mm, words, sizes });
    this.top = 0; // of the memory in use, in bytes
    this.tape = [];
    const { N, d_model, d_ff } = sizes;
    const shapes = { table: [8 * Math.ceil(words / 8), d_model] };
    const norm = (name) => {
      shapes[`${name}.weight`] = [1, d_model];
      shapes[`${name}.bias`] = [1, d_model];
    };
    const linear = (name, to, from, bias) => {
      shapes[`${name}.weight`] = [to, from];
      if (bias) shapes[`${name}.bias`] = [1, to];
    };
    for (const side of ["encoder", "decoder"])
      for (let i = 0; i < N; i++) {
        const name = `${side}.${i}`;
        const kinds = side === "encoder" ? ["self"] : ["self", "cross"];
        for (const kind of kinds)
          for (const letter of "qkvo")
            linear(`${name}.${kind}_attention.w_${letter}`, d_model, d_model);
        linear(`${name}.feed_forward.w_1`, d_ff, d_model, true);
        linear(`${name}.feed_forward.w_2`, d_model, d_ff, true);
        for (let j = 1; j < kinds.length + 2; j++) norm(`${name}.norm_${j}`);
      }
    const sum = (total, [rows, columns]) => total + rows * columns;
    const all = Object.values(shapes).reduce(sum, 0);
    const names = ["data", "grad", "first", "second"];
    this.flat = Object.fromEntries(names.map((n) => [n, this.take(all)]));
    this.weights = {};
    let from = 0;
    for (const [name, [rows, columns]] of Object.entries(shapes)) {
      const to = from + rows * columns;
      const { data, grad } = this.flat;
      const part = (whole) => whole.subarray(from, to);
      this.weights[name] = new Matrix(rows, columns, part(data), part(grad));
      from = to;
    }
    this.count = all - (shapes.table[0] - words) * d_model;
    this.bottom = this.top; // what is above is for one use
  }

  /** Random weights, as PyTorch and the page give them. */
  start(seed) {
    const random = chance(seed);
    for (const part of Object.values(this.flat)) part.fill(0);
    this.steps = 0;
    for (const [name, { data, columns }] of Object.entries(this.weights)) {
      const bias = name.endsWith(".bias");
      if (name === "table") {
        const scale = columns ** -0.5;
        for (let i = 0; i < this.words * columns; i++) {
          const far = Math.sqrt(-2 * Math.log(1 - random()));
          data[i] = scale * far * Math.cos(2 * Math.PI * random());
        }
      } else if (name.includes("norm")) data.fill(bias ? 0 : 1);
      else {
        const weight = this.weights[name.replace("bias", "weight")];
        const limit = weight.columns ** -0.5;
        for (let i = 0; i < data.length; i++)
          data[i] = limit * (2 * random() - 1);
      }
    }
  }

  // Memory and the tape

  take(length) {
    const bytes = 16 * Math.ceil(length / 4);
    if (this.top + bytes > this.buffer.byteLength)
      throw new Error("The sentences are too long for this page's memory.");
    const found = new Float32Array(this.buffer, this.top, length).fill(0);
    this.top += bytes;
    return found;
  }
  matrix(rows, columns) {
    const size = rows * columns;
    const grad = this.learning ? this.take(size) : null;
    return new Matrix(rows, columns, this.take(size), grad);
  }
  /** Forget what was computed; keep a tape only if it is to learn. */
  begin(learning) {
    this.top = this.bottom;
    this.learning = learning;
    this.tape = [];
  }
  later(back) {
    if (this.learning) this.tape.push(back);
  }
  /** c += a b, with a (m, k); a `turned` is given as (k, m). */
  product(a, b, c, [m, n, k], turned = false) {
    const way = turned ? [4, 4 * m] : [4 * k, 4];
    const [at, by, to] = [a, b, c].map((array) => array.byteOffset);
    this.mm(at, by, to, m, n, k, ...way);
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
    this.later(() => {
      this.product(y.grad, weight.data, x.grad, [rows, from, to]);
      this.product(y.grad, x.data, weight.grad, [to, from, rows], true);
      if (bias)
        for (let i = 0; i < y.grad.length; i++)
          bias.grad[i % to] += y.grad[i];
    });
    return y;
  }

  relu(x) {
    for (let i = 0; i < x.data.length; i++)
      if (x.data[i] < 0) x.data[i] = 0;
    this.later(() => {
      for (let i = 0; i < x.data.length; i++)
        if (x.data[i] === 0) x.grad[i] = 0;
    });
    return x;
  }

  /** LayerNorm(x + y), row by row. */
  addNorm(x, y, name) {
    const gain = this.weights[`${name}.weight`];
    const bias = this.weights[`${name}.bias`];
    const { rows, columns: d } = x;
    const out = this.matrix(rows, d);
    const normal = this.take(rows * d);
    const sizes = this.take(rows);
    for (let at = 0, row = 0; row < rows; row++, at += d) {
      let [mean, squares] = [0, 0];
      for (let i = at; i < at + d; i++) mean += x.data[i] + y.data[i];
      mean /= d;
      for (let i = at; i < at + d; i++)
        squares += (x.data[i] + y.data[i] - mean) ** 2;
      sizes[row] = 1 / Math.sqrt(squares / d + 1e-5);
      for (let i = at; i < at + d; i++) {
        normal[i] = (x.data[i] + y.data[i] - mean) * sizes[row];
        out.data[i] = normal[i] * gain.data[i - at] + bias.data[i - at];
      }
    }
    this.later(() => {
      for (let at = 0, row = 0; row < rows; row++, at += d) {
        let [mean, along] = [0, 0];
        for (let i = at; i < at + d; i++) {
          const grad = out.grad[i] * gain.data[i - at];
          mean += grad / d;
          along += (grad * normal[i]) / d;
          gain.grad[i - at] += out.grad[i] * normal[i];
          bias.grad[i - at] += out.grad[i];
        }
        for (let i = at; i < at + d; i++) {
          const grad = out.grad[i] * gain.data[i - at];
          const back = (grad - mean - normal[i] * along) * sizes[row];
          x.grad[i] += back;
          y.grad[i] += back;
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
    const scale = 1 / Math.sqrt(d_k);
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
    this.later(() =>
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

  // The model

  embed({ ids, length }) {
    const { table } = this.weights;
    const d = this.sizes.d_model;
    const x = this.matrix(ids.length, d);
    const scale = Math.sqrt(d);
    const waves = sinusoids(length, d);
    ids.forEach((id, row) => {
      const place = (row % length) * d;
      for (let i = 0; i < d; i++)
        x.data[row * d + i] =
          scale * table.data[id * d + i] + waves[place + i];
    });
    this.later(() =>
      ids.forEach((id, row) => {
        for (let i = 0; i < d; i++)
          table.grad[id * d + i] += scale * x.grad[row * d + i];
      }),
    );
    return x;
  }
  attention(x, memory, name, shape) {
    const [q, k, v] = ["w_q", "w_k", "w_v"].map((part, i) =>
      this.linear(i ? memory : x, `${name}.${part}`),
    );
    const { out, weights } = this.attend(q, k, v, shape);
    this.looked = weights; // of the last attention that was computed
    return this.linear(out, `${name}.w_o`);
  }
  feedForward(x, name) {
    const wide = this.relu(this.linear(x, `${name}.w_1`));
    return this.linear(wide, `${name}.w_2`);
  }
  encode(source) {
    const { count, length } = source;
    const seen = wordsOf(source);
    let x = this.embed(source);
    for (let i = 0; i < this.sizes.N; i++) {
      const name = `encoder.${i}`;
      const shape = { count, length, others: length, seen };
      const part = this.attention(x, x, `${name}.self_attention`, shape);
      x = this.addNorm(x, part, `${name}.norm_1`);
      const network = this.feedForward(x, `${name}.feed_forward`);
      x = this.addNorm(x, network, `${name}.norm_2`);
    }
    return x;
  }
  /** Scores of every word: (count * length, the vocabulary and room). */
  decode(target, memory, source) {
    const { count, length } = target;
    const before = { count, length, others: length, seen: (_, i) => i + 1 };
    const across = { ...before, others: source.length };
    across.seen = wordsOf(source);
    let x = this.embed(target);
    for (let i = 0; i < this.sizes.N; i++) {
      const name = `decoder.${i}`;
      const own = this.attention(x, x, `${name}.self_attention`, before);
      x = this.addNorm(x, own, `${name}.norm_1`);
      const other = `${name}.cross_attention`;
      const found = this.attention(x, memory, other, across);
      x = this.addNorm(x, found, `${name}.norm_2`);
      const network = this.feedForward(x, `${name}.feed_forward`);
      x = this.addNorm(x, network, `${name}.norm_3`);
    }
    return this.linear(x, "table");
  }
  /** The smoothed loss of a word; its gradient goes into the scores. */
  loss(scores, labels) {
    const words = labels.ids.filter((id) => id !== PAD).length;
    let loss = 0;
    labels.ids.forEach((right, row) => {
      if (right === PAD) return;
      const at = row * scores.columns;
      const logs = this.logs(scores, row);
      const spread = logs.reduce((sum, log) => sum + log) / this.words;
      loss -= (1 - SMOOTHING) * logs[right] + SMOOTHING * spread;
      if (!this.learning) return;
      for (let i = 0; i < this.words; i++)
        scores.grad[at + i] =
          (Math.exp(logs[i]) - SMOOTHING / this.words) / words;
      scores.grad[at + right] -= (1 - SMOOTHING) / words;
    });
    return loss / words;
  }
  /** The logarithms of one row's softmax. */
  logs(scores, row) {
    const at = row * scores.columns;
    const found = Float64Array.from(
      scores.data.subarray(at, at + this.words),
    );
    const most = found.reduce((a, b) => Math.max(a, b));
    const sum = found.reduce((total, one) => total + Math.exp(one - most), 0);
    return found.map((one) => one - most - Math.log(sum));
  }

  // Learning

  /** The loss of a batch, and the gradients of all weights. */
  gradients({ source, target, labels }) {
    this.begin(true);
    this.flat.grad.fill(0);
    const scores = this.decode(target, this.encode(source), source);
    const loss = this.loss(scores, labels);
    for (const back of this.tape.reverse()) back();
    return loss;
  }
  /** One step of Adam, at the schedule's rate. */
  update() {
    const [keep, keepSquares] = [0.9, 0.98];
    const step = ++this.steps;
    const rate = learningRate(step, this.sizes) / (1 - keep ** step);
    const whole = Math.sqrt(1 - keepSquares ** step);
    const { data, grad, first, second } = this.flat;
    for (let i = 0; i < data.length; i++) {
      first[i] = keep * first[i] + (1 - keep) * grad[i];
      second[i] = keepSquares * second[i] + (1 - keepSquares) * grad[i] ** 2;
      const size = Math.sqrt(second[i]) / whole + 1e-9;
      data[i] -= (rate * first[i]) / size;
    }
  }
}

/** Of a sentence, how many keys may be seen: all that are no padding. */
function wordsOf({ ids, length }) {
  const counts = [];
  for (let from = 0; from < ids.length; from += length)
    counts.push(
      ids.subarray(from, from + length).filter((id) => id !== PAD).length,
    );
  return (sentence) => counts[sentence];
}
