// A decoding that was recorded, or played here: its steps, and in words.

import { percent } from "./common.js";
import { readable as name } from "./words.js";

export const END = "<eos>";
export { name };
const named = (token) => (token === END ? "the end sign" : name(token));
export const share = (part) =>
  part < 0.001 ? "<\u00a00.1\u00a0%" : percent(part);

/** What was recorded, as steps that say what they mean. */
export function open(recorded) {
  const { tokens } = recorded;
  const step = ([flat, looked, lines]) => {
    const bars = [];
    for (let i = 0; i < flat.length; i += 2)
      bars.push({ token: tokens[flat[i]], share: flat[i + 1] / 1000 });
    return { bars, looked, taken: 0, lines };
  };
  const own = { said: recorded.said, steps: recorded.steps.map(step) };
  /** The line in which step `at` takes its bar number `bar`. */
  const line = (at, bar) => {
    const found = own.steps[at]?.lines[bar - 1];
    if (!found) return own;
    const fork = { ...own.steps[at], taken: bar };
    return {
      said: found[0].trim(),
      fork: at,
      bar,
      steps: [...own.steps.slice(0, at), fork, ...found[1].map(step)],
    };
  };
  return { ...recorded, own, line, closest: closest(own.steps) };
}

/** The same of what a model of the reader's own does. */
export function opened(played) {
  const own = { said: played.said, steps: played.steps };
  const line = async (at, bar) => {
    const found = await played.line(at, bar);
    return { ...found, fork: at, bar };
  };
  return { ...played, own, line, closest: closest(own.steps) };
}

/** The step at which the second was nearest to the first. */
function closest(steps) {
  const gap = ({ bars }) => bars[0].share - bars[1].share;
  return steps.reduce(
    (best, step, at) => (gap(step) < gap(steps[best]) ? at : best),
    0,
  );
}

/** The words that a step looked at most, and what all the signs got. */
function most(source, looked) {
  const parts = looked.map((part, i) => ({ part, token: source[i] }));
  const isWord = ({ token }) => token !== END && /[\p{L}\p{N}]/u.test(token);
  const words = parts.filter(isWord).sort((a, b) => b.part - a.part);
  if (!words.length) return "";
  const listed = words
    .slice(0, 2)
    .map(({ token, part }) => `${name(token)} ${part}\u00a0%`)
    .join(" and ");
  const signs = parts.filter((one) => !isWord(one));
  const rest = signs.reduce((sum, { part }) => sum + part, 0);
  const which = signs.length > 1 ? "punctuation and end sign" : "the end sign";
  return (
    `Of the words, it looked most at ${listed}` +
    (rest > words[0].part ? `; ${which} got ${rest} %.` : ".")
  );
}

/** Step `to` of a line in a sentence; of the last also what was close. */
export function told(sentence, line, to, moving) {
  const step = line.steps[to - 1];
  if (!step)
    return (
      `“${sentence.text}” is about to become ` +
      `${sentence.languages[1] || "a translation"}, token by token.`
    );
  const count = line.steps.length;
  if (to === count && !moving)
    return `Done: “${line.said}” ${doubt(sentence, line)}`;
  const { token, share: likely } = step.bars[step.taken];
  const chosen =
    step.taken > 0
      ? `you picked ${named(token)}, ${share(likely)}, instead of ` +
        `${named(step.bars[0].token)}, ${share(step.bars[0].share)}`
      : `${named(token)}, ${share(likely)}, is the likeliest`;
  const looked = most(sentence.source, step.looked);
  return `Step ${to} of ${count}: ${chosen}. ${looked}`;
}

function doubt({ own, closest: number }, line) {
  if (line.bar) return `The model's own translation was “${own.said}”`;
  const [first, second] = own.steps[number].bars;
  if (second.share < 0.05) {
    const low = Math.min(...own.steps.map(({ bars: [bar] }) => bar.share));
    return `No step was in doubt: each winner had at least ${share(low)}.`;
  }
  return (
    `It was closest at step ${number + 1}: ${named(first.token)} ` +
    `${share(first.share)}, ${named(second.token)} ` +
    `${share(second.share)}.`
  );
}

/** The token that came nearest to another translation, if any was near. */
export function rivalOf({ own, closest: number }) {
  const [, rival] = own.steps[number].bars;
  return rival.share >= 0.05 ? rival : null;
}
