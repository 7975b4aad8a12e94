// The page "One sentence": from the model down to one number.

import {
  breathe,
  el,
  loading,
  newest,
  paint,
  readState,
  redraw,
  scroller,
  svg,
  table,
  writeState,
} from "./common.js";
import { inside } from "./inside.js";
import { fetched } from "./model.js";
import { becomes, ownSentence } from "./own_model.js";
import { SIDES } from "./transformer.js";
import { arrows } from "./words.js";
import {
  TITLES,
  find,
  level,
  open,
  plain,
  siblings,
  title,
  upTo,
} from "./zoom_paths.js";
import { PICTURES } from "./zoom_pictures.js";
import { tour } from "./zoom_tour.js";

const GROW = 250; // milliseconds

/** The shipped model: what is seen first is in the page. */
export function start(place) {
  const about = JSON.parse(place.querySelector("script").textContent);
  let seen = null;
  const look = async () => {
    const model = await fetched(about.model);
    return (seen ??= await inside(model, about.text, breathe));
  };
  const change = show(place, open(about, look));
  /** Another sentence, and another model: from its three files. */
  const another = async (model, text) => {
    const found = await inside(model, text, breathe);
    const { lines } = about;
    await change(open({ ...found.about, lines }, () => found));
    return becomes(text, found.about.said);
  };
  const usual = (note) =>
    fetched(about.model, (share) => {
      note.textContent = loading(share, about.model);
    });
  place.append(ownSentence("Open", another, usual));
}

/** Show a model that was opened; returns what changes it for another. */
export function show(place, model) {
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const last = newest();
  let path = [];
  let painters = [];
  let steps = tour(model);
  let at = null; // the step of the tour

  const button = (text, press) =>
    el("button", { type: "button", onclick: press }, text);
  const crumbs = el("ol", { class: "zoom-crumbs" });
  const beside = [button("‹", () => step(-1)), button("›", () => step(1))];
  const words = el("p", { class: "zoom-words", role: "status" });
  const map = el("div", { class: "zoom-outline" });
  const lens = svg("svg", { class: "zoom-lens", "aria-hidden": "true" });
  const stage = el("div", { class: "zoom-stage" });
  const code = el("div", { class: "zoom-code" });
  const numbers = scroller("these numbers as a table");
  const begin = button("", () => {
    const fits = place.offsetHeight < innerHeight - 80;
    place.scrollIntoView({ block: fits ? "center" : "start" });
    tell(0).then(() => onward.focus({ preventScroll: true }));
  });
  const back = button("", () => tell(isAway() ? at : at - 1));
  const count = el("strong");
  const onward = button("Next", () => tell(at + 1));
  const end = button("End the tour", () => {
    at = null;
    visit([]).then(() => begin.focus({ preventScroll: true }));
  });
  const guide = el(
    "div",
    { class: "live-buttons zoom-tour" },
    begin,
    back,
    count,
    onward,
    end,
  );
  place.replaceChildren(
    guide,
    words,
    el(
      "div",
      { class: "zoom-head" },
      el("nav", { "aria-label": "from the model inwards" }, crumbs),
      el("div", { class: "zoom-beside" }, beside),
    ),
    el("div", { class: "zoom-body" }, lens, map, stage),
    el(
      "details",
      { class: "live-numbers" },
      el("summary", {}, "In code and in numbers"),
      code,
      numbers,
    ),
  );

  // Moving

  /** Open a path: `focus` is what is then focused inside it; `told` is the
   * step of the tour that it belongs to. */
  function go(to, { focus = () => {}, from = null, told = at } = {}) {
    const waiting = setTimeout(() => {
      words.textContent = "The numbers are on their way …";
    }, 150);
    return last(
      () => model.fetch(to).finally(() => clearTimeout(waiting)),
      () => {
        path = to;
        at = told;
        draw();
        grow(from);
        focus();
      },
    ).catch((error) => {
      words.textContent = error.message;
    });
  }
  async function visit(to, settings) {
    await go(to, settings);
    const others = Object.entries(readState()).filter(
      ([key, value]) => key !== "zoom" && value,
    );
    const zoom = path.join(".") || "model";
    writeState({ ...Object.fromEntries(others), zoom });
  }
  const first = () => {
    const box = stage.querySelector("[data-part]");
    (box ?? stage.querySelector("[tabindex]"))?.focus({ preventScroll: true });
  };
  function enter(event) {
    const box = event.currentTarget;
    const from = box.getBoundingClientRect();
    const inwards = stage.contains(box) ? path : [];
    visit([...inwards, ...box.dataset.part.split(".")], { focus: first, from });
  }
  /** Go out to a level, to the box that was open there. */
  function leave(depth) {
    const box = path.slice(depth, depth ? depth + 1 : 3).join(".");
    const focus = () => {
      const there = place.querySelector(`[data-part="${box}"]`);
      there ? there.focus({ preventScroll: true }) : first();
    };
    visit(path.slice(0, depth), { focus });
  }
  const neighbour = (by) => {
    const list = siblings(model, path);
    return list[list.indexOf(path.at(-1)) + by];
  };
  function step(by) {
    const next = neighbour(by);
    if (next !== undefined) visit([...path.slice(0, -1), next]);
  }
  /** The picture grows out of a box. */
  function grow(from) {
    if (calm.matches || !from) return;
    const { left, top, width, height } = stage.getBoundingClientRect();
    const [x, y] = [from.left - left, from.top - top];
    const scale = `${from.width / width}, ${from.height / height}`;
    const transform = `translate(${x}px, ${y}px) scale(${scale})`;
    stage.firstElementChild.animate([{ transform, opacity: 0.2 }, {}], {
      duration: GROW,
      easing: "ease-out",
    });
  }
  place.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !path.length) return;
    event.preventDefault();
    leave(path.length > 3 ? path.length - 1 : 0);
  });

  // The tour

  async function tell(index) {
    if (steps[index]) await visit(steps[index].path(), { told: index });
  }
  const isAway = () => String(steps[at].path()) !== String(path);
  function drawGuide() {
    guide.hidden = steps === null;
    const on = at !== null;
    begin.hidden = on;
    back.hidden = count.hidden = onward.hidden = end.hidden = !on;
    if (steps === null) return;
    begin.textContent = `Follow the plural of “trees”, in ${steps.length} steps`;
    if (!on) return;
    const away = isAway();
    back.textContent = away ? `Back to step ${at + 1}` : "Back";
    back.setAttribute("aria-disabled", String(!away && !at));
    onward.setAttribute("aria-disabled", String(!steps[at + 1]));
    count.textContent = `${at + 1} of ${steps.length}`;
    if (away) return;
    words.textContent = steps[at].words();
    stage
      .querySelector(`[data-part="${steps[at].mark}"]`)
      ?.classList.add("zoom-here");
  }

  // Drawing

  /** Figure 1 of the paper: it stays while one looks into its boxes. */
  function drawMap() {
    const stack = (name, tokens) =>
      el(
        "div",
        { class: `zoom-${name}` },
        el("b", {}, name),
        upTo(model.sizes.N)
          .reverse()
          .map((i) =>
            el(
              "div",
              { class: "zoom-layer" },
              [...SIDES[name]].reverse().map((sub) => {
                const part = `${name}.${i + 1}.${sub}`;
                const said = `${name}, layer ${i + 1}, ${TITLES[sub]}`;
                return box(part, { "aria-label": said }, TITLES[sub]);
              }),
            ),
          ),
        el("small", {}, tokens.map(plain).join(" ")),
      );
    map.replaceChildren(
      stack("encoder", model.source),
      stack("decoder", model.target),
    );
    arrows(map);
  }
  function draw() {
    painters = [];
    place.dataset.level = path.join(".") || "model";
    const shown = PICTURES[level(path)]({ model, path, box, colours });
    crumbs.replaceChildren(
      ...[0, ...upTo(path.length + 1).slice(3)].map((depth) => {
        const name = title(model, path.slice(0, depth));
        const here = depth === path.length;
        return el(
          "li",
          {},
          here
            ? el("span", { "aria-current": "true" }, name)
            : button(name, () => leave(depth)),
        );
      }),
    );
    beside.forEach((one, i) => {
      const next = neighbour(i ? 1 : -1);
      const whole = [...path.slice(0, -1), next];
      one.hidden = path.length < 4;
      one.setAttribute("aria-disabled", String(next === undefined));
      const name = next === undefined ? "none" : title(model, whole);
      one.setAttribute("aria-label", `${i ? "next" : "previous"}: ${name}`);
    });
    words.replaceChildren(...[shown.words].flat());
    stage.replaceChildren(el("div", { class: "zoom-picture" }, shown.picture));
    if (stage.querySelector("button")) arrows(stage);
    stage.scrollTo(0, 0);
    drawGuide();
    paintAll();
    code.replaceChildren(...lines(model.lines[level(path)]));
    const { caption, head, rows } = shown.numbers;
    numbers.replaceChildren(table(caption, head, -1, rows));
  }
  function paintAll() {
    for (const one of painters) one();
    drawLens();
  }
  /** From the box of the model that is open to what it holds. */
  function drawLens() {
    lens.replaceChildren();
    const part = path.slice(0, 3).join(".");
    for (const one of map.querySelectorAll("button"))
      one.toggleAttribute("aria-current", one.dataset.part === part);
    const here = map.querySelector("[aria-current]");
    if (!here) return;
    const whole = lens.getBoundingClientRect();
    const [a, b] = [here, stage].map((one) => one.getBoundingClientRect());
    const points =
      a.right < b.left
        ? [a.right, a.top, b.left, b.top, b.left, b.bottom, a.right, a.bottom]
        : [a.left, a.bottom, b.left, b.top, b.right, b.top, a.right, a.bottom];
    const inside = points.map((one, i) => one - (i % 2 ? whole.top : whole.left));
    lens.append(svg("polygon", { points: inside.join(" ") }));
  }
  /** A box that opens. */
  function box(part, attributes, ...children) {
    return el(
      "button",
      { type: "button", "data-part": part, onclick: enter, ...attributes },
      ...children,
    );
  }
  /** Vectors, a row each of so many pixels. */
  function colours(vectors, high, colour) {
    const canvas = el("canvas", { "aria-hidden": "true" });
    const [rows, columns] = [vectors.length, vectors[0].length];
    painters.push(() =>
      paint(canvas, rows, columns, rows * high, (row, column) =>
        colour(vectors[row][column]),
      ),
    );
    return canvas;
  }

  // Beginning

  const asked = readState().zoom;
  drawMap();
  draw();
  if (asked !== undefined) {
    place.scrollIntoView({ block: "center" });
    go(find(model, asked));
  }
  redraw(place, paintAll);
  addEventListener("hashchange", () => {
    const wanted = readState().zoom;
    if (wanted === undefined) return;
    const to = find(model, wanted);
    if (to.join(".") !== path.join(".")) go(to);
  });
  return (another) => {
    model = another;
    steps = tour(model);
    at = null;
    drawMap();
    return go(find(model, path.join(".")));
  };
}

// The library's lines

const SYMBOLS = {
  query: "query",
  w_q: "query",
  key: "key",
  w_k: "key",
  value: "value",
  w_v: "value",
  memory: "encoder",
};

/** Lines of code, each function's own with a link to its chapter. */
function lines(listed) {
  const groups = new Map();
  for (const one of listed)
    groups.set(one.of, [...(groups.get(one.of) ?? []), one]);
  return [...groups].map(([of, group]) => {
    const text = group.map(({ line }) => line).join("\n");
    const href = new URL(group[0].chapter, new URL("../..", import.meta.url));
    return el(
      "div",
      {},
      el("pre", {}, el("code", {}, inked(text))),
      el("a", { href }, of),
    );
  });
}

/** Symbols in the colour of what they hold. */
const inked = (text) =>
  text
    .split(/\b/)
    .map((part) =>
      SYMBOLS[part]
        ? el("mark", { class: `zoom-${SYMBOLS[part]}` }, part)
        : part,
    );
