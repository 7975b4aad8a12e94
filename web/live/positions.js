// The page "Masks and positions".

import {
  INK,
  cellAt,
  decimal,
  el,
  ink,
  paint,
  radios,
  redraw,
  rowHead,
  slider,
  svg,
  tabulate,
  upTo,
} from "./common.js";
import {
  MASKS,
  angleOf,
  sinusoid,
  wavelength,
} from "./encodings.js";

const WIDEST = 640; // pixels of a curve, or of the clocks
const GRID = 190; // pixels of the table of encodings
const WIDE_MASK = 290; // and of a mask
const WAVES = { height: 90, edge: 8, left: 24 };
const CLOCKS = { wide: 80, high: 72, radius: 24 };

export function start(place) {
  const parts = {
    positions: startPositions,
    masks: startMasks,
  };
  parts[place.dataset.part](place);
}

// Positions

function startPositions(place) {
  const controls = {
    length: slider("length", { min: 1, max: 128, value: 32 }, draw),
    dModel: slider(
      "d_model",
      { min: 2, max: 256, step: 2, value: 64 },
      draw,
    ),
    position: slider("position", { min: 0, max: 31, value: 5 }, draw),
    dimension: slider("dimension", { min: 0, max: 63, value: 4 }, draw),
  };
  const canvas = el("canvas", { role: "img", class: "live-grid" });
  const answer = el("p", { class: "live-result", role: "status" });
  const value = el("p", { class: "live-axis" });
  const hands = el("div");
  const wave = el("div");
  const heads = ["dimension", "angle", "value"];
  const vector = tabulate(heads, []);
  canvas.addEventListener("click", (event) => {
    const { length, dModel, position, dimension } = controls;
    const cell = cellAt(event, length.value, dModel.value);
    [position.value, dimension.value] = cell;
    draw();
  });
  place.replaceChildren(
    el(
      "p",
      { class: "live-ask" },
      "Find the dimension whose wave turns once in this sentence.",
    ),
    el(
      "div",
      { class: "live-controls" },
      Object.values(controls).map(({ node }) => node),
    ),
    answer,
    el("div", { class: "live-figure live-pair" }, wave, hands),
    scale("rows: positions · columns: dimensions of the vector"),
    canvas,
    value,
    el(
      "details",
      { class: "live-numbers" },
      el("summary", {}, "The chosen position's vector, in numbers"),
      vector,
    ),
  );

  function draw() {
    const length = controls.length.value;
    const dModel = controls.dModel.value;
    controls.position.limit(0, length - 1);
    controls.dimension.limit(0, dModel - 1);
    const position = controls.position.value;
    const dimension = controls.dimension.value;
    drawGrid(canvas, { length, dModel, position, dimension });
    answer.textContent = judge(dimension, length, dModel);
    const number = sinusoid(position, dimension, dModel);
    const angle = angleOf(position, dimension, dModel);
    const name = dimension % 2 ? "cos" : "sin";
    value.replaceChildren(
      `Position ${position}, dimension ${dimension}: ${name}(${position}`,
      " / 10000",
      el("sup", {}, `${dimension - (dimension % 2)}/${dModel}`),
      `) = ${name}(${angle.toFixed(4)}) = `,
      el("strong", {}, decimal(number, 4)),
    );
    drawHands(hands, { dModel, position, dimension });
    drawWave(wave, { length, dModel, position, dimension });
    const rows = upTo(dModel).map((i) => [
      rowHead(String(i)),
      angleOf(position, i, dModel).toFixed(4),
      decimal(sinusoid(position, i, dModel), 4),
    ]);
    vector.tBodies[0].replaceWith(tabulate(heads, rows).tBodies[0]);
  }
  draw();
  redraw(place, draw);
}

/** Is no other pair of dimensions nearer to one turn in the sentence? */
function judge(dimension, length, dModel) {
  const far = (i) => Math.abs(Math.log(wavelength(i, dModel) / length));
  const waves = wavelength(dimension, dModel);
  const own = dimension - (dimension % 2);
  let best = 0;
  for (let i = 0; i < dModel; i += 2) if (far(i) < far(best)) best = i;
  const told =
    `Dimension ${dimension} begins again after ${waves.toFixed(1)} ` +
    "positions: ";
  if (own === best)
    return `✓ ${told}no other comes nearer to ${length}, one sentence long.`;
  return told + (waves < length ? "too fast." : "too slow.");
}

function drawGrid(canvas, state) {
  const { length, dModel, position, dimension } = state;
  const drawn = paint(canvas, length, dModel, GRID, (row, column) => {
    const number = sinusoid(row, column, dModel);
    const colour = number < 0 ? INK.negative : INK.positive;
    return ink(colour, Math.abs(number));
  });
  const { context, x, y, ratio } = drawn;
  const rowHigh = y(position + 1) - y(position);
  context.strokeStyle = getComputedStyle(canvas).color;
  context.lineWidth = ratio;
  context.strokeRect(0, y(position), canvas.width, rowHigh);
  context.strokeRect(
    x(dimension),
    0,
    x(dimension + 1) - x(dimension),
    canvas.height,
  );
  canvas.setAttribute(
    "aria-label",
    `The encodings of positions 0 to ${length - 1} ` +
      `in ${dModel} dimensions: fast waves on the left, slow ones on ` +
      "the right.",
  );
}

/** Some pairs of dimensions as the clocks of the chapter's figure. */
function drawHands(place, { dModel, position, dimension }) {
  const { wide, high, radius } = CLOCKS;
  const most = Math.floor(room(place) / wide);
  const chosen = Math.floor(dimension / 2);
  const last = dModel / 2 - 1;
  const count = Math.min(most, last + 1);
  const pairs = upTo(count).map((i) =>
    count > 1 ? Math.round((i * last) / (count - 1)) : 0,
  );
  const far = pairs.map((pair) => Math.abs(pair - chosen));
  pairs[far.indexOf(Math.min(...far))] = chosen;
  const clocks = pairs.map((pair, i) => {
    const [x, y] = [wide * (i + 0.5), radius + 2];
    const [right, up] = [2 * pair, 2 * pair + 1].map((one) =>
      sinusoid(position, one, dModel),
    );
    const colour = pair === chosen ? INK.position : "currentColor";
    const circle = { cx: x, cy: y, r: radius, fill: "none", stroke: colour };
    const hand = {
      x1: x,
      y1: y,
      x2: x + radius * right,
      y2: y - radius * up,
      stroke: colour,
      "stroke-width": pair === chosen ? 3 : 1.5,
    };
    return [
      svg("circle", circle),
      svg("line", hand),
      svg(
        "text",
        { x, y: high - 4, "text-anchor": "middle", class: "live-tick" },
        `${2 * pair}, ${2 * pair + 1}`,
      ),
    ];
  });
  const title =
    `Position ${position} on clocks, one for two dimensions: sine to the ` +
    "right, cosine up";
  const picture = svg(
    "svg",
    {
      viewBox: `0 0 ${most * wide} ${high}`,
      role: "img",
      "aria-label": `${title}.`,
    },
    clocks.flat(),
  );
  place.replaceChildren(axis(title), picture);
}

/** The width of a picture whose letters are as large as the page's. */
const room = (place) => Math.min(WIDEST, place.clientWidth || WIDEST);

/** A dimension's curve between -1 and 1 with a mark at one position. */
function drawWave(place, { length, dModel, position: at, dimension }) {
  const values = upTo(length).map((i) => sinusoid(i, dimension, dModel));
  const title = `Dimension ${dimension} along the positions of the sentence`;
  const { height, edge, left } = WAVES;
  const width = room(place);
  const last = Math.max(1, values.length - 1);
  const x = (i) => left + (i / last) * (width - left - edge);
  const y = (value) => height / 2 - value * (height / 2 - edge);
  const points = values.map((value, i) => `${x(i)},${y(value)}`);
  const picture = svg(
    "svg",
    {
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": `${title}. Here: ${values[at].toFixed(3)}.`,
    },
    [1, 0, -1].map((one) =>
      svg(
        "text",
        { x: left - 8, y: y(one) + 4, "text-anchor": "end", class: "live-tick" },
        decimal(one, 0),
      ),
    ),
    svg("line", {
      x1: left,
      x2: width - edge,
      y1: y(0),
      y2: y(0),
      class: "live-zero",
    }),
    svg("polyline", {
      points: points.join(" "),
      fill: "none",
      stroke: INK.position,
      "stroke-width": 2,
    }),
    values.length <= 64
      ? values.map((value, i) =>
          svg("circle", { cx: x(i), cy: y(value), r: 2.5, fill: INK.position }),
        )
      : [],
    svg("circle", {
      cx: x(at),
      cy: y(values[at]),
      r: 6,
      fill: "none",
      stroke: "currentColor",
      "stroke-width": 2,
    }),
  );
  place.replaceChildren(axis(title), picture);
}

const axis = (text) => el("p", { class: "live-axis" }, text);

function scale(text) {
  return el(
    "p",
    { class: "live-axis live-scale" },
    `${text} · `,
    el(
      "span",
      {},
      "−1 ",
      el("i", {
        "aria-hidden": "true",
        style:
          `background: linear-gradient(to right, ${INK.negative}, ` +
          `transparent, ${INK.positive})`,
      }),
      " 1",
    ),
  );
}

// Masks

const KINDS = [
  ["padding", "padding"],
  ["causal", "causal"],
  ["decoder", "both (the decoder's)"],
  ["neighbourhood", "neighbourhood"],
];

function startMasks(place) {
  const kind = radios("Which mask?", KINDS, "decoder", "decoder", draw);
  const controls = {
    length: slider("length", { min: 1, max: 24, value: 8 }, draw),
    pads: slider("padding", { min: 0, max: 23, value: 2 }, draw),
    r: slider("r", { min: 1, max: 47, step: 2, value: 3 }, draw),
    query: slider("query", { min: 0, max: 7, value: 3 }, draw),
  };
  const canvas = el("canvas", { role: "img" });
  const said = el("p", { class: "live-axis" });
  const rows = el("pre", {
    tabindex: 0,
    role: "region",
    "aria-label": "The mask's rows",
  });
  canvas.addEventListener("click", (event) => {
    const length = controls.length.value;
    [controls.query.value] = cellAt(event, length, length);
    draw();
  });
  const answer = el("p", { class: "live-result", role: "status" });
  const ask =
    "Where the causal mask is, find a query for which padding still " +
    "closes something.";
  const sliders = Object.values(controls).map((control) => control.node);
  place.replaceChildren(
    el(
      "div",
      { class: "live-pair" },
      el(
        "div",
        {},
        el("p", { class: "live-ask" }, ask),
        kind.node,
        el("div", { class: "live-controls" }, sliders),
        answer,
      ),
      el(
        "div",
        {},
        axis("rows: queries, from the top · columns: keys"),
        canvas,
        said,
      ),
    ),
    el(
      "details",
      { class: "live-numbers" },
      el("summary", {}, "The mask in numbers: 1 may attend, 0 may not"),
      rows,
    ),
  );

  function draw() {
    const length = controls.length.value;
    const padded = ["padding", "decoder"].includes(kind.value);
    controls.pads.limit(0, length - 1);
    controls.r.limit(1, 2 * length - 1);
    controls.pads.node.hidden = !padded;
    controls.r.node.hidden = kind.value !== "neighbourhood";
    controls.query.limit(0, length - 1);
    const state = {
      length,
      pads: padded ? controls.pads.value : 0,
      r: controls.r.value,
      query: controls.query.value,
      may: MASKS[kind.value],
    };
    drawMask(canvas, state);
    said.textContent = sayRow(state);
    rows.textContent = maskRows(state);
    answer.textContent = judgeMask(kind.value, state);
  }
  draw();
  redraw(place, draw);
}

/** Does padding close a key that the causal mask has left open? */
function judgeMask(kind, { length, pads, query }) {
  if (kind !== "decoder") return "Choose both, to have them together.";
  if (!pads) return "There is no padding now.";
  return query >= length - pads
    ? `✓ Query ${query}, which is padding itself. Before it the triangle ` +
        "hides all padding: it lies in the future."
    : `Query ${query} doesn't see the padding anyway: it lies in its future.`;
}

function drawMask(canvas, state) {
  const { length, pads, query, may } = state;
  const side = Math.min(WIDE_MASK, 36 * length);
  canvas.style.width = `${side}px`;
  const drawn = paint(canvas, length, length, side, (row, key) => {
    const pad = key >= length - pads;
    if (may(row, key, state)) return INK.attention;
    return pad ? ink(INK.source, 0.75) : ink("#7c848d", 0.25);
  });
  const { context, x, y, ratio } = drawn;
  context.lineWidth = ratio;
  context.strokeStyle = getComputedStyle(canvas.parentNode).getPropertyValue(
    "--pst-color-background",
  );
  for (let i = 1; i < length; i++) {
    context.strokeRect(x(i), -ratio, 0, canvas.height + 2 * ratio);
    context.strokeRect(-ratio, y(i), canvas.width + 2 * ratio, 0);
  }
  context.lineWidth = 2 * ratio;
  context.strokeStyle = getComputedStyle(canvas).color;
  const high = y(query + 1) - y(query);
  context.strokeRect(ratio, y(query), canvas.width - 2 * ratio, high);
  canvas.setAttribute(
    "aria-label",
    `A mask of ${length} queries by ${length} keys. ${sayRow(state)}`,
  );
}

function sayRow(state) {
  const { length, pads, query, may } = state;
  const open = upTo(length).filter((key) => may(query, key, state));
  const padding = query >= length - pads ? " (padding itself)" : "";
  return (
    `Query ${query}${padding} may attend to ` +
    (open.length === 1 ? "key " : "keys ") +
    `${ranges(open)}: ${open.length} of ${length}.`
  );
}

/** 0, 1, 2, 5 is said as 0 to 2, 5. */
function ranges(numbers) {
  const runs = [];
  for (const number of numbers) {
    const run = runs.at(-1);
    if (run && run[1] === number - 1) run[1] = number;
    else runs.push([number, number]);
  }
  return runs
    .map(([from, to]) => (from === to ? `${from}` : `${from} to ${to}`))
    .join(", ");
}

function maskRows(state) {
  const { length, may } = state;
  const all = upTo(length);
  return all
    .map((row) => all.map((key) => Number(may(row, key, state))).join(" "))
    .join("\n");
}
