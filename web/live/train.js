// The model of "One sitting", trained here, in a worker.

import {
  choice,
  el,
  load,
  slider,
  style,
  tabulate,
} from "./common.js";
import { chartOf } from "./train_chart.js";
import {
  STEPS,
  called,
  came,
  counted,
  report,
  shortened,
  spoken,
  title,
  unpack,
} from "./train_runs.js";
import { wordsTable } from "./train_words.js";

const SEEDS = [0, 1, 2, 3];
const ANNOUNCED = 100; // steps from one spoken sentence to the next
const LEFT_OUT = ["positions", "mask", "root", "norm", "residual"];
const KEPT = 4; // earlier runs that stay
const SLOW = [200, 350, 60]; // steps, and milliseconds a moment till and after

export function start(place) {
  const recorded = unpack(
    JSON.parse(place.querySelector("script").textContent),
  );
  const { least, seed: first } = recorded;
  const whole = { seed: first, without: [], moments: recorded.moments };
  const state = { run: whole, own: false, running: false, speed: null };
  const past = []; // earlier runs
  let at = 0; // the moment that is shown
  let worker = null;
  let follow = true; // the newest moment, unless the reader looks back
  let waiting = false; // in a hidden tab, to go on when it is seen again
  let playing = 0; // the timer while the recorded run plays
  let change = null; // of the model that is shown from the inside

  // Controls

  const button = (text, press) =>
    el("button", { type: "button", onclick: press }, text);
  const train = button("", () => (state.running ? halt() : go()));
  train.classList.add("live-main");
  const player = button("", () => (playing ? rest() : play()));
  const once = button("One step", () => {
    halt();
    follow = true;
    order("step");
  });
  const reset = button("Reset", () => restart());
  const look = button("Look inside your model", () => {
    halt();
    order("look");
  });
  const seed = choice(
    "seed",
    SEEDS.map((number) => [number, number]),
    first,
    () => restart(),
  );
  const switches = LEFT_OUT.map((name) =>
    el("input", { type: "checkbox", value: name, onchange: () => changed() }),
  );
  const where = slider("step", { min: 0, max: STEPS, value: 0 }, () => {
    if (!state.run.moments.length) return; // it is being made ready
    follow = false;
    rest();
    halt();
    const wanted = where.value;
    show(state.run.moments.findLastIndex(({ step }) => step <= wanted));
  });
  const which = el("p", { class: "live-result train-which" });
  const status = el("p", { class: "live-spoken", role: "status" });

  // What is seen

  const chart = chartOf(recorded, (pointed) => draw(pointed ?? at));
  const fact = (name) => {
    const node = el("dd", {});
    return { node, part: el("div", {}, el("dt", {}, name), node) };
  };
  const facts = [
    "step",
    "loss per word",
    "above the floor",
    "of 100 right",
  ].map(fact);
  const said = el("b", { lang: "es" });
  const runs = el("ul", { class: "train-runs" });
  const whose = el("p", { tabindex: -1 }); // model the zoom below shows
  const words = wordsTable();
  const heads = ["step", "loss", "of 100", "“I like trees”"];
  const numbers = tabulate(heads, []);
  const table = el(
    "details",
    { class: "live-numbers", ontoggle: () => list() },
    el("summary", {}, "The run as a table"),
    numbers,
  );
  place.replaceChildren(
    el("div", { class: "live-buttons" }, player, train, once, reset, look),
    el(
      "fieldset",
      { class: "live-radios" },
      el("legend", {}, "Leave out"),
      switches.map((input) =>
        el("label", {}, input, ` ${called(input.value)}`),
      ),
    ),
    which,
    el("div", { class: "live-rows" }, where.node, seed.node),
    el(
      "div",
      { class: "train-seen" },
      el(
        "div",
        {},
        chart.node,
        el(
          "dl",
          { class: "train-facts" },
          facts.map(({ part }) => part),
        ),
      ),
      el(
        "div",
        {},
        el(
          "p",
          { class: "train-said" },
          el("span", {}, "“I like trees” is now: "),
          said,
        ),
        words.node,
      ),
    ),
    runs,
    status,
    table,
  );

  // The recorded run

  function play() {
    if (state.own || playing) return;
    if (at + 1 >= whole.moments.length) show(0);
    const [few, slow, fast] = SLOW;
    const on = () => {
      show(at + 1);
      if (at + 1 >= whole.moments.length) return rest();
      const wait = whole.moments[at].step < few ? slow : fast;
      playing = setTimeout(on, wait);
    };
    playing = setTimeout(on, slow);
    label();
  }
  function rest() {
    clearTimeout(playing);
    playing = 0;
    label();
  }

  // What the reader does

  function open() {
    rest();
    worker = new Worker(new URL("train_worker.js", import.meta.url), {
      type: "module",
    });
    worker.onmessage = ({ data }) => {
      if (data.kind === "moment") arrived(data);
      else if (data.kind === "inside") inside(data);
      else failed(data.text);
    };
    worker.onerror = ({ message }) =>
      failed(
        message // a script that did not come has none
          ? "The training could not start in this browser."
          : "The training could not be loaded. Is there still a connection " +
              "to the site? Try again.",
      );
    worker.postMessage({ kind: "open" });
    restart();
  }
  /** A switch was turned: the run begins anew, as another model. */
  function changed() {
    if (!worker) return label();
    const again = state.running;
    restart();
    if (again) go();
  }
  function restart() {
    if (!worker) return open();
    // The run that ends stays, as a thin line and what came of it.
    if (state.own && state.run.moments.length > 2) past.push(state.run);
    if (past.length > KEPT) past.shift();
    const without = switches.filter((one) => one.checked);
    const model = {
      seed: Number(seed.value),
      without: without.map(({ value }) => value),
    };
    const run = { ...model, moments: [] };
    Object.assign(state, { run, own: true, running: false });
    waiting = false;
    follow = true;
    worker.postMessage({ kind: "reset", ...model });
    label();
  }
  function order(kind) {
    if (!worker) open();
    worker.postMessage({ kind });
  }
  const ended = () =>
    state.own && state.run.moments.at(-1)?.step >= STEPS;
  function go() {
    if (ended()) restart();
    order("run");
    follow = true;
    state.running = true;
    label();
  }
  function halt() {
    waiting = false;
    if (!state.running) return;
    state.running = false;
    order("pause");
    label();
    if (state.run.moments.length) say();
  }
  function arrived(moment) {
    const { moments } = state.run;
    const late = moments.length && moment.step <= moments.at(-1).step;
    if (late || (!moments.length && moment.step)) return;
    moments.push(moment);
    state.speed = moment.speed ?? state.speed;
    if (moment.done) state.running = false;
    show(follow ? moments.length - 1 : at);
    label();
    if (!state.running || moment.step % ANNOUNCED === 0) say();
  }
  function failed(text) {
    if (!worker) return; // what failed first is told
    worker.terminate();
    worker = null;
    Object.assign(state, { run: whole, own: false, running: false });
    show(0);
    label();
    which.textContent = status.textContent = text;
  }

  /** Open the zoom of the page "One sentence" on these weights. */
  async function inside({ seed: from, steps, about, files }) {
    try {
      const [{ show }, { open }, { lines }] = await Promise.all([
        import("./zoom.js"),
        import("./zoom_paths.js"),
        load("zoom.json"),
        change ? null : style("zoom"),
      ]);
      for (const [name, data] of Object.entries(files))
        files[name] = () => data;
      const model = open({ ...about, lines }, () => ({ about, files }));
      whose.textContent =
        `Your model, seed ${from}, after ${steps} ` +
        `${steps === 1 ? "step" : "steps"}. Its decoder ` +
        "reads the right words, as in training.";
      if (change) await change(model);
      else {
        const zoom = el("div", { class: "live", "data-live": "zoom" });
        place.after(whose, zoom);
        change = show(zoom, model);
      }
      whose.focus();
    } catch {
      which.textContent = status.textContent =
        "The figure of what is inside could not be loaded. Is there still " +
        "a connection to the site? Load the page again.";
    }
  }

  // What is shown

  function label() {
    const { run, own, running } = state;
    look.disabled = !own || !run.moments.length || run.without.length > 0;
    look.title = run.without.length
      ? "A model with a part left out cannot be opened."
      : "";
    train.textContent = running
      ? "Pause"
      : ended()
        ? "Train again"
        : own && run.moments.length > 1
          ? "Go on"
          : "Train it yourself";
    player.textContent = playing ? "Pause" : "Play";
    player.hidden = own;
    once.disabled = ended();
    tell();
  }
  function tell() {
    which.textContent = report(state, at);
    list();
  }
  function show(to) {
    at = Math.max(0, to);
    where.value = state.run.moments[at].step;
    draw(at);
    tell();
  }
  function draw(to) {
    const { run, own } = state;
    const moment = run.moments[to];
    if (!moment) return;
    const { step, loss } = moment;
    where.input.setAttribute("aria-valuetext", `step ${step}`);
    const [exact, then] = counted(run.moments, to);
    [
      [`${step} of ${STEPS}`],
      [loss === null ? "–" : loss.toFixed(2)],
      [loss === null ? "–" : (loss - least).toFixed(2)],
      [exact, el("small", {}, then)],
    ].forEach((parts, i) => facts[i].node.replaceChildren(...parts));
    said.textContent = shortened(moment.said) || "nothing";
    words.draw(moment);
    chart.draw(run, to, own, past);
  }
  function list() {
    runs.replaceChildren(
      ...past.map((one) => el("li", {}, el("b", {}, title(one)), came(one))),
    );
    if (!table.open) return;
    const row = ({ step, loss, exact, said: text }) => [
      step,
      loss?.toFixed(2) ?? "–",
      exact ?? "",
      text,
    ];
    const { tBodies } = tabulate(heads, state.run.moments.map(row));
    numbers.tBodies[0].replaceWith(tBodies[0]);
  }
  const say = () => (status.textContent = spoken(state.run));

  document.addEventListener("visibilitychange", () => {
    if (document.hidden && state.running) {
      halt();
      waiting = true;
    } else if (!document.hidden && waiting) {
      waiting = false;
      go();
    }
  });
  new ResizeObserver(() => draw(at)).observe(chart.node);
  show(0);
  label();
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const seen = new IntersectionObserver(
    ([entry]) => {
      if (!entry.isIntersecting) return;
      seen.disconnect();
      if (!calm.matches) play();
    },
    { threshold: 0.5 },
  );
  seen.observe(chart.node);
  for (const kind of ["click", "input"]) // then it is the reader's to play
    place.addEventListener(kind, () => seen.disconnect(), { capture: true });
}
