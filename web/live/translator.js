// A shipped model in the browser: onnxruntime-web, one thread, no DOM.

import { address } from "./common.js";
import { translations } from "./search.js";
import { BOS, PAD, Tokenizer } from "./tokenizer.js";

const RUNTIME = "ort/ort-wasm-simd-threaded";
let runtime = null;

/** Download a file of bytes; count(bytes) is called for each part of it.
 *
 * The site holds it packed, so that as much travels from every server.
 */
async function download(name, count) {
  try {
    const answer = await fetch(address(`${name}.gz`));
    if (!answer.ok) throw new Error();
    return await unpack(await whole(answer.body.getReader(), count));
  } catch {
    throw new Error(
      `${name} could not be loaded. Is there still a connection to the ` +
        "site? Try again.",
    );
  }
}

/** All that arrives, as one array. */
async function whole(reader, count) {
  const parts = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    size += value.length;
    count(value.length);
  }
  const bytes = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

/** Some servers say that a packed file is packed: then it no longer is. */
async function unpack(bytes) {
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return bytes;
  const unpacked = new Blob([bytes])
    .stream()
    .pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(unpacked).arrayBuffer());
}

async function startRuntime(count) {
  const [binary, ort] = await Promise.all([
    download(`${RUNTIME}.wasm`, count),
    import(address("ort/ort.wasm.min.js").href),
  ]);
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = { mjs: address(`${RUNTIME}.js`).href };
  ort.env.wasm.wasmBinary = binary.buffer;
  return ort;
}

/** What has to be downloaded for a model, in bytes, as it travels. */
export const weight = (index, model) =>
  (runtime ? 0 : index.runtime) +
  Object.values(model.bytes).reduce((sum, bytes) => sum + bytes, 0);

export class Translator {
  /** Load a model of index.json; progress(share) goes from 0 to 1. */
  static async load(index, name, progress = () => {}) {
    const model = index.models.find((one) => one.name === name);
    const whole = weight(index, model);
    let got = 0;
    const count = (bytes) => {
      got += bytes;
      progress(Math.min(1, got / whole));
    };
    runtime ??= startRuntime(count).catch((error) => {
      runtime = null;
      throw error;
    });
    const [ort, encoder, decoder, file] = await Promise.all([
      runtime,
      download(`${name}/encoder.onnx`, count),
      download(`${name}/decoder.onnx`, count),
      download(`${name}/tokenizer.json`, count),
    ]);
    const made = new Translator();
    made.ort = ort;
    made.model = model;
    made.tokenizer = new Tokenizer(JSON.parse(new TextDecoder().decode(file)));
    const options = { executionProviders: ["wasm"] };
    made.encoder = await ort.InferenceSession.create(encoder, options);
    made.decoder = await ort.InferenceSession.create(decoder, options);
    return made;
  }

  /** Rows of ids, equally long, as a tensor. */
  ids(rows) {
    const data = BigInt64Array.from(rows.flat(), BigInt);
    return new this.ort.Tensor("int64", data, [rows.length, rows[0].length]);
  }

  /** What the encoder reads, and what the decoder may look at of it.
   *
   * The decoder's `source_ids` say only which places are padding; places
   * that are `covered` are said to be.
   */
  async start(text, covered) {
    const source = this.tokenizer.encode(text);
    const { memory } = await this.encoder.run({
      source_ids: this.ids([source]),
    });
    const seen = source.map((id, at) => (covered.includes(at) ? PAD : id));
    return { source, source_ids: this.ids([seen]), memory };
  }

  /** A sentence's translations, best first, and its ids. */
  async beam(text, { maxExtra = 50, covered = [], ...options } = {}) {
    const { source, source_ids, memory } = await this.start(text, covered);
    const next = async (beginnings) => {
      const target_ids = this.ids(beginnings);
      const feeds = { target_ids, memory, source_ids };
      const { log_probabilities, cross } = await this.decoder.run(feeds);
      cross.dispose();
      const [, vocabulary] = log_probabilities.dims;
      return { values: await log_probabilities.getData(), vocabulary };
    };
    const longest = this.model.max_length;
    const limit = Math.min(source.length - 1 + maxExtra, longest);
    const found = await translations(this.tokenizer, next, limit, options);
    return { source, found };
  }

  /** Cross-attention while `ids` are said: weight(layer, head, t, s). */
  async attention(text, ids, covered = []) {
    const { source, source_ids, memory } = await this.start(text, covered);
    const target_ids = this.ids([[BOS, ...ids.slice(0, -1)]]);
    const feeds = { target_ids, memory, source_ids };
    const { cross } = await this.decoder.run(feeds);
    const data = await cross.getData();
    const [N, , h, T, S] = cross.dims;
    return {
      source: this.tokenizer.pieces(source),
      target: this.tokenizer.pieces(ids),
      N,
      h,
      weight: (layer, head, t, s) => data[((layer * h + head) * T + t) * S + s],
    };
  }
}
