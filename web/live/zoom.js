// The page "One sentence": from the model down to one number.

import {
  el,
  INK,
  ink,
  load,
  newest,
  paint,
  readState,
  redraw,
  scroller,
  svg,
  table,
  wash,
  writeState,
} from "./common.js";

const SUBS = {
  encoder: ["self_attention", "feed_forward"],
  decoder: ["self_attention", "cross_attention", "feed_forward"],
};
const TITLES = {
  self_attention: "self-attention",
  cross_attention: "cross-attention",
  feed_forward: "feed-forward network",
};
const GROW = 250; // milliseconds
const FEW = 8; // numbers of a vector that a table shows

const WORDS = { "<bos>": "start", "<eos>": "end" };
const plain = (piece) => WORDS[piece] ?? piece.replaceAll("▁", "");
const low = (number) =>
  String(number).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]);
const number = (value, digits = 2) => {
  const text = value.toFixed(digits);
  return (/[1-9]/.test(text) ? text : text.replace("-", "")).replace("-", "−");
};
const upTo = (count) => [...Array(count).keys()];
const largest = (list) => list.indexOf(Math.max(...list));
const add = (list) => list.reduce((sum, one) => sum + one, 0);
const signed = (value, most) =>
  ink(value < 0 ? INK.negative : INK.positive, Math.abs(value) / most);

/** What the page was given, and what is fetched when it is opened. */
export function open(about) {
  const files = new Map();
  const fetched = (name) => {
    if (!files.has(name)) {
      const answer = load(`zoom/${name}`, "arrayBuffer");
      answer.catch(() => files.delete(name)); // ask again
      files.set(
        name,
        answer.then((bytes) => new Float32Array(bytes)),
      );
    }
    return files.get(name);
  };
  const places = {};
  let offset = 0;
  for (const [name, shape] of about.arrays) {
    places[name] = [offset, shape];
    offset += shape.reduce((size, axis) => size * axis);
  }
  let numbers = null;
  let matrices = null;
  return {
    ...about,
    size: 4 * offset, // bytes
    /** All that the level of a path needs. */
    async fetch(path) {
      if (path.length) numbers = await fetched("numbers.bin");
      if (path.length > 6) {
        const part = `${at(path, 3)}.${path[3] - 1}`;
        matrices = await fetched(`${part}.bin`);
      }
    },
    shape: (name) => places[name][1],
    /** A row of an array, or one number: its indices from the left. */
    get(name, ...indices) {
      const [start, shape] = places[name];
      let [from, size] = [start, shape.reduce((all, axis) => all * axis)];
      indices.forEach((index, axis) => {
        size /= shape[axis];
        from += index * size;
      });
      if (indices.length === shape.length) return numbers[from];
      return [...numbers.subarray(from, from + size)];
    },
    /** A row of W_Q, W_K or W_V of the head that was fetched. */
    matrix(kind, row) {
      const { d_k, d_model } = about.sizes;
      const from = ("qkv".indexOf(kind) * d_k + row) * d_model;
      return [...matrices.subarray(from, from + d_model)];
    },
    pieces: (stack) => about[stack === "encoder" ? "source" : "target"],
  };
}

/** The library's name of what a path leads to, `depth` steps deep. */
function at(path, depth) {
  const [stack, layer, sub] = path;
  const names = [stack, `layers.${layer - 1}`, sub];
  return names.slice(0, depth).join(".");
}

/** What an attention's rows and columns are. */
function axes(model, [stack, , sub]) {
  const source = sub === "cross_attention" ? "encoder" : stack;
  return {
    rows: model.pieces(stack).map(plain),
    columns: model.pieces(source).map(plain),
  };
}

/** Of a number's path: of the query, the key or the output. */
function letter(path) {
  if (path[5] === "values") return "o";
  return path[6].startsWith("k") ? "k" : "q";
}

/** The last steps that a path may have instead of its own. */
export function siblings(model, path) {
  const { N, h, d_k } = model.sizes;
  const last = path.at(-1);
  const counted = (count) => upTo(count).map((i) => String(i + 1));
  switch (path.length) {
    case 1:
      return ["encoder", "decoder"];
    case 2:
      return counted(N);
    case 3:
      return SUBS[path[0]];
    case 4:
      return path[2] === "feed_forward" ? [] : counted(h);
    case 5:
      return counted(axes(model, path).rows.length);
    case 6:
      return [...counted(axes(model, path).columns.length), "values"];
    case 7:
      return counted(d_k).map((i) => letter(path) + i);
    case 8:
      return letter(path) === "o"
        ? counted(axes(model, path).columns.length)
        : [];
    default:
      return [];
  }
}

/** A path from an address; the model itself if it leads nowhere. */
export function find(model, text = "") {
  const path = text === "model" || !text ? [] : text.split(".");
  const good = path.every((last, i) =>
    siblings(model, path.slice(0, i + 1)).includes(last),
  );
  return good ? path : [];
}

/** A path's last step, as the reader sees it. */
function title(model, path) {
  const last = path.at(-1);
  switch (path.length) {
    case 0:
      return "model";
    case 1:
      return last;
    case 2:
      return `layer ${last}`;
    case 3:
      return TITLES[last];
    case 4:
      return `head ${last}`;
    case 5:
      return axes(model, path).rows[last - 1];
    case 7:
      return last[0] + low(last.slice(1));
    default:
      return last === "values" ? last : axes(model, path).columns[last - 1];
  }
}

/** What is shown: the key of its lines of code. */
function level(path) {
  const [stack, , sub] = path;
  const kinds = [
    "model",
    stack,
    `${stack} layer`,
    sub === "feed_forward" ? sub : "attention",
    "head",
    "row",
    path[5] === "values" ? "values" : "cell",
    path[6]?.[0],
    "v",
  ];
  return kinds[path.length];
}

export function start(place) {
  const given = place.querySelector("script").textContent;
  const model = open(JSON.parse(given));
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const last = newest();
  let path = [];
  let painters = [];

  const crumbs = el("ol", { class: "zoom-crumbs" });
  const beside = ["previous", "next"].map((name, i) =>
    el(
      "button",
      { type: "button", onclick: (event) => step(i ? 1 : -1, event) },
      i ? "›" : "‹",
    ),
  );
  const words = el("p", { class: "zoom-words" });
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
    words,
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
    for (const key of fed.dataset.feeds.split(" "))
      for (const one of stage.querySelectorAll(`[data-key="${key}"]`))
        one.classList.add("zoom-lit");
  }
  for (const name of ["pointerover", "pointerleave", "focusin"])
    stage.addEventListener(name, light);

  // Drawing

  function draw() {
    painters = [];
    const show = { model, path, box, strip };
    const shown = PICTURES[level(path).split(" ").at(-1)](show);
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
    stage.scrollTo(0, 0);
    for (const paintOne of painters) paintOne();
    roam(items()[0]);
    said.textContent = shown.said;
    code.replaceChildren(...lines(model.lines[level(path)]));
    sizes.textContent = shown.sizes;
    const { caption, head, rows } = shown.numbers;
    numbers.replaceChildren(table(caption, head, -1, rows));
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
  function strip(name, caption, pieces, key, thin = false) {
    const [rows, columns] = model.shape(name);
    const canvas = el("canvas", { "aria-hidden": "true" });
    const values = model.get(name);
    const most = Math.max(...values.map(Math.abs));
    painters.push(() =>
      paint(canvas, rows, columns, rows * (thin ? 4 : 14), (row, column) =>
        signed(values[row * columns + column], most),
      ),
    );
    return el(
      "figure",
      {
        class: thin ? "zoom-strip zoom-thin" : "zoom-strip",
        "data-key": key,
      },
      el("figcaption", {}, caption),
      thin
        ? null
        : el(
            "ul",
            { "aria-hidden": "true" },
            pieces.map((piece) => el("li", {}, plain(piece))),
          ),
      canvas,
    );
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

// A picture for each level, with what is said of it

const shared = ({ d_k, h, d_model }) =>
  d_k * h === d_model ? `${d_k} = ${d_model} / ${h} heads` : `${d_k} = d_k`;

/** The first numbers of every vector, for a table. */
function firsts(model, names, pieces) {
  const { d_model } = model.sizes;
  const few = Math.min(FEW, d_model);
  return {
    caption: `the first ${few} of the ${d_model} numbers of each vector`,
    head: ["where", "piece", ...upTo(few).map((i) => i + 1)],
    rows: names.flatMap(([name, where]) =>
      pieces.map((piece, i) => [
        where,
        plain(piece),
        ...model.get(name, i).slice(0, few).map((one) => number(one, 3)),
      ]),
    ),
  };
}

/** Weights as a map, one row for each query. */
function cells(model, name, head, row, attributes = () => ({})) {
  const [, , count] = model.shape(`${name}.weight`);
  return upTo(count).map((column) => {
    const masked = !model.get(`${name}.may`, row, column);
    const weight = model.get(`${name}.weight`, head, row, column);
    const look = masked ? "zoom-masked" : "";
    return el("span", {
      class: `zoom-cell ${look}`,
      style: `background-color: ${wash(INK.query, weight)}`,
      ...attributes(column, weight, masked),
    });
  });
}

const PICTURES = {
  model({ model, box }) {
    const { N, d_model, vocab_size } = model.sizes;
    const { source, target, next, languages } = model;
    const [from, to] = languages;
    const chips = (pieces, key) =>
      el(
        "ul",
        { class: "zoom-chips", "data-key": key },
        pieces.map((piece) => el("li", {}, plain(piece))),
      );
    const flat = (text, key, feeds) =>
      el("div", { class: "zoom-flat", "data-key": key, "data-feeds": feeds }, text);
    const up = () => el("span", { class: "zoom-arrow", "aria-hidden": "true" }, "↑");
    const big = (part, feeds, note) =>
      box(
        part,
        { class: `zoom-box zoom-${part}`, "data-key": part, "data-feeds": feeds },
        el("b", {}, part),
        el("small", {}, note),
      );
    return {
      words:
        "This is figure 1 of the paper, with our sentence in it. Open the " +
        "encoder or the decoder, and go on until you hold a single number.",
      picture: el(
        "div",
        { class: "zoom-model" },
        el(
          "div",
          {},
          big("encoder", "source", `${N} layers, read once`),
          up(),
          flat("embedding and positions", "source", "english"),
          up(),
          chips(source, "english"),
          el("small", {}, `${from}, what is read`),
        ),
        el(
          "div",
          { class: "zoom-memory", "data-key": "memory", "data-feeds": "encoder" },
          el("span", { "aria-hidden": "true" }, "→"),
          el("small", {}, "memory"),
          el("small", {}, `${source.length} × ${d_model}`),
        ),
        el(
          "div",
          {},
          el("small", {}, "what each position says next"),
          chips(next, "next"),
          up(),
          flat("linear layer and softmax", "scores", "decoder"),
          up(),
          big("decoder", "target memory", `${N} layers, all positions at once`),
          up(),
          flat("embedding and positions", "target", "spanish"),
          up(),
          chips(target, "spanish"),
          el("small", {}, `${to}, what is already written`),
        ),
      ),
      said: `“${model.text}” becomes “${model.said}”.`,
      sizes:
        `memory: ${source.length} pieces × ${d_model} = d_model · hidden: ` +
        `${target.length} positions × ${d_model} · logits: ${target.length} ` +
        `positions × ${vocab_size} pieces of the vocabulary`,
      numbers: {
        caption: "what each position of the decoder reads and says",
        head: ["position", "reads", "says next", "with probability"],
        rows: target.map((piece, i) => [
          i + 1,
          plain(piece),
          plain(next[i]),
          number(model.sure[i], 4),
        ]),
      },
    };
  },

  encoder: (show) => stack(show, "a vector for each English piece"),
  decoder: (show) => stack(show, "a vector for each position"),

  layer({ model, path, box, strip }) {
    const [name, number] = path;
    const whole = at(path, 2);
    const pieces = model.pieces(name);
    const subs = SUBS[name];
    const parts = subs.flatMap((sub, i) => [
      strip(
        i ? `${whole}.${sub}` : whole,
        i ? "" : "what comes in",
        pieces,
        sub,
        i > 0,
      ),
      box(
        sub,
        {
          class: `zoom-box zoom-wide zoom-${name}`,
          "data-feeds": sub,
        },
        el("b", {}, TITLES[sub]),
        el(
          "small",
          {},
          sub === "cross_attention" ? "with the memory; " : "",
          model.norm === "post"
            ? "its input is added, then a norm"
            : "after a norm; its input is added",
        ),
      ),
    ]);
    const top = strip(`${whole}.out`, "what goes out", pieces, "out");
    const listed = subs.map((sub) => [
      `${whole}.${sub}`,
      `into ${TITLES[sub]}`,
    ]);
    return {
      words:
        `Read from below. Each colour is one of the ${model.sizes.d_model} ` +
        "numbers of a vector, and a sub-layer changes the colours but not " +
        "the shape.",
      picture: el("div", { class: "zoom-column" }, ...parts, top),
      said:
        `Layer ${number} of ${model.sizes.N} in the ${name}: ` +
        `${subs.map((sub) => TITLES[sub]).join(", then ")}.`,
      sizes:
        `x: ${pieces.length} positions × ${model.sizes.d_model} = d_model, ` +
        "before and after every sub-layer",
      numbers: firsts(
        model,
        [...listed, [`${whole}.out`, "out of the layer"]],
        pieces,
      ),
    };
  },

  attention({ model, path, box }) {
    const name = at(path, 3);
    const { rows, columns } = axes(model, path);
    const { h, d_k } = model.sizes;
    const of = (head, row) => model.get(`${name}.weight`, head, row);
    const heads = upTo(h).map((head) => {
      const looks = rows.map((word, row) => {
        const weights = of(head, row);
        const best = largest(weights);
        return `${word} at ${columns[best]} ${number(weights[best])}`;
      });
      return box(
        head + 1,
        {
          class: "zoom-box zoom-mini",
          style: `--columns: ${columns.length}`,
          "aria-label": `head ${head + 1}, looks most: ${looks.join(", ")}`,
        },
        el("b", {}, `head ${head + 1}`),
        rows.map((word, row) =>
          el(
            "span",
            { class: "zoom-line" },
            el("span", { class: "zoom-word" }, word),
            ...cells(model, name, head, row),
          ),
        ),
        el(
          "span",
          { class: "zoom-line zoom-below" },
          el("span", { class: "zoom-word" }),
          columns.map((word) => el("span", {}, word)),
        ),
      );
    });
    const all = upTo(h).flatMap((head) =>
      rows.map((_, row) => Math.max(...of(head, row))),
    );
    const most = largest(all);
    const [head, row] = [Math.floor(most / rows.length), most % rows.length];
    const best = largest(of(head, row));
    return {
      words:
        "Every head is a map: the word at the left looks at the words below, " +
        "and the darker a cell, the more of its attention goes there. A " +
        "hatched cell is masked.",
      picture: el("div", { class: "zoom-heads", style: `--heads: ${h}` }, heads),
      said:
        `${h} heads look in ${h} ways. The largest weight of all, ` +
        `${number(all[most])}, is in head ${head + 1}, from ${rows[row]} to ` +
        `${columns[best]}.`,
      sizes:
        `query: ${h} heads × ${rows.length} positions × ${d_k} · key: ` +
        `${h} heads × ${columns.length} positions × ${d_k} · ` +
        shared(model.sizes),
      numbers: {
        caption: "for each query and head the key that gets most, its weight",
        head: ["query", ...upTo(h).map((i) => `head ${i + 1}`)],
        rows: rows.map((word, i) => [
          word,
          ...upTo(h).map((one) => {
            const weights = of(one, i);
            const key = largest(weights);
            return `${columns[key]} ${number(weights[key], 3)}`;
          }),
        ]),
      },
    };
  },

  feed_forward({ model, path, strip }) {
    const name = at(path, 3);
    const pieces = model.pieces(path[0]);
    const { d_model, d_ff } = model.sizes;
    const region = scroller("the vectors that come in");
    region.append(strip(name, "what comes in", pieces, "x"));
    return {
      words:
        `The network takes each vector by itself, widens it to ${d_ff} ` +
        "numbers, sets the negative ones to zero and comes back to " +
        `${d_model}. Our way inwards ends here, at what comes in.`,
      picture: region,
      said:
        `${pieces.length} vectors, one after the other, through the same ` +
        "network: no position looks at another.",
      sizes: `inner: ${pieces.length} positions × ${d_ff} = d_ff, and back to ${d_model} = d_model`,
      numbers: firsts(model, [[name, "what comes in"]], pieces),
    };
  },

  head({ model, path, box }) {
    const name = at(path, 3);
    const head = path[3] - 1;
    const { rows, columns } = axes(model, path);
    const { d_k } = model.sizes;
    const region = scroller("the weights of this head");
    const lines = rows.map((word, row) => {
      const told = (column, weight, masked) =>
        masked ? "masked" : number(weight);
      const each = cells(model, name, head, row);
      const weights = model.get(`${name}.weight`, head, row);
      each.forEach((cell, i) => {
        const masked = !model.get(`${name}.may`, row, i);
        cell.textContent = told(i, weights[i], masked);
      });
      const spoken = each.map((cell, i) => `${columns[i]} ${cell.textContent}`);
      return box(
        row + 1,
        {
          class: "zoom-box zoom-line",
          "aria-label": `${word}: ${spoken.join(", ")}`,
          "data-feeds": "columns",
        },
        el("span", { class: "zoom-word" }, word),
        ...each,
      );
    });
    region.append(
      el(
        "div",
        { class: "zoom-map", style: `--columns: ${columns.length}` },
        el(
          "div",
          { class: "zoom-line", "data-key": "columns" },
          el("span", { class: "zoom-word" }, "looks at"),
          columns.map((word) => el("span", {}, word)),
        ),
        lines,
      ),
    );
    const every = rows.flatMap((word, i) => model.get(`${name}.weight`, head, i));
    const most = largest(every);
    const count = columns.length;
    const score = (i, j) => number(model.get(`${name}.score`, head, i, j), 3);
    return {
      words:
        "Each row is one word's attention, shared out over the words at the " +
        "top. Open a row to see where its weights come from.",
      picture: region,
      said:
        `Every row sums to 1. The largest weight is ${number(every[most])}, ` +
        `from ${rows[Math.floor(most / count)]} to ${columns[most % count]}.`,
      sizes:
        `query ${rows.length} × ${d_k} times key.mT ${d_k} × ${count} gives ` +
        `scores ${rows.length} × ${count} · ${shared(model.sizes)}`,
      numbers: {
        caption: "score → weight, a row for each query",
        head: ["query", ...columns, "sum of the weights"],
        rows: rows.map((word, i) => [
          word,
          ...columns.map((_, j) =>
            model.get(`${name}.may`, i, j)
              ? `${score(i, j)} → ${number(every[i * count + j], 3)}`
              : "masked",
          ),
          number(add(every.slice(i * count, (i + 1) * count)), 3),
        ]),
      },
    };
  },

  row({ model, path, box }) {
    const now = row(model, path);
    const { word, columns, scores, weights, may, grown } = now;
    const most = Math.max(...scores.map(Math.abs));
    const best = largest(weights);
    const { d_k } = model.sizes;
    const next = path[0] === "decoder" ? model.next[path[4] - 1] : null;
    const says = next ? `, where ${plain(next)} comes next,` : "";
    return {
      words:
        `The softmax turns the scores of ${word} (orange) into weights ` +
        "(blue), which are positive and sum to 1. Open a key to see where " +
        "its score comes from, or the values to see what the weights are for.",
      picture: el(
        "div",
        { class: "zoom-row" },
        el(
          "div",
          { class: "zoom-titles" },
          el("span", {}, "key"),
          el("span", {}, `score, q · k ÷ √${d_k}`),
          el("span", {}, "weight, softmax of the scores"),
        ),
        columns.map((key, i) =>
          box(
            i + 1,
            {
              class: "zoom-box zoom-titles",
              "aria-label": may[i]
                ? `${key}: score ${number(scores[i])}, weight ${number(weights[i])}`
                : `${key}: masked`,
              "data-feeds": "every",
            },
            el("span", {}, key),
            bar(may[i] ? scores[i] : 0, most, "key", may[i] ? number(scores[i]) : "masked", "every"),
            bar(weights[i], 1, "query", number(weights[i])),
          ),
        ),
        el(
          "div",
          { class: "zoom-titles zoom-total" },
          el("span", {}, "sum"),
          el("span", {}),
          el("span", {}, number(add(weights))),
        ),
        box(
          "values",
          { class: "zoom-box" },
          el("b", {}, "values"),
          el("small", {}, " what the weights carry away"),
        ),
      ),
      said:
        `${word}${says} looks most at ${columns[best]}: weight ` +
        `${number(weights[best])} of 1.`,
      sizes: `scores and weights of one row: ${columns.length}, one for each key`,
      numbers: {
        caption: "the softmax: exp of each score less the largest, and its share",
        head: ["key", "score", "exp", "weight"],
        rows: [
          ...columns.map((key, i) => [
            key,
            may[i] ? number(scores[i], 5) : "masked",
            may[i] ? number(grown[i], 5) : "0",
            number(weights[i], 5),
          ]),
          ["sum", "", number(add(grown), 5), number(add(weights), 5)],
        ],
      },
    };
  },

  cell({ model, path, box }) {
    const now = row(model, path);
    const column = path[5] - 1;
    const name = at(path, 3);
    const head = path[3] - 1;
    const query = model.get(`${name}.q`, head, path[4] - 1);
    const key = model.get(`${name}.k`, head, column);
    const products = query.map((one, i) => one * key[i]);
    const sum = add(products);
    const most = Math.max(...products.map(Math.abs));
    const { d_k } = model.sizes;
    const score = now.scores[column];
    const weight = now.weights[column];
    const may = now.may[column];
    const word = now.columns[column];
    const rank = now.weights.filter((one) => one > weight).length;
    const place = rank ? `number ${rank + 1} of` : "the largest of";
    const operand = (kind, i, value) =>
      box(
        `${kind}${i + 1}`,
        {
          class: `zoom-operand zoom-${kind}`,
          "data-key": `p${i}`,
          "aria-label": `${kind}${low(i + 1)}: ${number(value)}`,
        },
        number(value),
      );
    return {
      words: [
        "Each tile multiplies a number of the ",
        el("mark", { class: "zoom-query" }, `query of ${now.word}`),
        " by the one below it, of the ",
        el("mark", { class: "zoom-key" }, `key of ${word}`),
        ", and has the product underneath. Open a number to see where it " +
          "comes from.",
      ],
      picture: el(
        "div",
        { class: "zoom-score" },
        el(
          "div",
          { class: "zoom-tiles" },
          products.map((product, i) =>
            el(
              "div",
              { class: "zoom-tile", "data-key": "tile" },
              operand("q", i, query[i]),
              operand("k", i, key[i]),
              el(
                "span",
                {
                  class: "zoom-product",
                  "data-feeds": `p${i}`,
                  style: `background-color: ${signed(product, 2 * most)}`,
                },
                number(product, Math.abs(product) < 9.995 ? 2 : 1),
              ),
            ),
          ),
        ),
        el(
          "p",
          { class: "zoom-equation" },
          el("span", { "data-feeds": "tile" }, "sum ", el("b", {}, number(sum))),
          ` ÷ √${d_k} = `,
          el("span", {}, "score ", el("b", {}, number(score))),
          may ? ", softmax " : ", masked, ",
          el("span", {}, "weight ", el("b", {}, number(weight))),
        ),
        el(
          "div",
          { class: "zoom-softmax" },
          now.columns.map((other, i) =>
            el(
              "div",
              { class: i === column ? "zoom-here" : "" },
              el("span", {}, other),
              bar(now.weights[i], 1, "query", now.may[i] ? number(now.weights[i]) : "masked"),
            ),
          ),
        ),
      ),
      said:
        `Score ${number(score)} = ${number(sum)} ÷ √${d_k}; ` +
        (may
          ? `weight ${number(weight)}, ${place} ${now.columns.length}.`
          : "but it is masked, so the weight is 0."),
      sizes: `query ${d_k} numbers, key ${d_k} numbers, so ${d_k} products: ${shared(model.sizes)}`,
      numbers: {
        caption: `the ${d_k} products of ${now.word} and ${word}`,
        head: ["i", "q", "k", "q · k"],
        rows: [
          ...products.map((product, i) => [
            i + 1,
            number(query[i], 5),
            number(key[i], 5),
            number(product, 5),
          ]),
          ["sum", "", "", number(sum, 5)],
          [`÷ √${d_k}`, "", "", number(score, 5)],
        ],
      },
    };
  },

  values({ model, path, box }) {
    const { word, columns, weights, parts } = mixed(model, path);
    const outputs = parts.map(add);
    const { d_k } = model.sizes;
    const most = Math.max(...outputs.map(Math.abs));
    const best = largest(outputs.map(Math.abs));
    return {
      words:
        `Each of the ${d_k} numbers below is the same mixture: the values' ` +
        "numbers at that place, each times its key's weight, added up. " +
        "Open one to see it mixed.",
      picture: el(
        "div",
        { class: "zoom-score" },
        el(
          "div",
          { class: "zoom-softmax" },
          columns.map((key, i) =>
            el(
              "div",
              {},
              el("span", {}, key),
              bar(weights[i], 1, "query", number(weights[i])),
            ),
          ),
        ),
        el(
          "div",
          { class: "zoom-tiles" },
          outputs.map((one, i) =>
            box(
              `o${i + 1}`,
              {
                class: "zoom-operand",
                style: `background-color: ${signed(one, 2 * most)}`,
                "aria-label": `o${low(i + 1)}: ${number(one)}`,
              },
              number(one),
            ),
          ),
        ),
      ),
      said:
        `What this head says for ${word}: ${d_k} numbers; the largest in ` +
        `size is o${low(best + 1)}, ${number(outputs[best])}.`,
      sizes:
        `weights ${columns.length} times values ${columns.length} × ${d_k} ` +
        `gives ${d_k} numbers · ${shared(model.sizes)}`,
      numbers: {
        caption: "weight · value of each key, and their sum, the output",
        head: ["i", ...columns, "output"],
        rows: parts.map((part, i) => [
          i + 1,
          ...part.map((one) => number(one, 5)),
          number(outputs[i], 5),
        ]),
      },
    };
  },

  o({ model, path, box }) {
    const { word, columns, weights, values, parts } = mixed(model, path);
    const i = Number(path[6].slice(1)) - 1;
    const total = add(parts[i]);
    const most = Math.max(...parts[i].map(Math.abs));
    const best = largest(parts[i].map(Math.abs));
    const rows = columns.map((key, j) => [key, weights[j], values[j][i]]);
    return {
      words:
        `Number ${i + 1} of each key's value is multiplied by the key's ` +
        "weight. Open a key to see where its value's number comes from.",
      picture: el(
        "div",
        { class: "zoom-row" },
        el(
          "div",
          { class: "zoom-titles" },
          el("span", {}, "key"),
          el("span", {}, `weight × v${low(i + 1)}`),
          el("span", {}, "their product"),
        ),
        rows.map(([key, weight, value], j) =>
          box(
            j + 1,
            {
              class: "zoom-box zoom-titles",
              "aria-label": `${key}: weight ${number(weight)} times value ${number(value)}`,
            },
            el("span", {}, key),
            el("span", {}, `${number(weight)} × ${number(value)}`),
            bar(parts[i][j], most, "value", number(parts[i][j])),
          ),
        ),
        el(
          "div",
          { class: "zoom-titles zoom-total" },
          el("span", {}, "sum"),
          el("span", {}),
          el("span", {}, number(total)),
        ),
      ),
      said:
        `o${low(i + 1)} of ${word} is ${number(total)}; most of it comes ` +
        `from ${columns[best]}, ${number(parts[i][best])}.`,
      sizes: `${columns.length} products, one for each key`,
      numbers: {
        caption: `the products that make o${low(i + 1)} of ${word}`,
        head: ["key", "weight", "value", "product"],
        rows: [
          ...rows.map(([key, weight, value], j) => [
            key,
            number(weight, 5),
            number(value, 5),
            number(parts[i][j], 5),
          ]),
          ["sum", "", "", number(total, 5)],
        ],
      },
    };
  },

  q: (show) => product(show, "query"),
  k: (show) => product(show, "key"),
  v: (show) => product(show, "value"),
};

function stack({ model, path, box, strip }, what) {
  const [name] = path;
  const { N, d_model } = model.sizes;
  const pieces = model.pieces(name);
  const layers = upTo(N).flatMap((i) => {
    const input = `${name}.layers.${i}`;
    const thin = i > 0;
    return [
      strip(input, thin ? "" : "words and places", pieces, `x${i}`, thin),
      box(
        i + 1,
        {
          class: `zoom-box zoom-wide zoom-${name}`,
          "data-feeds": `x${i}`,
        },
        el("b", {}, `layer ${i + 1}`),
        el(
          "small",
          {},
          SUBS[name].map((sub) => TITLES[sub]).join(", "),
        ),
      ),
    ];
  });
  const end = name === "encoder" ? "the memory" : "to the linear layer";
  return {
    words:
      `Read from below: what goes in is ${what}, ${d_model} numbers long and ` +
      "drawn as a row of colours, and every layer rewrites all of them.",
    picture: el(
      "div",
      { class: "zoom-column" },
      ...layers,
      strip(`${name}.out`, end, pieces, "out"),
    ),
    said:
      `The ${name}: ${N} layers, one after the other. ${pieces.length} ` +
      `vectors go in and ${pieces.length} come out.`,
    sizes:
      `x: ${pieces.length} positions × ${d_model} = d_model · ` +
      `layers: ${N} = N`,
    numbers: firsts(
      model,
      [
        ...upTo(N).map((i) => [
          `${name}.layers.${i}`,
          `into layer ${i + 1}`,
        ]),
        [`${name}.out`, "out of the last"],
      ],
      pieces,
    ),
  };
}

/** One query's scores and weights, over all keys. */
function row(model, path) {
  const name = at(path, 3);
  const [head, query] = [path[3] - 1, path[4] - 1];
  const { rows, columns } = axes(model, path);
  const scores = model.get(`${name}.score`, head, query);
  const may = model.get(`${name}.may`, query);
  const top = Math.max(...scores.filter((_, i) => may[i]));
  return {
    word: rows[query],
    columns,
    scores,
    may,
    weights: model.get(`${name}.weight`, head, query),
    grown: scores.map((one, i) => (may[i] ? Math.exp(one - top) : 0)),
  };
}

/** One query's values: `parts` are weight · value, a row a number. */
function mixed(model, path) {
  const now = row(model, path);
  const name = `${at(path, 3)}.v`;
  const values = now.columns.map((_, j) => model.get(name, path[3] - 1, j));
  const parts = upTo(model.sizes.d_k).map((i) =>
    values.map((value, j) => now.weights[j] * value[i]),
  );
  return { ...now, values, parts };
}

/** A bar with its number; of both signs from the middle. */
function bar(value, most, kind, text, key = null) {
  const share = Math.abs(value) / most;
  const side = kind === "query" ? "" : value < 0 ? "zoom-minus" : "zoom-plus";
  return el(
    "span",
    { class: `zoom-bar ${side}`, "data-key": key },
    el("i", { class: `zoom-${kind}`, style: `--share: ${share}` }),
    el("span", {}, text),
  );
}

/** One number of a query, key or value: a row of x times a row of W. */
function product({ model, path }, kind) {
  const name = at(path, 3);
  const [stackName, , sub] = path;
  const index = Number(path[6].slice(1)) - 1;
  const { rows, columns } = axes(model, path);
  const { d_model } = model.sizes;
  const isQuery = kind === "query";
  const place = { query: path[4], key: path[5], value: path[7] }[kind] - 1;
  const word = (isQuery ? rows : columns)[place];
  const crossing = sub === "cross_attention" && !isQuery;
  const from = crossing ? "encoder.out" : name;
  const x = model.get(from, place);
  const weights = model.matrix(kind[0], index);
  const products = x.map((one, j) => one * weights[j]);
  const sum = add(products);
  const symbol = kind[0] + low(index + 1);
  const matrix = `W_${kind[0].toUpperCase()}`;
  const best = largest(products.map(Math.abs));
  const readout = el("p", { class: "zoom-read" });
  const tell = (j) =>
    (readout.textContent =
      `number ${j + 1} of ${d_model}: ${number(x[j], 3)} × ` +
      `${number(weights[j], 3)} = ${number(products[j], 3)}`);
  tell(best);
  const chart = (values, title, look) => {
    const most = Math.max(...values.map(Math.abs));
    return el(
      "figure",
      {},
      el("figcaption", {}, title),
      svg(
        "svg",
        {
          viewBox: `0 0 ${d_model} 2`,
          preserveAspectRatio: "none",
          "aria-hidden": "true",
          class: look,
        },
        values.map((value, j) =>
          svg("rect", {
            x: j + 0.1,
            y: value > 0 ? 1 - value / most : 1,
            width: 0.8,
            height: Math.abs(value) / most,
            class: value < 0 ? "zoom-minus" : "zoom-plus",
            "data-number": j,
          }),
        ),
      ),
    );
  };
  const region = scroller(`the products that make ${symbol}`);
  region.classList.add("zoom-product-chart");
  region.append(
    chart(x, `x: the vector of ${word}`, "zoom-plain"),
    chart(weights, `row ${index + 1} of this head's ${matrix}`, `zoom-${kind}`),
    chart(products, "their products", "zoom-signed"),
    readout,
    el(
      "p",
      { class: "zoom-equation" },
      "sum ",
      el("b", {}, number(sum, 3)),
      ` = ${symbol}, a number of the ${kind} of ${word}`,
    ),
  );
  region.addEventListener("pointermove", (event) => {
    const picture = event.target.closest("svg");
    if (!picture) return;
    const box = picture.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    const j = Math.floor(share * d_model);
    const now = Math.min(d_model - 1, Math.max(0, j));
    tell(now);
    for (const one of region.querySelectorAll("rect"))
      one.classList.toggle("zoom-lit", one.dataset.number === String(now));
  });
  const entered = crossing
    ? "the memory"
    : `what goes into the ${TITLES[sub]} of this layer`;
  return {
    words:
      `x is the vector of ${word} in ${entered}. Each of its numbers is ` +
      "multiplied by a learnt one, and the products are added up.",
    picture: region,
    said:
      `${symbol} = ${number(sum)}, the sum of ${d_model} products; the ` +
      `largest in size is ${number(products[best])}.`,
    sizes: `${d_model} products: x and every row of ${matrix} are d_model = ${d_model} numbers long`,
    numbers: {
      caption: `the ${d_model} products that make ${symbol} of ${word}`,
      head: ["j", "x", matrix, "product"],
      rows: [
        ...products.map((one, j) => [
          j + 1,
          number(x[j], 5),
          number(weights[j], 5),
          number(one, 5),
        ]),
        ["sum", "", "", number(sum, 5)],
      ],
    },
  };
}
