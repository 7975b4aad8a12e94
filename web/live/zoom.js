// The page "One sentence": from the model down to one number.

import {
  el,
  loading,
  newId,
  newest,
  paint,
  readState,
  redraw,
  scroller,
  table,
  writeState,
} from "./common.js";
import { inside } from "./inside.js";
import { fetched } from "./model.js";
import { becomes, chooser } from "./own_model.js";
import { farthest, scaled, signed } from "./zoom_parts.js";
import {
  find,
  level,
  open,
  plain,
  siblings,
  title,
  upTo,
} from "./zoom_paths.js";
import { PICTURES } from "./zoom_pictures.js";
import { anywhere, tour } from "./zoom_tour.js";

const GROW = 250; // milliseconds
const SCALES = [1.5, 1.35, 1.2]; // of a picture in its frame

const breathe = () => new Promise((done) => setTimeout(done));

/** The shipped model: what is seen first is in the page. */
export function start(place) {
  const about = JSON.parse(place.querySelector("script").textContent);
  let seen = null;
  const look = async () => {
    const model = await fetched(about.model);
    return (seen ??= await inside(model, about.text, breathe));
  };
  const change = show(place, open(about, look));
  place.append(another(about, change));
}

/** Another sentence, and another model: from its three files. */
function another(about, change) {
  const id = newId("zoom");
  const input = el("input", {
    id,
    type: "text",
    autocomplete: "off",
    spellcheck: "false",
    maxlength: 200,
    value: about.text,
  });
  const note = el("p", { class: "live-note zoom-note", role: "status" });
  const go = el(
    "button",
    { type: "submit", class: "live-main" },
    "Open",
  );
  let model = null;
  const own = chooser(note, (read) => {
    model = read;
    input.value = "";
    input.focus();
  });
  const form = el(
    "form",
    {
      class: "live-form zoom-own",
      onsubmit: (event) => {
        event.preventDefault();
        look();
      },
    },
    el("label", { for: id }, "Another sentence"),
    el("div", { class: "zoom-ask" }, input, go),
    own,
    note,
  );
  async function look() {
    try {
      const text = input.value;
      model ??= await fetched(about.model, (share) => {
        note.textContent = loading(share, about.model);
      });
      note.textContent = "Translating …";
      const found = await inside(model, text, breathe);
      const { lines } = about;
      await change(open({ ...found.about, lines }, () => found));
      note.textContent = becomes(text, found.about.said);
    } catch (error) {
      note.textContent = error.message;
    }
  }
  return form;
}

/** Show a model that was opened; returns what changes it for another. */
export function show(place, model) {
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const last = newest();
  let path = [];
  let painters = [];
  let steps = tour(model);
  let at = null; // the step of the tour that is shown

  const crumbs = el("ol", { class: "zoom-crumbs" });
  const beside = ["previous", "next"].map((name, i) =>
    el(
      "button",
      { type: "button", onclick: (event) => step(i ? 1 : -1, event) },
      i ? "›" : "‹",
    ),
  );
  const words = el("p", { class: "zoom-words" });
  const guide = el("div", { class: "zoom-tour" });
  const map = el("div", { class: "zoom-outside", "aria-hidden": "true" });
  const stage = el("div", { class: "zoom-stage" });
  const code = el("div", { class: "zoom-code" });
  const sizes = el("p", { class: "zoom-sizes" });
  const said = el("p", { class: "live-result", role: "status" });
  const numbers = scroller("these numbers as a table");
  place.replaceChildren(
    el(
      "div",
      { class: "zoom-head" },
      el("nav", { "aria-label": "from the model inwards" }, crumbs),
      el("div", { class: "zoom-beside" }, beside),
    ),
    guide,
    el("div", { class: "zoom-where" }, words, map),
    stage,
    said,
    code,
    sizes,
    el(
      "details",
      { class: "live-numbers" },
      el("summary", {}, "In numbers"),
      numbers,
    ),
  );

  // Moving

  /** Open a path: `focus` names what is then focused inside it. */
  function go(to, { focus = null, from = null } = {}) {
    const waiting = setTimeout(() => {
      said.textContent = "The numbers are on their way …";
    }, 150);
    return last(
      async () => {
        try {
          await model.fetch(to);
        } finally {
          clearTimeout(waiting);
        }
      },
      () => {
        const out = to.length < path.length ? path[to.length] : null;
        path = to;
        draw();
        const left = out === null ? null : item(out);
        move(from, left);
        const wanted = focus === "inside" ? inside(left) : focus;
        wanted?.focus({ preventScroll: true });
      },
    ).catch((error) => {
      said.textContent = error.message;
    });
  }
  const item = (name) => stage.querySelector(`[data-part="${name}"]`);
  const items = () => [...stage.querySelectorAll("[data-part]")];
  function inside(left) {
    const first = left ?? items()[0];
    if (!first) return stage.querySelector("[tabindex]");
    roam(first);
    return first;
  }
  function visit(to, settings) {
    return go(to, settings).then(keep);
  }
  function enter(node) {
    const from = node.getBoundingClientRect();
    visit([...path, node.dataset.part], { focus: "inside", from });
  }
  function leave(depth = path.length - 1) {
    visit(path.slice(0, depth), { focus: "inside" });
  }
  function step(by, event) {
    const list = siblings(model, path);
    const next = list[list.indexOf(path.at(-1)) + by];
    if (next === undefined) return;
    const button = event?.currentTarget;
    const focus = button?.tagName === "BUTTON" ? button : "inside";
    visit([...path.slice(0, -1), next], { focus });
  }
  function keep() {
    const others = Object.entries(readState()).filter(
      ([key, value]) => key !== "zoom" && value,
    );
    const zoom = path.join(".") || "model";
    writeState({ ...Object.fromEntries(others), zoom });
  }
  /** The picture grows out of a box, or shrinks back into one. */
  function move(from, left) {
    const box = from ?? left?.getBoundingClientRect();
    if (calm.matches || !box) return;
    const whole = stage.getBoundingClientRect();
    const picture = stage.firstElementChild;
    const scale = [box.width / whole.width, box.height / whole.height];
    const [x, y] = [box.left - whole.left, box.top - whole.top];
    const small = `translate(${x}px, ${y}px) scale(${scale})`;
    const back = scale.map((one) => 1 / one);
    const large = `scale(${back}) translate(${-x}px, ${-y}px)`;
    picture.animate(
      [{ transform: from ? small : large, opacity: 0.2 }, {}],
      { duration: GROW, easing: "ease-out" },
    );
  }

  // The tour

  function tell(index) {
    at = index;
    return visit(steps[index].path()).then(() =>
      guide.querySelector("[data-way]")?.focus({ preventScroll: true }),
    );
  }
  function drawGuide() {
    guide.hidden = steps === null;
    if (steps === null) return;
    if (at !== null && steps[at].path().join() !== path.join()) at = null;
    const button = (text, press, onward = false) =>
      el(
        "button",
        { type: "button", "data-way": onward, onclick: press },
        text,
      );
    if (at === null) {
      const say = `Follow the plural of “trees”, in ${steps.length} steps`;
      guide.replaceChildren(button(say, () => tell(0), true));
      return;
    }
    const final = at === steps.length - 1;
    guide.replaceChildren(
      el("strong", {}, `${at + 1} of ${steps.length}`),
      button("Back", () => tell(Math.max(0, at - 1))),
      final
        ? button("Open any other number", () => visit(anywhere(model)), true)
        : button("Next", () => tell(at + 1), true),
      button("End the tour", () => visit([])),
    );
    words.replaceChildren(steps[at].words());
    item(steps[at].mark)?.classList.add("zoom-here");
  }

  // Keys and pointer

  /** One box of a level can be reached by Tab, the others by arrows. */
  function roam(to) {
    for (const one of items()) one.tabIndex = one === to ? 0 : -1;
  }
  const WAYS = {
    ArrowLeft: [-1, 0],
    ArrowRight: [1, 0],
    ArrowUp: [0, -1],
    ArrowDown: [0, 1],
  };
  place.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Escape" && path.length) {
      event.preventDefault();
      leave();
    }
    const way = WAYS[event.key];
    if (!way || !stage.contains(event.target)) return;
    // A box that still grows is not yet where its neighbours are looked for.
    for (const growing of stage.getAnimations({ subtree: true }))
      growing.finish();
    const here = event.target.closest("[data-part]");
    if (here) {
      event.preventDefault();
      const next = nearest(here, items(), way);
      if (!next) return;
      roam(next);
      next.focus();
    } else if (way[0] && !items().length) {
      event.preventDefault();
      step(way[0]);
    }
  });
  function light(event) {
    for (const lit of stage.querySelectorAll(".zoom-lit"))
      lit.classList.remove("zoom-lit");
    const fed = event.target.closest?.("[data-feeds]");
    if (!fed || event.type === "pointerleave") return;
    // A finger does not rest on a box, and what it opens is not framed.
    if (event.pointerType === "touch") return;
    if (event.type === "focusin" && !fed.matches(":focus-visible")) return;
    for (const key of fed.dataset.feeds.split(" "))
      for (const one of stage.querySelectorAll(`[data-key="${key}"]`))
        one.classList.add("zoom-lit");
  }
  for (const name of ["pointerover", "pointerleave", "focusin"])
    stage.addEventListener(name, light);

  // Drawing

  function draw() {
    painters = [];
    place.dataset.level = path.join(".") || "model";
    const parts = { model, path, box, strip, colours };
    const shown = PICTURES[level(path).split(" ").at(-1)](parts);
    crumbs.replaceChildren(
      ...upTo(path.length + 1).map((depth) => {
        const name = title(model, path.slice(0, depth));
        return el(
          "li",
          {},
          depth === path.length
            ? el("span", { "aria-current": "true" }, name)
            : el(
                "button",
                { type: "button", onclick: () => leave(depth) },
                name,
              ),
        );
      }),
    );
    const list = siblings(model, path);
    beside[0].parentNode.hidden = !list.length;
    beside.forEach((button, i) => {
      const next = list[list.indexOf(path.at(-1)) + (i ? 1 : -1)];
      const whole = [...path.slice(0, -1), next];
      button.setAttribute("aria-disabled", String(next === undefined));
      const name = next === undefined ? "none" : title(model, whole);
      button.setAttribute("aria-label", `${i ? "next" : "previous"}: ${name}`);
    });
    words.replaceChildren(...[shown.words].flat());
    stage.replaceChildren(
      el("div", { class: "zoom-picture" }, shown.picture),
    );
    fillStage();
    drawGuide();
    stage.scrollTo(0, 0);
    drawMap();
    for (const paintOne of painters) paintOne();
    roam(items()[0]);
    said.textContent = shown.said;
    code.replaceChildren(...lines(model.lines[level(path)]));
    sizes.textContent = shown.sizes;
    const { caption, head, rows } = shown.numbers;
    numbers.replaceChildren(table(caption, head, -1, rows));
  }
  /** Enlarge a picture that leaves much of its frame empty. */
  function fillStage() {
    const picture = stage.firstElementChild;
    for (const scale of SCALES) {
      picture.style.zoom = scale;
      if (stage.scrollHeight <= stage.clientHeight) return;
    }
    picture.style.zoom = "";
  }
  /** The level outside, small, with the box that was opened marked. */
  function drawMap() {
    map.replaceChildren();
    map.hidden = !path.length;
    if (!path.length) return;
    const outside = path.slice(0, -1);
    const parts = { model, path: outside, box, strip, colours };
    const picture = el(
      "div",
      { class: "zoom-picture", inert: true },
      PICTURES[level(outside).split(" ").at(-1)](parts).picture,
    );
    picture
      .querySelector(`[data-part="${path.at(-1)}"]`)
      ?.classList.add("zoom-here");
    for (const node of picture.querySelectorAll("[data-part], [data-key]")) {
      node.removeAttribute("data-part"); // it is no place to go to
      node.removeAttribute("data-key");
    }
    map.append(picture);
    const wide = stage.clientWidth;
    picture.style.width = `${wide}px`;
    const scale = Math.min(
      map.clientWidth / wide,
      map.clientHeight / picture.offsetHeight,
    );
    picture.style.transform = `scale(${scale})`;
  }
  /** A box that opens. */
  function box(part, attributes, ...children) {
    const press = (event) => enter(event.currentTarget);
    return el(
      "button",
      { type: "button", "data-part": part, onclick: press, ...attributes },
      ...children,
    );
  }
  /** Vectors as rows of colours; `thin` without words. */
  function strip(name, caption, tokens, key, thin = false) {
    const vectors = tokens.map((_, i) => model.get(name, i));
    const most = farthest(model.get(name));
    return el(
      "figure",
      {
        class: thin ? "zoom-strip zoom-thin" : "zoom-strip",
        "data-key": key,
      },
      el("figcaption", {}, scaled(caption, most)),
      thin
        ? null
        : el(
            "ul",
            { "aria-hidden": "true" },
            tokens.map((token) => el("li", {}, plain(token))),
          ),
      colours(vectors, most, thin ? 4 : 14),
    );
  }
  /** Vectors, a row each of so many pixels. */
  function colours(vectors, most, high) {
    const canvas = el("canvas", { "aria-hidden": "true" });
    const [rows, columns] = [vectors.length, vectors[0].length];
    painters.push(() =>
      paint(canvas, rows, columns, rows * high, (row, column) =>
        signed(vectors[row][column], most),
      ),
    );
    return canvas;
  }

  // Beginning

  const asked = readState().zoom;
  draw();
  if (asked !== undefined) {
    place.scrollIntoView({ block: "center" });
    go(find(model, asked));
  }
  redraw(() => painters.forEach((paintOne) => paintOne()));
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
    return go(find(model, path.join(".")));
  };
}

/** The box that lies in a direction; else the one before or after. */
function nearest(here, all, [right, down]) {
  const middle = (node) => {
    const { left, top, width, height } = node.getBoundingClientRect();
    return [left + width / 2, top + height / 2];
  };
  const [x, y] = middle(here);
  const far = (node) => {
    const [dx, dy] = middle(node).map((one, i) => one - [x, y][i]);
    const ahead = right * dx + down * dy;
    const aside = Math.abs(right * dy) + Math.abs(down * dx);
    return ahead > 2 ? ahead + 3 * aside : Infinity;
  };
  const found = all
    .map((node) => ({ node, way: far(node) }))
    .filter(({ way }) => way < Infinity)
    .sort((a, b) => a.way - b.way)[0];
  return found?.node ?? all[all.indexOf(here) + (right || down)];
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
    const href = new URL(`../../${group[0].chapter}`, import.meta.url);
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
