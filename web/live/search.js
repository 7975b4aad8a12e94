// Beam search as the library does it, for one sentence.

import { BOS, EOS, PAD } from "./tokenizer.js";

/** lp = ((5 + length) / 6)^alpha; length counts eos. */
export const lengthPenalty = (length, alpha) =>
  ((5 + length) / 6) ** alpha;

/** The places of the k largest numbers, largest first. */
export function largest(numbers, k) {
  const found = [];
  for (let place = 0; place < numbers.length; place++) {
    const number = numbers[place];
    if (number === -Infinity) continue;
    if (found.length === k && number <= numbers[found[k - 1]]) continue;
    let at = found.length;
    while (at && numbers[found[at - 1]] < number) at--;
    found.splice(at, 0, place);
    if (found.length > k) found.pop();
  }
  return found;
}

/**
 * Up to `beamSize` hypotheses, best first: {ids, total, score, ended}.
 *
 * `next(beginnings)` gives the log-probabilities of what comes after
 * each beginning: an array each.
 * `watch(candidates)` gets the likeliest continuations of each step, as
 * {parent, ids, gain, total, fate}: the parent is a place among those of
 * the step before. `begun` are ids that every hypothesis begins with.
 */
async function beamSearch(
  next,
  limit,
  {
    beamSize = 4,
    alpha = 0.6,
    progress = () => {},
    watch = () => {},
    begun = [],
    stopped,
  } = {},
) {
  let open = [{ ids: [BOS, ...begun], total: 0, rank: 0 }];
  const ended = [];
  while (true) {
    if (stopped?.()) throw new Error("Stopped.");
    const logs = await next(open.map(({ ids }) => ids));
    const vocabulary = logs[0].length;
    const totals = new Float32Array(open.length * vocabulary);
    logs.forEach((row, i) => {
      row[PAD] = row[BOS] = -Infinity;
      totals.set(
        row.map((log) => log + open[i].total),
        i * vocabulary,
      );
    });
    const following = [];
    const candidates = largest(totals, 2 * beamSize).map((place, rank) => {
      const id = place % vocabulary;
      const before = open[Math.floor(place / vocabulary)];
      const one = { ids: [...before.ids, id], total: totals[place], rank };
      let fate = "dropped";
      if (id !== EOS && following.length < beamSize) {
        following.push(one);
        fate = "kept";
      } else if (id === EOS && rank < beamSize) {
        ended.push(finish(one, alpha, true));
        fate = "ended";
      }
      const gain = one.total - before.total;
      return { ...one, parent: before.rank, gain, fate };
    });
    watch(candidates);
    open = following;
    const length = open[0].ids.length - 1;
    await progress(length);
    if (ended.length >= beamSize) break;
    if (length >= limit) {
      ended.push(...open.map((one) => finish(one, alpha, false)));
      break;
    }
  }
  ended.sort((a, b) => b.ended - a.ended || b.score - a.score);
  return ended.slice(0, beamSize);
}

/** What `beamSearch` finds, with its words and its tokens. */
export async function translations(tokenizer, next, limit, options) {
  const found = await beamSearch(next, limit, options);
  return found.map((one) => ({
    ...one,
    text: tokenizer.decode(one.ids),
    tokens: tokenizer.pieces(one.ids),
  }));
}

function finish({ ids, total }, alpha, done) {
  const said = ids.slice(1);
  const score = total / lengthPenalty(said.length, alpha);
  return { ids: said, total, score, ended: done };
}
