// What the live pages share: elements, controls, colours, loading.

/** The ink of each idea, as in the book's pictures: transformer_book's
 * COLOURS. A weight of attention is always in the ink of attention. */
export const INK = {
  query: "#3b7dd8",
  key: "#d2691e",
  value: "#2a9461",
  attention: "#1a8fa8",
  source: "#64748b",
  target: "#9b62d6",
  position: "#a67c10",
  bad: "#d6336c",
  negative: "#b43c00", // numbers of both signs
  positive: "#4b3cff",
};

/** el("p", {class: "note", onclick: f}, "text", child, ...) */
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same for SVG. */
export function svg(name, attributes = {}, ...children) {
  const space = "http://www.w3.org/2000/svg";
  return fill(document.createElementNS(space, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null));
  return node;
}

/** The name of a model of the reader's, among those that ship. */
export const OWN = "your own";

let named = 0;
export const newId = (start) => `live-${start}-${++named}`;

/** A labelled range input with its value beside it. */
export function slider(label, { min, max, step = 1, value }, change) {
  const id = newId("range");
  const input = el("input", { type: "range", id, min, max, step });
  const output = el("output", { for: id, "aria-live": "off" });
  const show = () => (output.textContent = input.value);
  input.value = value;
  show();
  input.addEventListener("input", () => {
    show();
    change();
  });
  const control = {
    input,
    node: el(
      "div",
      { class: "live-control" },
      el("label", { for: id }, label),
      input,
      output,
    ),
    get value() {
      return Number(input.value);
    },
    set value(number) {
      input.value = number;
      show();
    },
    /** New limits; the value stays inside them. */
    limit(low, high) {
      input.min = low;
      input.max = high;
      input.disabled = low === high;
      show();
    },
  };
  return control;
}

/** A labelled select; options are [value, text]. */
export function choice(label, options, value, change) {
  const id = newId("select");
  const input = el("select", { id, class: "live-select" });
  const control = {
    node: el(
      "div",
      { class: "live-control live-choice" },
      el("label", { for: id }, label),
      input,
    ),
    get value() {
      return input.value;
    },
    set value(text) {
      input.value = text;
    },
    options(list, chosen) {
      input.replaceChildren(
        ...list.map(([key, text]) => el("option", { value: key }, text)),
      );
      const known = list.some(([key]) => String(key) === String(chosen));
      if (list.length) input.value = known ? chosen : list[0][0];
    },
  };
  control.options(options, value);
  input.addEventListener("change", change);
  return control;
}

/** A group of radio buttons; options are [value, text].
 *
 * A value that is no option, as an address may hold, gives `usual`.
 */
export function radios(label, options, value, usual, change) {
  const name = newId("radio");
  if (!options.some(([key]) => key === value)) value = usual;
  const inputs = options.map(([key]) =>
    el("input", {
      type: "radio",
      name,
      value: key,
      checked: key === value,
      onchange: change,
    }),
  );
  return {
    node: el(
      "fieldset",
      { class: "live-radios" },
      el("legend", {}, label),
      options.map(([, text], i) => el("label", {}, inputs[i], ` ${text}`)),
    ),
    get value() {
      return inputs.find((input) => input.checked)?.value;
    },
    set value(text) {
      for (const input of inputs) input.checked = input.value === text;
    },
  };
}

/** A box of its own for what may be wider than the page. */
export const scroller = (label) =>
  el("div", {
    class: "live-scroll",
    tabindex: 0,
    role: "region",
    "aria-label": label,
  });

/** A table of cells, or of what is in them. */
export function tabulate(head, rows, attributes = {}) {
  const line = (ones, kind, about) =>
    el(
      "tr",
      {},
      ones.map((one) =>
        one instanceof HTMLTableCellElement ? one : el(kind, about, one),
      ),
    );
  return el(
    "table",
    attributes,
    el("thead", {}, line(head, "th", { scope: "col" })),
    el(
      "tbody",
      {},
      rows.map((row) => line(row, "td", {})),
    ),
  );
}

/** The cell that a row begins with. */
export const rowHead = (text, about = {}) =>
  el("th", { scope: "row", ...about }, text);

/** A table with a caption; the column `wide` holds text. */
export function table(caption, head, wide, rows, attributes = {}) {
  const about = { class: "live-text", ...attributes };
  const cells = (row) =>
    row.map((one, column) => (column === wide ? el("td", about, one) : one));
  const node = tabulate(head, rows.map(cells), { class: "live-table" });
  node.prepend(el("caption", {}, caption));
  return node;
}

/** newest(load, use): only what was asked for last is used.
 *
 * Answers may come in another order than the questions.
 */
export function newest() {
  let turn = 0;
  return async (load, use) => {
    const mine = ++turn;
    const found = await load();
    if (mine === turn) await use(found);
  };
}

/** A colour with an opacity from 0 to 1. */
export function ink(colour, share) {
  const part = Math.round(255 * Math.min(1, Math.max(0, share)));
  return colour + part.toString(16).padStart(2, "0");
}

/** How strongly a weight from 0 to 1 is inked.
 *
 * On a dark page small weights are lifted: there the eye cannot tell
 * them apart as it can on white.
 */
export const strength = (weight) =>
  document.documentElement.dataset.theme === "dark" ? weight ** 0.7 : weight;

/** A weight's colour; behind text never so strong that the text suffers. */
export const wash = (colour, weight) => ink(colour, 0.55 * strength(weight));

/** Fill a canvas cell by cell with colour(row, column). */
export function paint(canvas, rows, columns, height, colour) {
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  const width = canvas.clientWidth || 320;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  const x = (column) => Math.round((column * canvas.width) / columns);
  const y = (row) => Math.round((row * canvas.height) / rows);
  for (let row = 0; row < rows; row++)
    for (let column = 0; column < columns; column++) {
      const fillStyle = colour(row, column);
      if (!fillStyle) continue;
      context.fillStyle = fillStyle;
      context.fillRect(
        x(column),
        y(row),
        x(column + 1) - x(column),
        y(row + 1) - y(row),
      );
    }
  return { context, x, y, ratio };
}

/** The cell of a canvas under the pointer: [row, column]. */
export function cellAt(event, rows, columns) {
  const box = event.currentTarget.getBoundingClientRect();
  const part = (at, size, count) =>
    Math.min(count - 1, Math.max(0, Math.floor((at / size) * count)));
  return [
    part(event.clientY - box.top, box.height, rows),
    part(event.clientX - box.left, box.width, columns),
  ];
}

/** Draw again when the page's colours or the place's width change.
 *
 * A place that the page hides has no width until it is shown.
 */
export function redraw(place, draw) {
  new MutationObserver(() => draw()).observe(document.documentElement, {
    attributeFilter: ["data-theme"],
  });
  let width = place.clientWidth;
  new ResizeObserver(() => {
    if (place.clientWidth === width) return;
    width = place.clientWidth;
    if (width) requestAnimationFrame(() => draw());
  }).observe(place);
}

/** A file of the site's live data, by its name. */
const address = (name) => new URL(`data/${name}`, import.meta.url);

/** The same answer; `count(bytes)` is called for each part that arrives. */
export function counting(answer, count) {
  const counted = new TransformStream({
    transform(part, on) {
      count(part.length);
      on.enqueue(part);
    },
  });
  return new Response(answer.body.pipeThrough(counted), answer);
}

/** Read one of the data files; an error says what the reader can do.
 *
 * `count(bytes)` is called for each part that arrives.
 */
export async function load(name, kind = "json", count = () => {}) {
  let answer;
  try {
    answer = await fetch(address(name));
    if (answer.ok) return await counting(answer, count)[kind]();
  } catch {
    throw new Error(
      `${name} could not be loaded. Is there still a connection to the ` +
        "site? Try again.",
    );
  }
  throw new Error(`${name} is missing from this copy of the site.`);
}

/** The style of a part that the page did not have from the start. */
export function style(name) {
  const href = new URL(`${name}.css`, import.meta.url);
  return new Promise((done) => {
    const link = el("link", { rel: "stylesheet", href });
    link.onload = done;
    link.onerror = done; // plain, but there
    document.head.append(link);
  });
}

export const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)}\u00a0MB`;

/** How much of a model has arrived, in words. */
export const loading = (share, { bytes }) =>
  `Loading the model: ${((share * bytes) / 1e6).toFixed(1)} of ` +
  `${megabytes(bytes)} …`;

/** What a reader chooses a model by: its direction and its corpus. */
export const called = ({ title, corpus_title }) =>
  title ? `${title} (${corpus_title})` : corpus_title;

/** Choose a model, and one of its sentences.
 *
 * `list(about)` gives a model's sentences, {text}, and `read(about, row,
 * number)` what is shown of one, for `use(found, row, about)`. What cannot
 * be loaded is said, and asked for again by the next choice. `open` shows a
 * sentence to begin with: its number, or its words. `own` adds a model of
 * the reader's, with what was found of a sentence.
 */
export async function sentences({ list, read }, state, use) {
  let { models } = await load("index.json");
  const last = newest();
  let rows = [];
  let whose = null; // the model that they are of
  const listed = () => models.map((one) => [one.name, called(one)]);
  const model = choice("model", listed(), state.model, () => open(0));
  const sentence = choice("sentence", [], "", () => attempt(show));
  const note = el("p", { class: "live-axis", role: "status" });
  const about = () => models.find(({ name }) => name === model.value);
  async function attempt(what) {
    note.textContent = "";
    await what().catch((error) => {
      note.textContent = error.message;
      if (whose) model.value = whose.name;
    });
  }
  const open = (number) => {
    const one = about();
    return attempt(() =>
      last(
        () => one.rows ?? list(one),
        (found) => {
          [rows, whose] = [found, one];
          const texts = rows.map(({ text }) => text);
          sentence.options(
            texts.map((text, i) => [i, text]),
            texts.includes(number) ? texts.indexOf(number) : number,
          );
          return show();
        },
      ),
    );
  };
  function show() {
    const [one, number] = [whose, Number(sentence.value)];
    model.value = one.name;
    return last(
      () => one.found ?? read(one, rows[number], number),
      (found) => use(found, rows[number], one),
    );
  }
  model.node.hidden = models.length < 2;
  return {
    node: el(
      "div",
      { class: "live-controls live-which" },
      model.node,
      sentence.node,
      note,
    ),
    note,
    open,
    own(about, row, found) {
      models = models.filter(({ name }) => name !== OWN);
      models.push({ ...about, rows: [row], found });
      model.options(listed(), OWN);
      model.node.hidden = false;
      return open(0);
    },
    get state() {
      return { model: model.value, sentence: sentence.value };
    },
  };
}

/** What the address says of one part of a page: `beams.step` and so on.
 *
 * The entries of other parts are kept. Nothing is written before the
 * reader has used the part, so that a link to a section stays one; and
 * nothing of a model of the reader's, which no address has.
 */
export function inAddress(place, part) {
  const own = `${part}.`;
  const entries = () => Object.entries(readState());
  let used = false;
  for (const kind of ["input", "change", "click", "keydown"])
    place.addEventListener(kind, () => (used = true), { capture: true });
  return {
    read: () =>
      Object.fromEntries(
        entries()
          .filter(([key]) => key.startsWith(own))
          .map(([key, value]) => [key.slice(own.length), value]),
      ),
    write(state) {
      if (!used || state.model === OWN) return;
      const others = entries().filter(
        ([key]) => key.includes(".") && !key.startsWith(own),
      );
      const mine = Object.entries(state).map(([key, value]) => [
        own + key,
        value,
      ]);
      writeState([...others, ...mine]);
    },
  };
}

/** All that the address says after the #; of one part: `inAddress`. */
export function readState() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

export function writeState(state) {
  const text = new URLSearchParams(state).toString();
  history.replaceState(null, "", `#${text}`);
}

/** Lets the page draw and answer before a computation goes on. */
export const breathe = () => new Promise((done) => setTimeout(done));

export const upTo = (count) => [...Array(count).keys()];

export const percent = (share) =>
  share >= 0.0995 || share < 0.0005
    ? `${Math.round(share * 100)}\u00a0%`
    : `${(share * 100).toFixed(1)}\u00a0%`;

/** A number as it is printed: rounded, with a true minus, and no −0. */
export const decimal = (value, digits = 2) => {
  const text = value.toFixed(digits);
  return (/[1-9]/.test(text) ? text : text.replace("-", "")).replace("-", "−");
};
