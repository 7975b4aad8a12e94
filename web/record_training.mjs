// Record the run that "one sitting" shows before anybody has pressed Train.
//
//     node web/record_training.mjs
//
// It trains the page's model by the page's own scripts, a minute or two,
// and writes web/recorded/train.json: what `unpack` in train_runs.js reads.

import { readFileSync, writeFileSync } from "node:fs";
import { Learner, STEPS, TELLING } from "./live/learner.js";

const SEED = 0;
const SPARSE = 200; // from here on every second moment is kept
const file = (name) => new URL(name, import.meta.url);
const texts = ["little_spanish", "little_people"].map((name) =>
  readFileSync(file(`../transformer_lib/data/${name}.tsv`), "utf8"),
);

/** What a perfect model would pay: the tenth that smoothing spreads. */
function leastLoss(words) {
  const other = 0.1 / words;
  const right = 0.9 + other;
  return -right * Math.log(right) - (words - 1) * other * Math.log(other);
}

const learner = new Learner(texts);
learner.start(SEED);
const said = [];
const rows = [];
let losses = [];

function keep() {
  const moment = learner.moment(losses);
  losses = [];
  if (!said.includes(moment.said)) said.push(moment.said);
  rows.push([
    moment.step,
    Math.round(1000 * moment.loss),
    said.indexOf(moment.said),
    moment.exact,
    moment.words.map(({ likely, looked }) =>
      [likely, ...looked].map((share) => Math.round(100 * share)),
    ),
  ]);
  console.log(moment.step, moment.loss, moment.exact, moment.said);
}

keep();
while (learner.model.steps < STEPS) {
  losses.push(learner.step());
  const every = learner.model.steps > SPARSE ? 2 * TELLING : TELLING;
  if (learner.model.steps % every === 0) keep();
}
const run = JSON.stringify({
  seed: SEED,
  least: leastLoss(learner.vocabulary.length),
  said,
  rows,
});
writeFileSync(file("recorded/train.json"), `${run}\n`);
