// Record what three pages open with, by the pages' own scripts.
//
//     node web/record.mjs
//
// It writes web/recorded/cover.json, play.json and beams.json for the
// sentences that web/sentences.json lists.

import { readFileSync, writeFileSync } from "node:fs";
import { searchesOf } from "./live/beams.js";
import { wordsOf, written } from "./live/covering.js";
import { FILES, read } from "./live/model.js";
import { played } from "./live/played.js";

const at = (name) => new URL(name, import.meta.url);
const listed = JSON.parse(readFileSync(at("sentences.json"), "utf8"));
const models = {};
function model(name) {
  const files = FILES.map((file) => [
    file,
    Uint8Array.from(readFileSync(at(`../pretrained/${name}/${file}`))).buffer,
  ]);
  return (models[name] ??= read(Object.fromEntries(files)));
}
function write(name, value) {
  writeFileSync(at(`recorded/${name}.json`), `${JSON.stringify(value)}\n`);
}

/** A sentence, and what is written when each word of it is covered.
 *
 * `means` says in English what a translation says, written by hand.
 */
async function covered({ model: name, text, opens_on, means }) {
  const { tokenizer, languages, info } = model(name);
  const source = tokenizer.pieces(tokenizer.encode(text));
  const words = wordsOf(source).filter(({ isWord }) => isWord);
  const states = [];
  for (const { places } of [{ places: [] }, ...words]) {
    const { words: _, ...state } = await written(model(name), text, places);
    states.push({ ...state, means: means[state.said] ?? "" });
  }
  const codes = info.languages;
  return { model: name, opens_on, text, languages, codes, source, states };
}

/** A sentence's decoding, and where each rival would have led.
 *
 * A step is [bars, attention]: bars are a place in `tokens` and a
 * probability in thousandths, in turn, the one taken first; attention is in
 * hundredths. The model's own steps hold a third thing: of each rival
 * [translation, the steps that follow it].
 */
async function decoded(name, text) {
  const { steps, line, ...found } = await played(model(name), text);
  const tokens = [];
  const step = ({ bars, looked }) => {
    const flat = bars.flatMap(({ token, share }) => {
      if (!tokens.includes(token)) tokens.push(token);
      return [tokens.indexOf(token), Math.round(1000 * share)];
    });
    return [flat, looked];
  };
  const own = steps.map(step);
  for (const [at, { bars }] of steps.entries()) {
    own[at][2] = [];
    for (let bar = 1; bar < bars.length; bar++) {
      const { said, steps: rest } = await line(at, bar);
      own[at][2].push([said, rest.slice(at + 1).map(step)]);
    }
  }
  return { ...found, tokens, steps: own };
}

const coverings = [];
for (const one of listed.cover) coverings.push(await covered(one));
write("cover", coverings);
const plays = [];
for (const [name, texts] of Object.entries(listed.play))
  for (const text of texts) plays.push(await decoded(name, text));
write("play", plays);
const name = "little-spanish";
const [text] = listed["little_spanish-en"].beams;
const searches = await searchesOf(model(name), text, () => {});
const short = (_, value) =>
  typeof value === "number" ? Number(value.toFixed(4)) : value;
write("beams", JSON.parse(JSON.stringify({ model: name, ...searches }, short)));
