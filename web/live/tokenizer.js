// Byte-level byte pairs, read from the library's own tokenizer.json.

export const [PAD, UNK, BOS, EOS] = [0, 1, 2, 3];
const SPECIAL = 4; // pad, unk, bos, eos

// White space as Unicode has it, which is not what \s is here.
const SPACE =
  "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const WORDS = new RegExp(
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+" +
    `| ?[^${SPACE}\\p{L}\\p{N}]+|[${SPACE}]+(?![^${SPACE}])|[${SPACE}]+`,
  "gu",
);
// The normalizer of tokenizer.json, in the library's `tokenization`.
const HIDDEN =
  /[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]/g;
const SPACES = new RegExp(`[${SPACE}]+`, "g");

/** A visible character for each of the 256 bytes. */
function byteNames() {
  const names = [];
  let next = 256;
  for (let byte = 0; byte < 256; byte++) {
    const shown =
      (byte >= 33 && byte <= 126) ||
      (byte >= 161 && byte <= 172) ||
      byte >= 174;
    names.push(String.fromCodePoint(shown ? byte : next++));
  }
  return names;
}

export class Tokenizer {
  constructor(file) {
    const { vocab, merges } = file.model;
    this.ids = new Map(Object.entries(vocab));
    this.tokens = [];
    for (const [token, id] of this.ids) this.tokens[id] = token;
    this.ranks = new Map(
      merges.map((pair, rank) => [
        Array.isArray(pair) ? pair.join(" ") : pair,
        rank,
      ]),
    );
    this.names = byteNames();
    this.bytes = new Map(this.names.map((name, byte) => [name, byte]));
    this.known = new Map();
  }

  /** The ids of a text, with eos, as `Translator.encode` gives them. */
  encode(text) {
    const plain = text
      .replace(HIDDEN, "")
      .normalize("NFC")
      .replace(SPACES, " ")
      .replace(/^ | $/g, "");
    const words = plain.match(WORDS) ?? [];
    return [...words.flatMap((word) => this.word(word)), EOS];
  }

  /** The ids of one word: merge neighbours, earliest learnt first. */
  word(word) {
    if (this.known.has(word)) return this.known.get(word);
    let parts = Array.from(
      new TextEncoder().encode(word),
      (byte) => this.names[byte],
    );
    while (parts.length > 1) {
      let best = -1;
      let rank = Infinity;
      for (let i = 0; i + 1 < parts.length; i++) {
        const found = this.ranks.get(`${parts[i]} ${parts[i + 1]}`);
        if (found < rank) [best, rank] = [i, found];
      }
      if (best < 0) break;
      const merged = parts[best] + parts[best + 1];
      parts = [...parts.slice(0, best), merged, ...parts.slice(best + 2)];
    }
    const ids = parts.map((part) => this.ids.get(part));
    this.known.set(word, ids);
    return ids;
  }

  /** The text of ids; special ones are passed over. */
  decode(ids) {
    const bytes = ids
      .filter((id) => id >= SPECIAL)
      .flatMap((id) =>
        Array.from(this.tokens[id], (name) => this.bytes.get(name)),
      );
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    return decoder.decode(Uint8Array.from(bytes));
  }

  /** Each token as text; spaces are ▁, a part of a character �. */
  pieces(ids) {
    return ids.map((id) =>
      id < SPECIAL
        ? this.tokens[id]
        : this.decode([id]).replaceAll(" ", "▁"),
    );
  }
}
