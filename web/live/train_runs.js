// The runs of the model that learns: moments, and what is said of them.

export const STEPS = 800; // as in learner.js, which comes only when asked for
const ENOUGH = 400; // steps, after which nearly all is right
const CALLED = { mask: "causal mask", root: "root of d_k" };
const TRIED = 2 ** 21; // multiplications that are timed before a training:
const TRIES = 6; // longer than the grain of a browser's clock, 0.1 ms
const AS_LONG = 60; // such tries, about, as a training step

/** What was recorded, as the moments that the worker tells. */
export function unpack({ seed, least, said, rows }) {
  const moments = rows.map(([step, loss, place, exact, words]) => ({
    step,
    loss: step ? loss / 1000 : null,
    exact,
    said: said[place],
    words: words.map(([likely, ...looked]) => ({
      likely: likely / 100,
      looked: looked.map((share) => share / 100),
    })),
  }));
  return { seed, least, moments };
}

/** About how many seconds a step takes here; 10 ms of trying tell. */
export function seconds() {
  const numbers = new Float32Array(4096).fill(1.0001);
  let best = Infinity;
  for (let one = 0; one < TRIES; one++) {
    const begun = performance.now();
    multiply(numbers);
    best = Math.min(best, performance.now() - begun);
  }
  return (AS_LONG * best) / 1000;
}

/** A function of its own: such a one is compiled as it is being tried. */
function multiply(numbers) {
  let sum = 0;
  for (let i = 0; i < TRIED; i++) sum += numbers[i % 4096] * numbers[0];
  return sum;
}

/** So many seconds, in words. */
function duration(time) {
  if (time < 90) return `${Math.max(5, 5 * Math.round(time / 5))} seconds`;
  return `${Math.round(time / 60)} minutes`;
}

/** A word that is repeated is not written twenty times. */
export function shortened(text) {
  const words = text.split(" ");
  return words.length > 4 && words.every((word) => word === words[0])
    ? `${words.slice(0, 3).join(" ")} … (${words.length} times)`
    : words.join(" ");
}

export const called = (name) => CALLED[name] ?? name;

/** Which model a run is of. */
export const title = ({ without, seed }) =>
  (without.length
    ? `without ${without.map(called).join(", ")}`
    : "the whole model") + `, seed ${seed}`;

/** The last count of exact ones that was made up to a moment, and when. */
export function counted(moments, to = moments.length - 1) {
  const made = moments.slice(0, to + 1);
  const { exact, step } = made.findLast(({ exact }) => exact !== null);
  return [exact, step < moments[to].step ? ` at step ${step}` : ""];
}

let guessed = null; // how long a step takes here, before the first one

/** One line, of the moment that is shown of a run. */
export function report({ run, own, running, speed }, at) {
  const { moments } = run;
  const moment = moments[at];
  if (!own) {
    guessed ??= ENOUGH * seconds();
    return (
      `Step ${moment.step} of a run that was recorded. Here ` +
      `${ENOUGH} steps take about ${duration(guessed)}.`
    );
  }
  if (!moment) return `Making ready: ${title(run)} …`;
  const last = moments.at(-1).step;
  const goal = last < ENOUGH ? ENOUGH : STEPS;
  const rest =
    speed && last < STEPS
      ? `; step ${goal} in about ${duration((goal - last) / speed)}`
      : "";
  const doing = running ? "Training" : last >= STEPS ? "Done" : "Paused";
  return (
    `${doing} (${title(run)}): step ${moment.step}` +
    (moment.step < last ? ` (of ${last} made)` : "") +
    (running && speed ? `, ${speed.toFixed(1)} steps per second${rest}.` : ".")
  );
}

/** The newest moment of a run, to be read aloud. */
export function spoken({ moments }) {
  const { step, loss, said } = moments.at(-1);
  if (!step) return "Step 0: the weights are random.";
  const [exact, then] = counted(moments);
  return (
    `Step ${step}: loss ${loss.toFixed(2)}, ${exact} of 100 exactly ` +
    `right${then}, “I like trees” is “${shortened(said) || "nothing"}”.`
  );
}

/** What came of an earlier run. */
export function came({ moments }) {
  const { step, loss, said } = moments.at(-1);
  const [exact, then] = counted(moments);
  return (
    `: step ${step}, loss ${loss.toFixed(2)}, ${exact} of 100 ` +
    `right${then}, “${shortened(said) || "nothing"}”`
  );
}
