// Trains beside the page, so that the page stays quick to the touch.
//
// It is told "open", then "reset" with a seed and what to leave out, "run",
// "pause" or "step". It answers with moments: what there is to see after a
// few steps. Told "look", it shows all that is inside.

import { load } from "./common.js";
import { Learner, STEPS, TELLING } from "./learner.js";

const FILES = ["little_spanish.tsv", "little_people.tsv"];

let learner;
let seed;
let losses = [];
let spent = 0; // milliseconds on so many steps
let turn = 0; // changes with every order, and ends a run

async function open() {
  const texts = FILES.map((name) => load(name, "text"));
  learner = new Learner(await Promise.all(texts));
}

function tell() {
  const speed = losses.length ? (1000 * losses.length) / spent : null;
  const done = learner.model.steps >= STEPS;
  const moment = learner.moment(losses);
  postMessage({ kind: "moment", speed, done, ...moment });
  losses = [];
  spent = 0;
}
function step() {
  const begun = performance.now();
  losses.push(learner.step());
  spent += performance.now() - begun;
}

const orders = {
  open,
  reset(order) {
    losses = [];
    spent = 0;
    seed = order.seed;
    learner.start(seed, order.without);
    tell();
  },
  step() {
    if (learner.model.steps < STEPS) step();
    tell();
  },
  pause() {
    if (losses.length) tell();
  },
  look() {
    const { steps } = learner.model;
    const { about, files } = learner.inside();
    for (const [name, numbers] of Object.entries(files))
      files[name] = numbers();
    postMessage({ kind: "inside", seed, steps, about, files });
  },
  run() {
    const mine = turn;
    const go = () => {
      if (mine !== turn || learner.model.steps >= STEPS) return;
      step();
      if (learner.model.steps % TELLING === 0) tell();
      setTimeout(() => attempt(go)); // what the page has said comes first
    };
    go();
  },
};

async function attempt(order) {
  try {
    await order();
  } catch (error) {
    postMessage({ kind: "error", text: error.message });
  }
}
let before = Promise.resolve(); // one order after the other
onmessage = ({ data }) => {
  before = before.then(() => {
    turn += 1;
    return attempt(() => orders[data.kind](data));
  });
};
