// The model of "One sitting", trained here, in a worker.

import {
  address,
  choice,
  el,
  load,
  percent,
  slider,
  style,
  svg,
} from "./common.js";

const STEPS = 800; // as in learner.js, which comes only when it is asked for
const SEEDS = [0, 1, 2, 3];
const SOURCE = ["I", "like", "trees", "end"];
const RIGHT = ["Me", "gustan", "los", "árboles", "end"];
const FILES = ["little_spanish.tsv", "little_people.tsv"];
const ANNOUNCED = 100; // steps from one spoken sentence to the next
const LEFT_OUT = ["positions", "mask", "root", "norm", "residual"];
const CALLED = { mask: "causal mask", root: "root of d_k" };
const ENOUGH = 400; // steps, after which nearly all is right
const MARKED = [20, 70, 100, 110, 130, 200, 400, 800]; // written on the curve
const LETTERS = 24; // of what is written there
const KEPT = 4; // earlier runs that stay
const TOP = 7; // of the loss
const MARGIN = { left: 28, right: 8, top: 8, bottom: 34 };
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
function shortened(text) {
  const words = text.replaceAll("<bos>", "start").split(" ");
  return words.length > 4 && words.every((word) => word === words[0])
    ? `${words.slice(0, 3).join(" ")} … (${words.length} times)`
    : words.join(" ");
}

export function start(place) {
  const recorded = unpack(
    JSON.parse(place.querySelector("script").textContent),
  );
  const { least } = recorded;
  let moments = recorded.moments;
  let at = 0;
  let worker = null;
  let own = false; // whether what is shown was trained here
  let running = false;
  let follow = true; // the newest moment, unless the reader looks back
  let waiting = false; // in a hidden tab, to go on when it is seen again
  let speed = null;
  let current = { seed: recorded.seed, without: [] }; // the run that is shown
  let change = null; // of the model that is shown from the inside
  let guessed = null; // how long a step takes here, before the first one
  const past = []; // earlier runs: their moments, and what they left out

  // Controls

  const button = (text, press) =>
    el("button", { type: "button", onclick: press }, text);
  const train = button("Train it here", () => (running ? halt() : go()));
  train.classList.add("live-main");
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
    recorded.seed,
    () => restart(),
  );
  const switches = LEFT_OUT.map((name) =>
    el("input", { type: "checkbox", value: name, onchange: () => changed() }),
  );
  const without = () =>
    switches.filter(({ checked }) => checked).map(({ value }) => value);
  const where = slider("step", { min: 0, max: STEPS, value: 0 }, () => {
    follow = false;
    halt();
    const wanted = where.value;
    show(moments.findLastIndex(({ step }) => step <= wanted));
  });
  const which = el("p", { class: "live-result train-which" });
  const status = el("p", { class: "live-spoken", role: "status" });

  // What is seen

  const chart = svg("svg", {
    class: "train-chart",
    role: "img",
    onpointermove: (event) => draw(under(event)),
    onpointerleave: () => draw(at),
  });
  const fact = (name) => {
    const node = el("dd", {});
    return { node, part: el("div", {}, el("dt", {}, name), node) };
  };
  const facts = {
    step: fact("step"),
    loss: fact("loss per word"),
    above: fact("above the floor"),
    exact: fact("of 100 exactly right"),
  };
  const said = el("b", { lang: "es" });
  const runs = el("ul", { class: "train-runs" });
  const whose = el("p", { tabindex: -1 }); // model the zoom below shows
  const rows = RIGHT.map((word) => {
    const likely = el("td", { class: "train-likely" });
    const line = svg("polyline");
    const spark = svg(
      "svg",
      {
        viewBox: `0 0 ${STEPS} 1`,
        preserveAspectRatio: "none",
        "aria-hidden": "true",
      },
      line,
    );
    const looked = SOURCE.map(() => el("td", { class: "train-looked" }));
    const name = word === "end" ? {} : { lang: "es" };
    const head = el("th", { scope: "row", ...name }, word);
    const over = el("td", { class: "train-spark" }, spark);
    return { likely, line, looked, node: [head, likely, over, ...looked] };
  });
  const head = (text, name = {}) =>
    el("th", { scope: "col", ...name }, text);
  const numbers = el("tbody");
  const table = el(
    "details",
    { class: "live-numbers", ontoggle: () => list() },
    el("summary", {}, "The run as a table"),
    el(
      "table",
      {},
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          ["step", "loss", "of 100", "“I like trees”"].map((text) =>
            head(text),
          ),
        ),
      ),
      numbers,
    ),
  );
  place.replaceChildren(
    el(
      "div",
      { class: "train-controls" },
      el("div", { class: "live-buttons" }, train, once, reset),
      seed.node,
    ),
    el(
      "fieldset",
      { class: "live-radios train-without" },
      el("legend", {}, "Leave out"),
      switches.map((input) =>
        el("label", {}, input, ` ${CALLED[input.value] ?? input.value}`),
      ),
    ),
    which,
    el("div", { class: "train-where" }, where.node),
    chart,
    runs,
    el(
      "dl",
      { class: "train-facts" },
      Object.values(facts).map(({ part }) => part),
    ),
    el(
      "p",
      { class: "train-said" },
      el("span", {}, "“I like trees” is now: "),
      said,
    ),
    el(
      "table",
      { class: "train-words" },
      el(
        "caption",
        {},
        "For each right word, after the right ones before it: how likely " +
          "the model thinks it is",
        el("span", { class: "train-spark" }, ", now and over the steps"),
        ", and how much the model looks at each English word (last layer, " +
          "mean of the heads).",
      ),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          head("word"),
          head("likely"),
          head("over steps", { class: "train-spark" }),
          SOURCE.map((word) =>
            head(word, word === "end" ? {} : { lang: "en" }),
          ),
        ),
      ),
      el(
        "tbody",
        {},
        rows.map(({ node }) => el("tr", {}, node)),
      ),
    ),
    status,
    table,
    el("div", { class: "live-buttons" }, look),
  );

  // What the reader does

  function open() {
    worker = new Worker(new URL("train_worker.js", import.meta.url), {
      type: "module",
    });
    worker.onmessage = ({ data }) => {
      if (data.kind === "moment") arrived(data);
      else if (data.kind === "inside") inside(data);
      else failed(data.text);
    };
    worker.onerror = () =>
      failed("The training could not start in this browser.");
    const files = [
      new URL("mm.wasm", import.meta.url),
      ...FILES.map((name) => address(name)),
    ];
    worker.postMessage({ kind: "open", files: files.map(String) });
    restart();
  }
  /** A switch was turned: the run begins anew, as another model. */
  function changed() {
    if (!worker) return label();
    const again = running;
    restart();
    if (again) go();
  }
  function restart() {
    if (!worker) return open();
    remember();
    running = false;
    waiting = false;
    follow = true;
    own = true;
    moments = [];
    current = { seed: Number(seed.value), without: without() };
    worker.postMessage({ kind: "reset", ...current });
    label();
  }
  /** Keep the run that ends, as a thin line and what came of it. */
  function remember() {
    if (!own || moments.length < 3) return;
    past.push({ ...current, moments });
    if (past.length > KEPT) past.shift();
  }
  const title = (one) =>
    (one.without.length
      ? `without ${one.without.map((name) => CALLED[name] ?? name).join(", ")}`
      : "the whole model") + `, seed ${one.seed}`;
  function order(kind) {
    if (!worker) open();
    worker.postMessage({ kind });
  }
  function go() {
    if (own && moments.at(-1)?.step >= STEPS) restart();
    order("run");
    follow = true;
    running = true;
    label();
  }
  function halt() {
    waiting = false;
    if (!running) return;
    running = false;
    order("pause");
    label();
    if (moments.length) say();
  }
  function arrived(moment) {
    const late = moments.length && moment.step <= moments.at(-1).step;
    if (late || (!moments.length && moment.step)) return;
    moments.push(moment);
    speed = moment.speed ?? speed;
    if (moment.done) running = false;
    show(follow ? moments.length - 1 : at);
    label();
    if (!running || moment.step % ANNOUNCED === 0) say();
  }
  function failed(text) {
    worker.terminate();
    worker = null;
    running = false;
    own = false;
    moments = recorded.moments;
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
        load("zoom/index.json"),
        change ? null : style("zoom"),
      ]);
      const model = open({ ...about, lines }, (name) => files[name]);
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
    } catch (error) {
      status.textContent = error.message;
    }
  }
  // What is shown

  function label() {
    look.disabled =
      !own || !moments.length || current.without.length > 0;
    const done = own && moments.at(-1)?.step >= STEPS;
    train.textContent = running
      ? "Pause"
      : own && moments.length > 1 && !done
        ? "Go on"
        : done
          ? "Train again"
          : "Train it here";
    once.disabled = done;
    look.title = current.without.length
      ? "A model with a part left out cannot be opened."
      : "";
    report();
    list();
  }
  /** One line, which is always of what is shown. */
  function report() {
    const moment = moments[at];
    if (!own) {
      guessed ??= ENOUGH * seconds();
      which.textContent = at
        ? `Step ${moment.step} of a run that was recorded, seed ${recorded.seed}.`
        : "Step 0: nothing has been learnt yet. On this machine " +
          `${ENOUGH} steps take about ${duration(guessed)}.`;
      return;
    }
    if (!moment) {
      which.textContent = `Making ready: ${title(current)} …`;
      return;
    }
    const last = moments.at(-1).step;
    const goal = last < ENOUGH ? ENOUGH : STEPS;
    const rest =
      speed && last < STEPS
        ? `; step ${goal} in about ${duration((goal - last) / speed)}`
        : "";
    const doing = running ? "Training" : last >= STEPS ? "Done" : "Paused";
    which.textContent =
      `${doing} (${title(current)}): step ${moment.step}` +
      (moment.step < last ? ` (of ${last} made)` : "") +
      (running && speed ? `, ${speed.toFixed(1)} steps per second${rest}.` : ".");
  }
  function show(to) {
    at = Math.max(0, to);
    where.value = moments[at].step;
    draw(at);
    report();
    list();
  }
  /** The last count of exact ones that was made up to a moment. */
  const counted = (to) =>
    moments.slice(0, to + 1).findLast(({ exact }) => exact !== null);
  function draw(to) {
    const moment = moments[to];
    if (!moment) return;
    const { step, loss, words } = moment;
    where.input.setAttribute("aria-valuetext", `step ${step}`);
    const { exact } = counted(to);
    facts.step.node.textContent = `${step} of ${STEPS}`;
    facts.loss.node.textContent = loss === null ? "–" : loss.toFixed(2);
    facts.above.node.textContent =
      loss === null ? "–" : (loss - least).toFixed(2);
    facts.exact.node.textContent = exact;
    said.textContent = shortened(moment.said) || "nothing";
    words.forEach(({ likely, looked }, i) => {
      const row = rows[i];
      row.likely.textContent = percent(likely);
      row.likely.style.setProperty("--share", `${100 * likely}%`);
      row.line.setAttribute(
        "points",
        moments
          .slice(0, to + 1)
          .map((one) => `${one.step},${1 - one.words[i].likely}`)
          .join(" "),
      );
      looked.forEach((share, j) => {
        row.looked[j].textContent = `${Math.round(100 * share)}\u00a0%`;
        row.looked[j].style.setProperty("--share", `${100 * share}%`);
      });
    });
    curve(to);
  }
  let scale = null; // of the chart: where a step and a loss are
  function curve(to) {
    const box = chart.getBoundingClientRect();
    if (!box.width) return;
    const { left, right, top, bottom } = MARGIN;
    const [wide, high] = [box.width, box.height];
    const x = (step) => left + ((wide - left - right) * step) / STEPS;
    const y = (loss) => top + (high - top - bottom) * (1 - loss / TOP);
    scale = { x, left: box.left };
    const line = (from, end, kind) =>
      svg("line", {
        class: kind,
        x1: from[0],
        y1: from[1],
        x2: end[0],
        y2: end[1],
      });
    const drawn = (run, kind) =>
      svg("polyline", {
        class: kind,
        points: run
          .filter(({ loss }) => loss !== null)
          .map((one) => `${x(one.step)},${y(Math.min(TOP, one.loss))}`)
          .join(" "),
      });
    const words = (text, a, b, anchor) =>
      svg("text", { x: a, y: b, "text-anchor": anchor }, text);
    const { step, loss } = moments[to];
    chart.setAttribute("viewBox", `0 0 ${wide} ${high}`);
    chart.setAttribute(
      "aria-label",
      `The loss over ${STEPS} steps` +
        (loss === null
          ? ", which have not begun."
          : `: ${loss.toFixed(2)} at step ${step}; the least is ` +
            `${least.toFixed(2)}.`),
    );
    chart.replaceChildren(
      ...[0, 2, 4, 6].flatMap((tick) => [
        line([left, y(tick)], [wide - right, y(tick)], "train-axis"),
        words(tick, left - 6, y(tick) + 4, "end"),
      ]),
      ...[0, 200, 400, 600, 800].map((tick) =>
        words(tick, x(tick), high - bottom + 16, tick ? "middle" : "start"),
      ),
      words("step", x(STEPS / 2), high - 4, "middle"),
      words("loss per word", wide - right - 2, top + 6, "end"),
      line([left, y(least)], [wide - right, y(least)], "train-least"),
      words(
        `floor ${least.toFixed(2)}`,
        wide - right - 2,
        y(least) + 15,
        "end",
      ),
      line([x(step), y(0)], [x(step), y(TOP)], "train-cursor"),
      ...past.map((one) => drawn(one.moments, "train-past")),
      drawn(moments, own ? "train-curve" : "train-curve train-recorded"),
      ...written(x, y, wide - right),
      loss === null
        ? ""
        : svg("circle", { cx: x(step), cy: y(Math.min(TOP, loss)), r: 4 }),
    );
  }
  /** What it wrote for "I like trees", where it wrote it. */
  function written(x, y, edge) {
    const found = [];
    let [below, last] = [-Infinity, null];
    for (const one of moments) {
      const due = MARKED.includes(one.step) && one.said && one.said !== last;
      if (!due || (one.step > moments[at].step && own === false)) continue;
      const whole = shortened(one.said).replace(/ \(.*/, "");
      const text =
        whole.length > LETTERS ? `${whole.slice(0, LETTERS)} …` : whole;
      const [a, b] = [x(one.step), y(Math.min(TOP, one.loss))];
      const row = Math.max(b - 6, below + 16);
      if (a + 7 * text.length > edge) continue;
      below = row;
      last = one.said;
      found.push(
        svg("circle", { class: "train-mark", cx: a, cy: b, r: 2.5 }),
        svg("text", { class: "train-written", lang: "es", x: a + 7, y: row }, text),
      );
    }
    return found;
  }
  function under(event) {
    if (!scale) return at;
    const far = (one) =>
      Math.abs(scale.x(one.step) - (event.clientX - scale.left));
    return moments.reduce(
      (best, one, i) => (far(one) < far(moments[best]) ? i : best),
      0,
    );
  }
  function list() {
    runs.replaceChildren(
      ...past.map((one) => {
        const end = one.moments.at(-1);
        const { exact } = one.moments.findLast((each) => each.exact !== null);
        return el(
          "li",
          {},
          el("b", {}, title(one)),
          `: step ${end.step}, loss ${end.loss.toFixed(2)}, ${exact} of 100 ` +
            `right, “${shortened(end.said) || "nothing"}”`,
        );
      }),
    );
    if (!table.open) return;
    numbers.replaceChildren(
      ...moments.map(({ step, loss, exact, said: text }) =>
        el(
          "tr",
          {},
          [step, loss?.toFixed(2) ?? "–", exact ?? "", text].map((one) =>
            el("td", {}, one),
          ),
        ),
      ),
    );
  }
  function say() {
    const { step, loss, said: text } = moments.at(-1);
    const { exact } = counted(moments.length - 1);
    status.textContent =
      step === 0
        ? "Step 0: the weights are random."
        : `Step ${step}: loss ${loss.toFixed(2)}, ${exact} of 100 exactly ` +
          `right, “I like trees” is “${shortened(text) || "nothing"}”.`;
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden && running) {
      halt();
      waiting = true;
    } else if (!document.hidden && waiting) {
      waiting = false;
      go();
    }
  });
  new ResizeObserver(() => draw(at)).observe(chart);
  show(0);
  label();
}
