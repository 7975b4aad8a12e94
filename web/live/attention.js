// The page "Attention explorer".

import {
  INK,
  breathe,
  el,
  inAddress,
  ink,
  load,
  paint,
  radios,
  redraw,
  rowHead,
  scroller,
  sentences,
  strength,
  tabulate,
  upTo,
  wash,
} from "./common.js";
import { inside } from "./inside.js";
import { becomes, describe, ownSentence } from "./own_model.js";
import { CHOSEN, arrows, heaviest, readable, wordPicker } from "./words.js";
import { open } from "./zoom_paths.js";

const KINDS = ["encoder", "decoder", "cross"].map((kind) => [kind, kind]);
const READ = {
  from: "Pick a token of the sentence",
  to: "Where it looks",
};
const MEAN = "all";
// It looks where the next word comes from: "wirft" at "throws".
const BEGIN = { layer: 2, head: 1, word: 6 };
const JOBS = {
  // of the shipped model; counted in book/results/attention_maps.md
  "multi30k-en-de": [
    ["Where am I?", "cross", 1, 4],
    ["What comes next?", "cross", 2, 1],
    ["The token before", "encoder", 4, 4],
    ["The token after", "encoder", 4, 3],
  ],
};

/** Cut the bytes of a sentence into its maps. */
function cut(bytes, { N, h }, { source, target }) {
  const S = source.length;
  const T = target.length;
  const maps = { encoder: [], decoder: [], cross: [] };
  let at = 0;
  for (const [kind, queries, keys] of [
    ["encoder", S, S],
    ["decoder", T, T],
    ["cross", T, S],
  ])
    for (let layer = 0; layer < N; layer++) {
      maps[kind][layer] = [];
      for (let head = 0; head < h; head++) {
        const size = queries * keys;
        maps[kind][layer][head] = bytes.subarray(at, at + size);
        at += size;
      }
    }
  if (at !== bytes.length)
    throw new Error("The weights of this sentence are damaged.");
  return maps;
}

/** The maps of a sentence that was looked into, as `cut` has them. */
async function mapsOf(found) {
  const { about } = found;
  const model = open(about, () => found);
  await model.fetch(["encoder"]);
  const { N, h } = about.sizes;
  const of = (stack, sub) =>
    upTo(N).map((layer) =>
      upTo(h).map((head) =>
        model
          .get(`${stack}.layers.${layer}.${sub}.weight`, head)
          .map((share) => 255 * share),
      ),
    );
  return {
    encoder: of("encoder", "self_attention"),
    decoder: of("decoder", "self_attention"),
    cross: of("decoder", "cross_attention"),
  };
}

export async function start(place) {
  const inLink = inAddress(place, "attention");
  const state = inLink.read();
  let shown = null; // what is drawn: {about, row, maps}
  const file = ({ name }, which) => `${name}/attention/${which}`;
  const recorded = {
    list: (about) => load(file(about, "index.json")),
    async read(about, row, number) {
      const bytes = await load(file(about, `${number}.bin`), "arrayBuffer");
      return cut(new Uint8Array(bytes), about, row);
    },
  };
  const texts = await sentences(
    recorded,
    { model: place.dataset.part, ...state },
    (maps, row, about) => {
      shown = { about, row, maps };
      draw();
    },
  );
  const kind = radios(
    "Attention",
    KINDS,
    state.kind,
    "cross",
    () => {
      chosen.word = 0;
      draw();
    },
  );
  const heads = el("div", {
    class: "live-heads",
    role: "group",
    "aria-label": "Layers and heads",
  });
  const jobs = el("div", {
    class: "live-jobs",
    role: "group",
    "aria-label": "Heads with a job",
  });
  const words = wordPicker((i) => {
    chosen.word = i;
    draw();
  });
  const said = el("p", { class: "live-result", role: "status" });
  const whole = scroller("All weights of the chosen head");
  const own = ownSentence("Look", look);
  const axis = (text) => el("p", { class: "live-axis" }, text);
  place.replaceChildren(
    texts.node,
    kind.node,
    axis("Heads: a row for each layer, its average last"),
    el("div", { class: "live-choose" }, heads, jobs),
    words.node,
    said,
    el(
      "details",
      { class: "live-numbers" },
      el("summary", {}, "All weights of this head, in percent"),
      whole,
    ),
    own,
  );
  const chosen = {
    layer: state.layer ?? BEGIN.layer,
    head: state.head ?? BEGIN.head,
    word: Number(state.word ?? BEGIN.word),
  };
  await texts.open(state.sentence ?? place.dataset.sentence);
  redraw(place, draw);

  /** The maps of a sentence, in a model of the reader's own. */
  async function look(model, text) {
    const found = await inside(model, text, breathe);
    const { source, target, next, said } = found.about;
    const maps = await mapsOf(found);
    chosen.word = 0;
    const row = { text, source, target, predicted: next };
    await texts.own(describe(model), row, maps);
    return `${becomes(text, said)} The maps are your model's.`;
  }

  /** The chosen layer and head, where this model has them. */
  function settle() {
    const { N, h } = shown.about;
    const layer = Number(chosen.layer ?? N);
    chosen.layer = layer >= 1 && layer <= N ? layer : N;
    const head = Number(chosen.head);
    chosen.head = head >= 1 && head <= h ? head : MEAN;
  }

  function weights(layer, head) {
    const all = shown.maps[kind.value][layer - 1];
    if (head !== MEAN) return Array.from(all[head - 1], (byte) => byte / 255);
    return Array.from(all[0], (_, i) =>
      all.reduce((sum, one) => sum + one[i] / 255, 0) / all.length,
    );
  }

  /** Queries by the token they chose; the decoder's keys are its inputs. */
  function tokens() {
    const { source, target, predicted } = shown.row;
    return {
      from: kind.value === "encoder" ? source : predicted,
      to: kind.value === "decoder" ? target : source,
    };
  }

  function draw() {
    if (!shown) return;
    settle();
    const { from, to } = tokens();
    chosen.word = Math.min(from.length - 1, Math.max(0, chosen.word || 0));
    drawJobs();
    drawHeads(from.length, to.length);
    drawWords(from, to);
    drawWhole(from, to);
    inLink.write({
      ...texts.state,
      kind: kind.value,
      layer: chosen.layer,
      head: chosen.head,
      word: chosen.word,
    });
  }

  /** Heads whose job has a name, one press away. */
  function drawJobs() {
    const list = JOBS[shown.about.name] ?? [];
    const focused = [...jobs.querySelectorAll("button")].indexOf(
      document.activeElement,
    );
    jobs.replaceChildren(
      ...list.map(([name, which, layer, head]) =>
        el(
          "button",
          {
            type: "button",
            "aria-pressed": String(
              which === kind.value &&
                layer === chosen.layer &&
                head === chosen.head,
            ),
            onclick: () => {
              kind.value = which;
              Object.assign(chosen, { layer, head });
              // The first word has none before it, the last none after it.
              chosen.word = Math.floor(tokens().from.length / 2);
              draw();
            },
          },
          `${name} ${layer}.${head}`,
        ),
      ),
    );
    if (focused >= 0) jobs.querySelectorAll("button")[focused]?.focus();
  }

  /** A small picture of each head, to choose it by. */
  function drawHeads(queryCount, keyCount) {
    const { N, h } = shown.about;
    const names = [...upTo(h).map((i) => i + 1), MEAN];
    heads.style.setProperty("--heads", names.length);
    const old = heads.querySelectorAll("button");
    const focused = [...old].indexOf(document.activeElement);
    const pictures = [];
    heads.replaceChildren(
      ...upTo(N).map((i) => i + 1).flatMap((layer) =>
        names.map((head) => {
          const canvas = el("canvas", { "aria-hidden": "true" });
          pictures.push([canvas, weights(layer, head)]);
          return el(
            "button",
            {
              type: "button",
              "aria-label":
                `layer ${layer}, ` +
                (head === MEAN ? "average of its heads" : `head ${head}`),
              "aria-pressed": String(
                layer === chosen.layer && head === chosen.head,
              ),
              onclick: () => {
                Object.assign(chosen, { layer, head });
                draw();
              },
            },
            canvas,
          );
        }),
      ),
    );
    for (const [canvas, values] of pictures)
      paint(canvas, queryCount, keyCount, 32, (query, key) =>
        ink(INK.attention, strength(values[query * keyCount + key])),
      );
    arrows(heads);
    if (focused >= 0) heads.querySelectorAll("button")[focused]?.focus();
  }

  function drawWords(from, to) {
    const all = weights(chosen.layer, chosen.head);
    const weight = (query, key) => all[query * to.length + key];
    const labels = kind.value === "encoder" ? READ : CHOSEN;
    words.show(from, to, chosen.word, weight, labels);
    const values = to.map((_, key) => weight(chosen.word, key));
    said.textContent = say(from, to, values);
  }

  function say(from, to, values) {
    const looked = kind.value === "encoder" ? "looks" : "looked";
    const head =
      chosen.head === MEAN ? "on average over the heads" : `head ${chosen.head}`;
    return (
      `${readable(from[chosen.word])} ${looked} at ${heaviest(values, to)} ` +
      `(layer ${chosen.layer}, ${head}).`
    );
  }

  function drawWhole(from, to) {
    const values = weights(chosen.layer, chosen.head);
    whole.replaceChildren(
      tabulate(
        [el("td"), ...to.map((token) => el("span", {}, readable(token)))],
        from.map((token, query) => [
          rowHead(readable(token)),
          ...to.map((_, key) => {
            const value = values[query * to.length + key];
            const style = `background-color: ${wash(INK.attention, value)}`;
            return el("td", { style }, String(Math.round(100 * value)));
          }),
        ]),
        { class: "live-weights" },
      ),
    );
  }
}
