// The decoding of a sentence, as play.js plays it.

import { breathe } from "./common.js";
import { largest } from "./search.js";
import { EOS } from "./tokenizer.js";

const RIVALS = 2; // of a token that is played; a third if it is serious
const SERIOUS = 0.02;

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
  const said = (ids) => tokenizer.decode(ids).trim() || "nothing";
  const ids = await greedy([], progress);
  const steps = stepsOf(model, text, ids, true);
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
      const follow = stepsOf(model, text, line, false).slice(at + 1);
      const fork = { ...steps[at], taken: bar };
      const before = steps.slice(0, at);
      return { said: said(line), steps: [...before, fork, ...follow] };
    },
  };
}

/** Of each token of an output: what else could have come, and where the
 * decoder looked, the mean of all layers and heads in percent. */
function stepsOf(model, text, ids, free) {
  const { source, logs, mean } = model.looking(text, ids);
  return logs.map((row, t) => {
    const shares = row.map(Math.exp);
    const bars = largest(shares, RIVALS + 1 + Number(free))
      .filter((id, rank) => rank <= RIVALS || shares[id] >= SERIOUS)
      .map((id) => {
        const [token] = model.tokenizer.pieces([id]);
        return { id, token, share: shares[id] };
      });
    const looked = source.map((_, s) => Math.round(100 * mean(t, s)));
    return { bars, looked, taken: 0, lines: free }; // others can be picked
  });
}
