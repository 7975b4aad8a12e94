// The page "Attention": one query, three keys, three values, to drag.

import {
  decimal,
  el,
  newId,
  percent,
  readState,
  rowHead,
  svg,
  tabulate,
  writeState,
} from "./common.js";

const WORDS = ["I", "like", "trees"];
const LIMIT = 3; // a plane shows -3 to 3 on both axes
const UNIT = 40; // pixels of a drawing a unit
const SIDE = 2 * LIMIT * UNIT + 20;
const FINGER = 29; // half of what a finger needs
const REST = 500; // milliseconds without a change
const CLOSE = 0.01; // how near a third "equal" is

const START = {
  q: [1.2, 0.9],
  k0: [-0.6, 1.6],
  k1: [0.9, -1.4],
  k2: [2.3, -0.1],
  v0: [-2, -1.5],
  v1: [2.2, -1.2],
  v2: [0.2, 2.2],
};
const NAMES = {
  q: "query",
  ...Object.fromEntries(WORDS.map((word, i) => [`k${i}`, `key of ${word}`])),
  ...Object.fromEntries(
    WORDS.map((word, i) => [`v${i}`, `value of ${word}`]),
  ),
};

const dot = (a, b) => a[0] * b[0] + a[1] * b[1];
const round = (number) => Math.round(100 * number) / 100 || 0;
const clamp = (number) =>
  round(Math.min(LIMIT, Math.max(-LIMIT, number)));

/** What attention makes of the points; every step on the way. */
function attend({ points, divide, mask }) {
  const keys = WORDS.map((_, i) => points[`k${i}`]);
  const values = WORDS.map((_, i) => points[`v${i}`]);
  const score = keys.map((key) => dot(points.q, key));
  const scaled = score.map((one) => (divide ? one / Math.SQRT2 : one));
  const seen = scaled.map((one, i) => (mask && i === 2 ? -Infinity : one));
  const grown = seen.map(Math.exp);
  const sum = grown.reduce((total, one) => total + one);
  const weights = grown.map((one) => one / sum);
  const output = [0, 1].map((axis) =>
    values.reduce((total, v, i) => total + weights[i] * v[axis], 0),
  );
  return { score, scaled: seen, exp: grown, weight: weights, output };
}

/** Is a point outside a triangle, by more than rounding? */
export function outside(point, [a, b, c]) {
  const side = (from, to) =>
    (to[0] - from[0]) * (point[1] - from[1]) -
    (to[1] - from[1]) * (point[0] - from[0]);
  const sides = [side(a, b), side(b, c), side(c, a)];
  return sides.some((one) => one < -1e-6) && sides.some((one) => one > 1e-6);
}

/** Is each challenge met, as things are now? */
export function met({ points, divide, mask }) {
  const { weight, output } = attend({ points, divide, mask });
  const still = points.q.every((number, i) => number === START.q[i]);
  const corners = ["v0", "v1", "v2"].map((name) => points[name]);
  return [
    weight.every((one) => Math.abs(one - 1 / 3) < CLOSE),
    still && weight[0] >= 0.9,
    outside(output, corners),
  ];
}

// The terms of equation 1, as MathJax sets them in the text.
const TERMS = {
  Q: "mjx-mi:has(> .mjx-c1D444)",
  K: "mjx-mi:has(> .mjx-c1D43E)",
  V: "mjx-mi:has(> .mjx-c1D449)",
  root: "mjx-msqrt",
  softmax: "mjx-mtext:has(+ mjx-mrow)",
};
const term = (name, ...inner) => el("span", { "data-term": name }, inner);
const italic = (letter) => el("i", {}, letter);

const CHALLENGES = [
  `Give all three words the same weight, give or take ${CLOSE}.`,
  "Give I a weight of 0.9, with the query where Reset puts it.",
  "Get the output out of the triangle.",
];
const LESSON =
  "You cannot: nobody can. The softmax makes every weight positive, and " +
  "the weights add up to one, so the output is an average of the three " +
  "values. An average lies between the things that it averages, here " +
  "inside their triangle. Attention chooses among what the values offer " +
  "and mixes it; it can never hand over anything else. To leave the " +
  "triangle the values themselves must move, which is what the learnt " +
  "matrix W_V does, and the feed-forward network after attention.";

export function start(place) {
  const found = readState();
  const state = fromAddress(found);
  const left = plane(
    "query and keys",
    "Plane of the query and the three keys",
  );
  const right = plane("values and output", "Plane of the three values");
  const bars = el("div", { class: "drag-bars", role: "img" });
  const spoken = el("p", { class: "live-spoken", role: "status" });
  const sum = el("span");
  const fields = new Map();
  const done = CHALLENGES.map(() => false);

  // Where the points are

  let resting = 0;
  function move(name, [x, y]) {
    let to = [clamp(x), clamp(y)];
    const long = Math.hypot(...to);
    if (name === "q" && long > LIMIT)
      to = to.map((one) => clamp((one * LIMIT) / long));
    state.points[name] = to;
    changed();
  }
  function changed() {
    draw();
    clearTimeout(resting);
    resting = setTimeout(() => {
      spoken.textContent = told();
      writeState(toAddress(state));
    }, REST);
  }

  // Controls

  const divide = tick("divide by √d_k", state.divide, (on) => {
    state.divide = on;
    changed();
  });
  divide.node.dataset.term = "root";
  const mask = tick("mask trees", state.mask, (on) => {
    state.mask = on;
    changed();
  });
  const reset = el(
    "button",
    {
      type: "button",
      onclick: () => {
        Object.assign(state, fromAddress({}));
        divide.input.checked = state.divide;
        mask.input.checked = state.mask;
        changed();
      },
    },
    "Reset",
  );
  const marks = CHALLENGES.map((text) => {
    const mark = el("span", { class: "drag-mark" });
    return { mark, node: el("li", {}, mark, ` ${text}`) };
  });
  const hint = el(
    "p",
    { class: "drag-hint", id: newId("hint") },
    "Drag the handles, or use Tab and arrow keys.",
  );

  // The two planes

  const handles = {};
  const inside = newId("plane");
  const lines = {
    query: svg("g", { "data-term": "Q" }),
    keys: svg("g", { "clip-path": `url(#${inside})`, "data-term": "K" }),
    values: svg("g", { "data-term": "V" }),
  };
  left.board.append(
    svg(
      "clipPath",
      { id: inside },
      svg("rect", { width: SIDE, height: SIDE }),
    ),
  );
  left.board.append(lines.keys, lines.query);
  right.board.append(lines.values);
  const grab = (name) => move.bind(null, name);
  for (const name of ["k0", "k1", "k2", "q"])
    handles[name] = handle(left, name, state, grab(name), hint.id);
  for (const name of ["v0", "v1", "v2"])
    handles[name] = handle(right, name, state, grab(name), hint.id);
  const dotOut = svg("g", { class: "drag-output" });
  right.board.append(dotOut);

  place.replaceChildren(
    hint,
    el(
      "div",
      { class: "drag-parts" },
      left.node,
      el("figure", {}, el("figcaption", {}, "weights"), bars),
      right.node,
    ),
    el(
      "p",
      { class: "drag-sum" },
      "output = ",
      term("softmax", "softmax"),
      "(",
      term("Q", italic("q")),
      term("K", italic("K"), el("sup", {}, "T")),
      " / ",
      term("root", "√", italic("d"), el("sub", {}, "k")),
      ") ",
      term("V", italic("V")),
      sum,
    ),
    el(
      "div",
      { class: "drag-controls" },
      divide.node,
      mask.node,
      reset,
    ),
    spoken,
    el(
      "ol",
      { class: "drag-challenges" },
      marks.map(({ node }) => node),
    ),
    el(
      "details",
      { class: "drag-lesson" },
      el("summary", {}, "The third does not give way?"),
      el("p", {}, LESSON),
    ),
    el(
      "details",
      { class: "live-numbers" },
      el("summary", {}, "The same points as numbers"),
      numbers(fields, state, move),
    ),
  );

  function draw() {
    const { points } = state;
    const found = attend(state);
    drawKeys(lines, points, state);
    drawValues(lines.values, dotOut, points, found);
    drawBars(bars, found, state);
    light(lit);
    for (const [name, node] of Object.entries(handles)) {
      const [x, y] = points[name];
      node.setAttribute("transform", `translate(${at([x, y]).join(" ")})`);
      label(node.querySelector("text"), [x, y], -14);
      node.setAttribute("aria-valuenow", x);
      node.setAttribute("aria-valuetext", `${x} across, ${y} up`);
      node.classList.toggle(
        "drag-masked",
        state.mask && name !== "q" && name.endsWith("2"),
      );
    }
    for (const [name, inputs] of fields)
      inputs.forEach((input, axis) => {
        if (input !== document.activeElement)
          input.value = points[name][axis];
      });
    sum.replaceChildren(
      " = ",
      ...WORDS.flatMap((word, i) => [
        i ? " + " : "",
        el("b", {}, found.weight[i].toFixed(3)),
        ` · v(${word})`,
      ]),
      ` = (${found.output.map((one) => decimal(one, 3)).join(", ")})`,
    );
    met(state).forEach((now, i) => {
      done[i] ||= now; // what was once met stays done
      marks[i].mark.textContent = done[i] ? "✓ done:" : "○ open:";
      marks[i].node.classList.toggle("drag-met", done[i]);
    });
  }

  /** A term and its part of the figure, whichever is pointed at. */
  let lit;
  function light(terms = "") {
    lit = terms;
    for (const node of document.querySelectorAll("[data-term]"))
      node.classList.toggle(
        "drag-lit",
        node.dataset.term.split(" ").some((one) => terms.includes(one)),
      );
  }
  const equation = document.getElementById("equation-eq-1");
  for (const kind of ["pointermove", "pointerdown", "focusin"])
    document.addEventListener(kind, ({ target }) => {
      for (const [name, where] of Object.entries(equation ? TERMS : {}))
        for (const node of equation.querySelectorAll(where))
          node.dataset.term = name;
      light(target.closest?.("[data-term]")?.dataset.term);
    });

  /** What is read aloud. */
  function told() {
    const { weight, output } = attend(state);
    const shares = WORDS.map((word, i) => `${word} ${percent(weight[i])}`);
    const where = output.map((one) => decimal(one, 2)).join(", ");
    const now = met(state).flatMap((one, i) => (one ? [i + 1] : []));
    return (
      `Weights: ${shares.join(", ")}. The output is at (${where}).` +
      (now.length ? ` Challenge ${now.join(" and ")} is met.` : "")
    );
  }
  draw();
  if (Object.keys(found).some((name) => name.startsWith("drag.")))
    place.scrollIntoView({ block: "center" });
}

// State

function fromAddress(found) {
  const points = {};
  for (const [name, usual] of Object.entries(START)) {
    const text = found[`drag.${name}`] ?? "";
    const known = /^-?\d+(\.\d+)?_-?\d+(\.\d+)?$/.test(text);
    points[name] = known
      ? text.split("_").map((part) => clamp(Number(part)))
      : [...usual];
  }
  return {
    points,
    divide: found["drag.divide"] !== "no",
    mask: found["drag.mask"] === "yes",
  };
}

function toAddress({ points, divide, mask }) {
  const state = {};
  for (const [name, point] of Object.entries(points))
    state[`drag.${name}`] = point.join("_");
  if (!divide) state["drag.divide"] = "no";
  if (mask) state["drag.mask"] = "yes";
  return state;
}

// Parts

const at = ([x, y]) => [SIDE / 2 + UNIT * x, SIDE / 2 - UNIT * y];

function tick(text, checked, change) {
  const input = el("input", {
    type: "checkbox",
    checked,
    onchange: () => change(input.checked),
  });
  return { input, node: el("label", { class: "drag-tick" }, input, text) };
}

function plane(caption, label) {
  const grid = [];
  for (let line = -LIMIT; line <= LIMIT; line++) {
    const [x, y] = at([line, line]);
    const kind = line ? "drag-grid" : "drag-axis";
    grid.push(
      svg("line", { x1: x, x2: x, y1: 8, y2: SIDE - 8, class: kind }),
      svg("line", { x1: 8, x2: SIDE - 8, y1: y, y2: y, class: kind }),
    );
  }
  const board = svg(
    "svg",
    {
      class: "drag-plane",
      viewBox: `0 0 ${SIDE} ${SIDE}`,
      role: "group",
      "aria-label": label,
    },
    svg("g", {}, grid),
  );
  return {
    board,
    node: el("figure", {}, el("figcaption", {}, caption), board),
  };
}

/** A point to drag; the nearest takes what several could. */
function handle(where, name, state, move, hint) {
  const kind = { q: "query", k: "key", v: "value" }[name[0]];
  const word = name === "q" ? "q" : WORDS[name[1]];
  const node = svg(
    "g",
    {
      class: `drag-handle drag-${kind}`,
      "data-point": name,
      "data-term": name[0].toUpperCase(),
      tabindex: 0,
      role: "slider",
      "aria-label": NAMES[name],
      "aria-valuemin": -LIMIT,
      "aria-valuemax": LIMIT,
      "aria-describedby": hint,
    },
    svg("circle", { r: FINGER, class: "drag-finger" }),
    svg("circle", { r: 9, class: "drag-knob" }),
    svg("text", {}, word),
  );
  const under = (event) => {
    const box = where.board.getBoundingClientRect();
    const scale = SIDE / box.width;
    return [
      ((event.clientX - box.left) * scale - SIDE / 2) / UNIT,
      (SIDE / 2 - (event.clientY - box.top) * scale) / UNIT,
    ];
  };
  let off = null; // the way from the pointer to the middle of the handle
  node.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const pointer = under(event);
    const far = (one) => {
      const [x, y] = state.points[one.dataset.point];
      return Math.hypot(x - pointer[0], y - pointer[1]);
    };
    const near = [...where.board.querySelectorAll(".drag-handle")]
      .filter((one) => far(one) * UNIT <= FINGER)
      .sort((a, b) => far(a) - far(b))[0];
    if (near && near !== node) {
      near.dispatchEvent(new PointerEvent("pointerdown", event));
      return;
    }
    event.preventDefault();
    node.focus({ preventScroll: true });
    node.setPointerCapture(event.pointerId);
    off = state.points[name].map((one, i) => one - pointer[i]);
  });
  const still = (event) => event.preventDefault();
  node.addEventListener("touchstart", still, { passive: false });
  node.addEventListener("pointermove", (event) => {
    if (off) move(under(event).map((one, i) => one + off[i]));
  });
  for (const end of ["pointerup", "pointercancel", "lostpointercapture"])
    node.addEventListener(end, () => (off = null));
  node.addEventListener("keydown", (event) => {
    const way = {
      ArrowLeft: [-1, 0],
      ArrowRight: [1, 0],
      ArrowUp: [0, 1],
      ArrowDown: [0, -1],
    }[event.key];
    if (!way || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const step = event.shiftKey ? 0.5 : 0.1;
    move(state.points[name].map((one, i) => one + step * way[i]));
  });
  where.board.append(node);
  return node;
}

/** Native inputs for the same points. */
function numbers(fields, state, move) {
  const row = (name) => {
    const inputs = ["across", "up"].map((axis, i) =>
      el("input", {
        type: "number",
        min: -LIMIT,
        max: LIMIT,
        step: 0.1,
        value: state.points[name][i],
        "aria-label": `${NAMES[name]}, ${axis}`,
        onchange: () => {
          const number = inputs[i].valueAsNumber;
          const point = [...state.points[name]];
          if (Number.isFinite(number)) point[i] = number;
          move(name, point);
          inputs[i].value = state.points[name][i];
        },
      }),
    );
    fields.set(name, inputs);
    return [rowHead(NAMES[name]), ...inputs];
  };
  return tabulate(["point", "across", "up"], Object.keys(START).map(row));
}

// Drawing

const line = (from, to, kind) => {
  const [[x1, y1], [x2, y2]] = [at(from), at(to)];
  return svg("line", { x1, y1, x2, y2, class: kind });
};

/** Arrows from the origin; each key's shadow on the query's line. */
function drawKeys({ keys, query }, points, { mask }) {
  const { q } = points;
  const long = Math.hypot(...q);
  const far = long ? q.map((one) => (one * 2 * LIMIT) / long) : [0, 0];
  const back = far.map((one) => -one);
  keys.replaceChildren(line(back, far, "drag-line"));
  WORDS.forEach((_, i) => {
    const key = points[`k${i}`];
    const closed = mask && i === 2;
    const share = long ? dot(q, key) / long ** 2 : 0;
    const foot = q.map((one) => one * share);
    const group = svg("g", { class: closed ? "drag-masked" : "" });
    group.append(
      line([0, 0], foot, "drag-shadow"),
      line(key, foot, "drag-fall"),
      line([0, 0], key, "drag-arrow drag-key"),
    );
    keys.append(group);
  });
  query.replaceChildren(line([0, 0], q, "drag-arrow drag-query"));
}

function drawValues(group, dotOut, points, { weight, output }) {
  const corners = WORDS.map((_, i) => points[`v${i}`]);
  group.replaceChildren(
    svg("polygon", {
      points: corners.map((corner) => at(corner).join(",")).join(" "),
      class: "drag-triangle",
    }),
    ...corners.map((corner, i) => {
      const pull = line(corner, output, "drag-pull");
      pull.setAttribute("stroke-width", (1 + 13 * weight[i]).toFixed(2));
      return pull;
    }),
  );
  const [cx, cy] = at(output);
  const text = svg("text", { transform: `translate(${cx} ${cy})` }, "output");
  label(text, output, 22);
  dotOut.replaceChildren(svg("circle", { cx, cy, r: 7 }), text);
}

/** Put a point's name above or below it, and inside the plane. */
function label(text, [x, y], away) {
  const near = LIMIT - 0.7; // the border
  const above = y > near ? 22 : -14;
  const below = y < -near ? -14 : 22;
  text.setAttribute("y", away < 0 ? above : below);
  const anchor = x > near ? "end" : x < -near ? "start" : "middle";
  text.setAttribute("text-anchor", anchor);
}

const STEPS = {
  score: "Q K", // a step of the way, and its terms
  scaled: "root",
  exp: "softmax",
  weight: "softmax",
};

/** Four small charts, one below the other, a bar a word. */
function drawBars(board, now, { divide }) {
  const titles = {
    score: "product = q · k",
    scaled: divide ? "score = product ÷ √2" : "score = product",
    exp: "exp of that",
    weight: "weight = share of the sum",
  };
  const finite = [...now.score, ...now.scaled].filter(Number.isFinite);
  const largest = Math.max(3, ...finite.map(Math.abs));
  const scales = {
    score: largest,
    scaled: largest,
    exp: Math.max(...now.exp),
    weight: 1,
  };
  const drawn = Object.entries(STEPS).map(([step, terms]) => {
    const signed = step === "score" || step === "scaled";
    const [zero, room] = signed ? [112, 62] : [52, 122];
    const chart = svg(
      "svg",
      { viewBox: "0 0 250 76", "data-term": terms },
      svg("text", { x: 0, y: 13, class: "drag-step" }, titles[step]),
      svg("line", {
        x1: zero,
        x2: zero,
        y1: 19,
        y2: 73,
        class: "drag-axis",
      }),
    );
    WORDS.forEach((word, i) => {
      const number = now[step][i];
      const y = 19 + 18 * i;
      const shown = Number.isFinite(number) ? number : 0;
      const wide = (room * shown) / scales[step];
      chart.append(
        svg("text", { x: 46, y: y + 13, "text-anchor": "end" }, word),
        svg("rect", {
          x: Math.min(zero, zero + wide),
          y: y + 2,
          width: Math.abs(wide),
          height: 13,
          class: step === "weight" ? "drag-share" : "drag-bar",
        }),
        svg(
          "text",
          {
            x: 250,
            y: y + 13,
            "text-anchor": "end",
            "data-step": step,
            "data-word": i,
          },
          Number.isFinite(number) ? figure(number, step) : "masked: −∞",
        ),
      );
    });
    return chart;
  });
  board.replaceChildren(...drawn);
  const shares = WORDS.map((word, i) => `${word} ${now.weight[i].toFixed(3)}`);
  board.setAttribute("aria-label", `Bars. Weights: ${shares.join(", ")}`);
}

function figure(number, step) {
  if (step === "weight") return number.toFixed(3);
  if (step === "exp" && (number >= 1e4 || number < 0.01) && number)
    return number.toPrecision(2).replace("e+", "e");
  return decimal(number, 2);
}
