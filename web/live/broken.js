// "Which line is broken?": ten levels, each a model with one mistake.

import { INK, decimal, el, newId, scroller, table, wash } from "./common.js";

const KEY = "broken";
const WORTH = 10; // points of a level
const MISS = 3; // that a wrong line costs
const LOOK = 1; // and each thing to look at
const LOOKS = [
  ["told", "four more translations", translations],
  ["unseen", "the loss of unseen sentences", unseen],
  ["maps", "attention maps", maps],
  ["probes", "what moves with a word or with padding", probes],
  ["sizes", "rates and sizes", sizes],
];
const NEW = () => ({ bought: [], tried: [], end: "" });

export async function start(place) {
  const script = place.querySelector("script");
  const [healthy, again, ...levels] = JSON.parse(script.textContent);
  const paper = [...place.children];
  const curves = [...place.querySelectorAll("svg.picture")];
  const games = remembered(levels.length);
  let at = Math.max(0, games.findIndex(({ end }) => !end));
  const numbers = levels.map((_, i) =>
    el("button", { type: "button", onclick: () => show(i) }, `${i + 1}`),
  );
  const total = el("p", { class: "broken-total" });
  const picture = el("div", { class: "broken-curve" });
  const told = el("p", {});
  const shop = el("div", { class: "live-rows broken-shop" });
  const looks = el("div", {});
  const code = el("fieldset", { class: "broken-code" });
  const said = el("div", { class: "live-result", role: "status" });
  const point = button(`This line is wrong (a miss: −${MISS})`, answer, "live-main");
  const give = button("Show me (no points)", () => finish("shown"));
  const onward = () => {
    show(at + 1);
    numbers[at].focus(); // this button is gone
  };
  const next = button("Next level", onward, "live-main");
  const game = el(
    "div",
    { class: "broken-game" },
    el(
      "div",
      { class: "live-rows" },
      el("div", { class: "broken-levels", role: "group", "aria-label": "Levels" }, numbers),
      total,
      button("Start again", () => {
        games.forEach((_, i) => (games[i] = NEW()));
        show(0);
      }),
    ),
    el("div", { class: "broken-seen" }, picture, told),
    shop,
    looks,
    code,
    el("div", { class: "live-rows" }, point, give, next),
    said,
  );
  place.append(game);
  place.classList.add("broken-on");
  for (const part of paper) part.classList.add("broken-paper");
  show(at);

  function show(number) {
    at = number;
    const level = levels[at];
    const svg = curves[at].cloneNode(true);
    picture.replaceChildren(svg);
    told.replaceChildren(
      `Level ${at + 1}. The pink loss, in means of ten steps, goes from ` +
        `${level.curve[0]} to ${level.curve.at(-1)}; the broad gray one is a ` +
        "healthy model’s. “I like trees” becomes ",
      spanish(level.trees),
      ".",
    );
    shop.replaceChildren(
      "Look at",
      ...LOOKS.map(([key, name]) =>
        button(`${name} (−${LOOK})`, () => buy(key), "", `look-${key}`),
      ),
    );
    looks.replaceChildren();
    const name = newId("line");
    code.replaceChildren(
      el(
        "legend",
        {},
        "Which line is wrong? If one is missing, point beside the gap.",
      ),
      ...level.code.map((text, i) =>
        text.trim()
          ? el(
              "label",
              {},
              el("input", { type: "radio", name, value: i }),
              el("code", {}, text),
            )
          : el("span", { class: "broken-gap" }),
      ),
    );
    said.replaceChildren();
    update();
  }

  function buy(key) {
    games[at].bought.push(key);
    said.replaceChildren(); // what the level was worth
    update();
    looks.querySelector(`[data-look=${key}]`).focus();
  }

  function answer() {
    const line = Number(code.querySelector("input:checked")?.value ?? -1);
    if (line < 0) said.textContent = "Choose a line first.";
    else if ([...levels[at].wrong, ...levels[at].also].includes(line))
      finish("found", line);
    else {
      games[at].tried.push(line);
      const left = points({ ...games[at], end: "found" });
      said.textContent =
        `That line does what it does in the book. ${levels[at].told_of[line] ?? ""} ` +
        `The level is still worth ${left} ${left === 1 ? "point" : "points"}.`;
      update();
    }
  }

  function finish(end, line) {
    games[at].end = end;
    games[at].line = line;
    update();
    (next.hidden ? numbers[at] : next).focus();
  }

  /** What depends on what the reader has done. */
  function update() {
    const [level, { bought, tried, end }] = [levels[at], games[at]];
    picture.querySelector(".broken-unseen").style.display =
      bought.includes("unseen") ? "" : "none";
    for (const [key, name, draw] of LOOKS) {
      const open = bought.includes(key) || Boolean(end);
      shop.querySelector(`.look-${key}`).hidden = open;
      if (open && !looks.querySelector(`[data-look=${key}]`)) {
        const box = scroller(name);
        box.dataset.look = key;
        box.append(...draw(level, healthy, again));
        looks.append(box);
      }
    }
    shop.hidden = Boolean(end) || bought.length === LOOKS.length;
    for (const input of code.querySelectorAll("input")) {
      const line = Number(input.value);
      const wrong = Boolean(end) && level.wrong.includes(line);
      input.disabled = Boolean(end) || tried.includes(line);
      if (input.disabled) input.checked = false;
      input.parentNode.className = wrong
        ? "broken-wrong"
        : tried.includes(line)
          ? "broken-tried"
          : "";
    }
    point.hidden = give.hidden = Boolean(end);
    next.hidden = !end || at + 1 === levels.length;
    if (end) said.replaceChildren(...verdict(level, games[at]));
    numbers.forEach((one, i) => {
      const { end } = games[i];
      const got = points(games[i]);
      one.textContent = end ? `${i + 1}\u202f✓` : `${i + 1}`;
      one.disabled = games.slice(0, i).some(({ end }) => !end);
      one.toggleAttribute("aria-current", i === at);
      one.setAttribute(
        "aria-label",
        `Level ${i + 1}${end ? `, ${got} points` : ""}`,
      );
    });
    const sum = games.map(points).reduce((a, b) => a + b);
    total.textContent = `${sum} of ${WORTH * levels.length} points`;
    try {
      localStorage.setItem(KEY, JSON.stringify(games));
    } catch {
      // then it lasts as long as the page
    }
  }
}

/** What the browser remembers of the levels; new games where it can't. */
function remembered(count) {
  try {
    const games = JSON.parse(localStorage.getItem(KEY));
    const fine = ({ bought, tried, end }) => bought.map && tried.map && end.at;
    if (games.length === count && games.every(fine)) return games;
  } catch {
    // blocked, empty, or somebody else's
  }
  return Array.from({ length: count }, NEW);
}

function points({ bought, tried, end }) {
  const left = WORTH - LOOK * bought.length - MISS * tried.length;
  return end === "found" ? Math.max(1, left) : 0;
}

function button(words, onclick, ...classes) {
  return el("button", { type: "button", onclick, class: classes.join(" ") }, words);
}

const spanish = (text) => el("i", { lang: "es" }, text);

function verdict(level, game) {
  const got = points(game);
  const why = level.why
    .split("`")
    .map((part, i) => (i % 2 ? el("code", {}, part) : part));
  const book = level.mended.length
    ? ["The book has:", el("pre", {}, level.mended.join("\n"))]
    : [];
  return [
    el(
      "p",
      {},
      got ? `Yes: ${got} ${got === 1 ? "point" : "points"}. ` : "No points. ",
      level.wrong.includes(game.line ?? level.wrong[0])
        ? ""
        : "Your line will do; the book’s own place is marked. ",
      ...why,
      " ",
      el("a", { href: level.chapter }, "The chapter"),
    ),
    ...book,
  ];
}

// What can be looked at, beside a healthy model and sometimes a second one
const AGAIN = "healthy, another seed";

function translations({ told }) {
  const rows = told.slice(1).map(([english, right, said]) => [
    english,
    el("span", { lang: "es" }, right),
    spanish(said),
  ]);
  return [table("Unseen sentences", ["English", "right", "the model"], 0, rows)];
}

function unseen(level, healthy, again) {
  const row = (name, { held_out, right, of }) => [
    name,
    ...[0, 1, 3, 5, 8, 11].map((i) => decimal(held_out[i])),
    `${right} of ${of}`,
  ];
  const steps = [50, 100, 200, 300, 450, 600].map((step) => `step ${step}`);
  return [
    table(
      "The loss of 200 unseen pairs: the rings in the picture",
      ["model", ...steps, "translated right"],
      0,
      [row("this model", level), row("healthy", healthy), row(AGAIN, again)],
    ),
  ];
}

function maps(level, healthy) {
  const map = (name, rows, heads, weights) =>
    table(
      name,
      ["to write", ...heads],
      0,
      weights.map((row, i) => [
        rows[i],
        ...row.map((weight) =>
          el(
            "span",
            { style: `background: ${wash(INK.attention, weight)}` },
            `${Math.round(100 * weight)}`,
          ),
        ),
      ]),
    );
  const words = level.said;
  const read = ["start", ...words.slice(0, -1)];
  const both = [
    ["this model", level],
    ["healthy", healthy],
  ];
  return [
    ...both.map(([name, { self }]) =>
      map(`The decoder on its own words, first layer, %: ${name}`, words, read, self),
    ),
    ...both.map(([name, { cross }]) =>
      cross
        ? map(`The decoder on the English words: ${name}`, words, level.read, cross)
        : el("p", {}, `There is no attention to the English words: ${name}.`),
    ),
  ];
}

function probes(level, healthy, again) {
  const ways = [
    ["“trees” becomes “books”", "source"],
    ["the decoder’s last input, “árboles”, becomes “camiones”", "target"],
    ["padding behind the English", "padding"],
  ];
  const all = [
    ["this model", level],
    ["healthy", healthy],
    [AGAIN, again],
  ];
  const rows = all.map(([name, row]) =>
    table(
      `How far the logits move at most, by the word to be written: ${name}`,
      ["what is changed", ...level.said],
      0,
      ways.map(([words, key]) => [words, ...row[key].map((x) => decimal(x, 1))]),
    ),
  );
  const losses = all.map(([name, row]) => [name, ...row.losses]);
  return [
    ...rows,
    el("p", {}, "Only “end” is written after “árboles” has been read."),
    table("The loss of this pair", ["model", "alone", "padding behind both"], 0, losses),
  ];
}

function sizes(level, healthy) {
  const row = (name, values, digits) => [
    name,
    ...values.map((x) => (x === null ? "nan" : decimal(x, digits))),
  ];
  const rates = ({ sizes }) => sizes[0].map((rate) => 1e4 * rate);
  const steps = [1, 2, 3, 200, 600].map((step) => `step ${step}`);
  return [
    table("Rates and gradients", ["size", ...steps], 0, [
      row("learning rate times 10⁴", rates(level), 2),
      row("healthy", rates(healthy), 2),
      row("length of the gradient", level.sizes[1], 1),
      row("healthy", healthy.sizes[1], 1),
    ]),
    table("Lengths of vectors", ["model", "of words", "of positions"], 0, [
      ["this model", level.words, level.places],
      ["healthy", healthy.words, healthy.places],
    ]),
  ];
}
