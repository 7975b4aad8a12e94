// The page "Beam search, replayed".

import {
  INK,
  breathe,
  decimal,
  el,
  inAddress,
  loading,
  radios,
  redraw,
  scroller,
  sentences,
  slider,
  svg,
  table,
  upTo,
} from "./common.js";
import { fetched } from "./model.js";
import { becomes, describe, ownSentence } from "./own_model.js";
import { lengthPenalty } from "./search.js";
import { readable } from "./words.js";

const BOX = { width: 136, least: 106, height: 20, gap: 18, top: 14 };
const FATES = ["dropped", "kept", "ended"];
const MARKS = ["\u00d7", "\u2192", "\u25a0"];
const INKS = ["#7c848d", INK.target, INK.attention];
const BEAMS = ["2", "4"];
const ALPHAS = ["0", "0.6", "1"];
const WHY = {
  enough: "a whole beam has ended",
  limit: "the longest output allowed is reached",
};
const LONG = 45; // letters of greedy's translation that are shown
const words = (tokens) => tokens.join("").replaceAll("▁", " ").trim();

export async function start(place) {
  const recorded = JSON.parse(place.querySelector("script").textContent);
  const inLink = inAddress(place, "beams");
  const state = inLink.read();
  let shown = null;
  let begin = Number(state.step ?? Infinity); // the step that is shown first
  const computed = {
    list: ({ beams }) => beams.map((text) => ({ text })),
    async read(about, { text }) {
      const known = about.name === recorded.model && text === recorded.text;
      if (known) return recorded;
      const found = await searchesOf(await model(about), text, breathe);
      texts.note.textContent = "";
      return found;
    },
  };
  const model = (about) =>
    fetched(about, (share) => {
      texts.note.textContent = loading(share, about);
    });
  const texts = await sentences(computed, state, (found) => {
    shown = found;
    draw(begin);
    begin = Infinity;
  });
  const beam = radios(
    "beam size",
    [
      [BEAMS[0], "2"],
      [BEAMS[1], "4, the paper's"],
    ],
    state.beam,
    "4",
    () => draw(),
  );
  const alpha = radios(
    "length penalty α",
    [
      [ALPHAS[0], "0"],
      [ALPHAS[1], "0.6, the paper's"],
      [ALPHAS[2], "1"],
    ],
    state.alpha,
    "0.6",
    () => draw(),
  );
  const step = slider("step", { min: 0, max: 1, value: 0 }, () => draw());
  const last = () => search().steps.length;
  const moves = [
    ["Back", () => draw(step.value - 1)],
    ["Step", () => draw(step.value < last() ? step.value + 1 : 0)],
  ];
  const buttons = moves.map(([name, onclick]) =>
    el("button", { type: "button", onclick }, name),
  );
  buttons[1].className = "live-main";
  const said = el("p", { class: "live-result", role: "status" });
  const tree = scroller("The search as a tree; the tables say the same");
  const candidates = scroller("This step");
  const results = scroller("What has been found");
  place.replaceChildren(
    texts.node,
    el("div", { class: "live-rows" }, beam.node, alpha.node),
    el(
      "div",
      { class: "live-rows" },
      el("div", { class: "live-buttons" }, buttons),
      step.node,
    ),
    said,
    tree,
    results,
    el(
      "details",
      { class: "live-numbers" },
      el("summary", {}, "This step as a table"),
      candidates,
    ),
    ownSentence("Search", look),
  );
  await texts.open(Number(state.sentence ?? 0));
  redraw(place, () => shown && draw());

  /** The searches of a sentence, by a model of the reader's own. */
  async function look(model, text, note) {
    if (!text.trim()) throw new Error("Write a sentence first.");
    const tell = (beamSize, length) => {
      note.textContent = `Searching, beam size ${beamSize}: ${length} tokens …`;
      return breathe();
    };
    const found = await searchesOf(model, text, tell);
    await texts.own(describe(model), { text }, found);
    const [said] = search().found[0];
    return `${becomes(text, said)} All of this is your model's.`;
  }

  function search() {
    return shown.searches.find(
      (one) =>
        one.beam === Number(beam.value) && one.alpha === Number(alpha.value),
    );
  }

  function draw(at = step.value) {
    const found = search();
    step.limit(0, last());
    step.value = Number.isNaN(at) ? 0 : Math.min(last(), Math.max(0, at));
    const now = step.value;
    const over = now === last();
    buttons[0].setAttribute("aria-disabled", String(!now));
    buttons[1].textContent = over ? "Replay" : "Step";
    const spoken = paths(found.steps);
    const greedy = greedyPath(found.steps, shown.greedy.tokens);
    said.textContent = sayStep(found, now, over);
    drawTree(tree, found.steps, now, spoken, greedy);
    candidates.replaceChildren(
      now ? stepTable(found, now, spoken, greedy) : "Nothing is said yet.",
    );
    results.replaceChildren(
      resultTable(found, now, over, spoken, shown.greedy),
    );
    inLink.write({
      ...texts.state,
      beam: beam.value,
      alpha: alpha.value,
      step: now,
    });
  }

  function sayStep({ steps, why }, now, over) {
    if (!now)
      return (
        `“${shown.text}” has been encoded. Nothing is said yet: ` +
        "press Step."
      );
    const fates = steps[now - 1].map(([, , , , fate]) => fate);
    const count = (fate) => fates.filter((one) => one === fate).length;
    const at = `Step ${now} of ${steps.length}: ${count(1)} kept`;
    return over
      ? `${at}, ${count(2)} ended. The search stops: ${WHY[why]}.`
      : `${at} (${MARKS[1]}), ${count(2)} ended (${MARKS[2]}), ` +
          `of the ${fates.length} best continuations.`;
  }
}

/** All searches of a sentence: tell(beam size, length) of each step. */
export async function searchesOf(model, text, tell) {
  const searches = [];
  const ask = (beamSize, watch) => {
    const progress = (length) => tell(beamSize, length);
    return model.beam(text, { beamSize, watch, progress });
  };
  const best = (await ask(1)).found[0];
  for (const beam of BEAMS.map(Number)) {
    const steps = [];
    const { found } = await ask(beam, (step) => steps.push(step));
    const why = found.every(({ ended }) => ended) ? "enough" : "limit";
    for (const alpha of ALPHAS.map(Number))
      searches.push({
        beam,
        alpha,
        why,
        steps: steps.map((step) => step.map(row)),
        found: ranked(steps, why, alpha).slice(0, beam),
      });
  }
  const tokens = best.tokens.map((token) => [token]);
  const greedy = { text: best.text, tokens, total: best.total };
  return { text, greedy, searches };

  function row({ parent, ids, gain, total, fate }) {
    const [token] = model.tokenizer.pieces(ids.slice(-1));
    return [parent, token, gain, total, FATES.indexOf(fate)];
  }

  /** The hypotheses, best first; what was cut off comes after them. */
  function ranked(steps, why, alpha) {
    const ended = steps.flat().filter(({ fate }) => fate === "ended");
    const open = steps.at(-1).filter(({ fate }) => fate === "kept");
    const scored = (list) =>
      list
        .map(({ ids, total }) => {
          const length = ids.length - 1; // without bos
          const score = total / lengthPenalty(length, alpha);
          return [model.tokenizer.decode(ids), length, total, score];
        })
        .sort((a, b) => b[3] - a[3]);
    return why === "limit"
      ? [...scored(ended), ...scored(open)]
      : scored(ended);
  }
}

/** All tokens up to each candidate of each step. */
function paths(steps) {
  const found = [];
  for (const [number, step] of steps.entries())
    found.push(
      step.map(([parent, token]) => [
        ...(number ? found[number - 1][parent] : []),
        token,
      ]),
    );
  return found;
}

/** The candidate of each step that lies on greedy's path, or -1. */
function greedyPath(steps, tokens) {
  const wanted = tokens.map(([token]) => token);
  return paths(steps).map((step, number) => {
    const start = JSON.stringify(wanted.slice(0, number + 1));
    return number < wanted.length
      ? step.findIndex((path) => JSON.stringify(path) === start)
      : -1;
  });
}

/** The first `count` steps; of the others, empty boxes. */
function drawTree(place, all, count, spoken, greedy) {
  const { least, height, gap, top } = BOX;
  const room = Math.floor(place.clientWidth / all.length) - gap;
  const width = room < least ? BOX.width : Math.min(BOX.width, room);
  const letters = width < BOX.width ? 7 : 8;
  const x = (number) => number * (width + gap) + 2;
  const y = (rank) => top + rank * (height + 2);
  const most = Math.max(...all.map((step) => step.length));
  const lines = [];
  const boxes = [];
  all.forEach((step, number) => {
    boxes.push(
      svg("text", { x: x(number), y: 12, class: "live-head" }, `${number + 1}`),
    );
    step.forEach(([parent, token, , total, fate], rank) => {
      const box = { x: x(number), y: y(rank), width, height, rx: 4 };
      if (number >= count) {
        boxes.push(svg("rect", { ...box, class: "live-empty" }));
        return;
      }
      if (number)
        lines.push(
          svg("path", {
            d: link(
              x(number - 1) + width,
              y(parent) + height / 2,
              x(number),
              y(rank) + height / 2,
            ),
            class: `live-link live-${FATES[fate]}`,
            stroke: INKS[fate],
          }),
        );
      boxes.push(
        svg(
          "g",
          { class: `live-${FATES[fate]}` },
          svg("title", {}, `${words(spoken[number][rank])}: ${FATES[fate]}`),
          svg("rect", { ...box, stroke: INKS[fate] }),
          svg(
            "text",
            { x: x(number) + 6, y: y(rank) + 14 },
            `${MARKS[fate]} ${short(readable(token), letters)}`,
          ),
          svg(
            "text",
            {
              x: x(number) + width - 5,
              y: y(rank) + 14,
              "text-anchor": "end",
              class: "live-sum",
            },
            decimal(total),
          ),
          greedy[number] === rank
            ? svg("circle", {
                cx: x(number) + width - 1,
                cy: y(rank) + 1,
                r: 5,
                fill: INK.source,
              })
            : null,
        ),
      );
    });
  });
  place.replaceChildren(
    svg(
      "svg",
      {
        width: x(all.length),
        height: y(most) + 4,
        "aria-hidden": "true",
        class: "live-tree",
      },
      lines,
      boxes,
    ),
  );
  place.scrollLeft = x(count) - place.clientWidth;
}

const link = (x1, y1, x2, y2) =>
  `M${x1},${y1} C${x1 + 14},${y1} ${x2 - 14},${y2} ${x2},${y2}`;

const short = (token, most) => {
  const letters = [...token];
  return letters.length > most
    ? `${letters.slice(0, most - 1).join("")}…`
    : token;
};

function stepTable({ steps, alpha }, now, spoken, greedy) {
  const penalty = lengthPenalty(now, alpha);
  const rows = steps[now - 1].map(([, , gain, total, fate], rank) => [
    words(spoken[now - 1][rank].slice(0, -1)),
    readable(spoken[now - 1][rank].at(-1)),
    decimal(gain, 3),
    decimal(total, 3),
    fate === 2 ? decimal(total / penalty, 3) : "",
    `${MARKS[fate]} ${FATES[fate]}` +
      (greedy[now - 1] === rank ? ", greedy's path" : ""),
  ]);
  return table(
    `Step ${now}, the likeliest continuations`,
    ["so far", "next token", "its log-prob\u00adability", "sum", "score", "fate"],
    0,
    rows,
  );
}

function resultTable({ steps, found, beam, alpha }, now, over, spoken, greedy) {
  const rows = [];
  steps.slice(0, now).forEach((step, number) =>
    step.forEach(([, , , total, fate], rank) => {
      const score = total / lengthPenalty(number + 1, alpha);
      if (fate === 2)
        rows.push([words(spoken[number][rank].slice(0, -1)), number + 1, total, score]);
    }),
  );
  rows.sort((a, b) => b[3] - a[3]);
  const listed = over ? found : rows;
  const length = greedy.tokens.length;
  const all = [
    ...upTo(beam).map((i) => [`${i + 1}`, ...(listed[i] ?? ["…"])]),
    [
      "greedy",
      greedy.text.length > LONG
        ? `${greedy.text.slice(0, LONG)} …`
        : greedy.text,
      length,
      greedy.total,
      greedy.total / lengthPenalty(length, alpha),
    ],
  ];
  return table(
    over
      ? "What the search found, beside greedy (•)"
      : "Ended so far, beside greedy (•)",
    ["rank", "translation", "tokens", "sum", "score"],
    1,
    all.map(([rank, text, tokens, total, score]) => [
      rank,
      text,
      ...(tokens ? [tokens, decimal(total, 3), decimal(score, 3)] : ["", "", ""]),
    ]),
  );
}
