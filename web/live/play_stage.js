// The picture of a decoding: where the decoder looks, what it weighs, what
// has been written.

import { el, rowHead, svg, tabulate } from "./common.js";
import { END, name, share } from "./play_words.js";

const WIDE = 64; // pixels of all ribbons together

const begins = (token) => token.startsWith("▁") || token === END;
const kinds = (...names) => ({
  class: names.filter(Boolean).join(" ") || null,
});

/** The picture; `pick(step, bar)` and `go(step)` are told what is pressed. */
export function stageOf({ pick, go }) {
  const from = el("span", { class: "play-language" });
  const to = el("span", { class: "play-language" });
  const source = el("ol", { class: "play-source", lang: "en" });
  const arcs = svg("svg", { class: "play-arcs", "aria-hidden": "true" });
  const bars = el("ul", { class: "play-bars" });
  const target = el("ol", { class: "play-target" });
  const node = el(
    "div",
    { class: "play-stage" },
    from,
    source,
    arcs,
    el("span", { class: "play-language" }, "next token"),
    bars,
    to,
    target,
  );
  let tokens = []; // of the source
  let looked = null; // at them, in the step that is drawn
  let written = null; // the line that the chips are of

  function open(sentence) {
    [from.textContent, to.textContent] = sentence.languages;
    [source.lang, target.lang] = sentence.codes;
    tokens = sentence.source;
    source.replaceChildren(
      ...tokens.map((token) =>
        el("li", kinds(token === END && "play-end"), name(token), el("small")),
      ),
    );
  }

  /** Step `to` of a line is being weighed; 0 is before the first. */
  function draw(line, to) {
    const step = line.steps[to - 1];
    looked = step?.looked;
    [...source.children].forEach((chip, i) => {
      chip.style.setProperty("--share", `${looked?.[i] ?? 0}%`);
      chip.lastChild.textContent = step ? `${looked[i]}\u00a0%` : "";
    });
    ribbons();
    bars.replaceChildren();
    if (!step) return;
    const rest = 1 - step.bars.reduce((sum, bar) => sum + bar.share, 0);
    bars.append(
      ...step.bars.map((bar, i) => row(to - 1, step, bar, i)),
      el(
        "li",
        { class: "play-rest", style: `--share: ${rest}` },
        cells("all others", rest),
      ),
    );
  }
  const cells = (token, part) => [
    el("span", { class: "play-token" }, token),
    el("span", { class: "play-track" }, el("i")),
    el("span", { class: "play-share" }, share(part)),
  ];
  function row(step, { taken, lines }, bar, i) {
    const inside = cells(name(bar.token), bar.share);
    const free = lines && "play-free"; // what it leads to can be shown
    const pressed = String(i === taken);
    const press = () => pick(step, i);
    return el(
      "li",
      {
        ...kinds(i === taken && "play-taken", free),
        style: `--share: ${bar.share}`,
      },
      lines
        ? el(
            "button",
            { type: "button", "aria-pressed": pressed, onclick: press },
            inside,
          )
        : inside,
    );
  }

  /** So many tokens of a line are written. */
  function write(line, at) {
    if (written !== line) target.replaceChildren();
    written = line;
    while (target.children.length > at) target.lastChild.remove();
    while (target.children.length < at)
      target.append(chip(line, target.children.length));
    [...target.children].forEach((one, i) =>
      one.classList.toggle("play-new", i + 1 === at),
    );
  }
  function chip(line, i) {
    const { bars: found, taken } = line.steps[i];
    const { token } = found[taken];
    const press = () => go(i + 1);
    return el(
      "li",
      kinds(
        begins(token) && "play-word",
        token === END && "play-end",
        i === line.fork && "play-picked",
      ),
      el(
        "button",
        { type: "button", title: `step ${i + 1}`, onclick: press },
        name(token),
      ),
    );
  }

  /** The token that won, from its bar to its place in the line. */
  function fly(duration) {
    const bar = bars.querySelector(".play-taken .play-token");
    const token = target.lastElementChild;
    if (!bar || !token) return;
    const [a, b] = [bar, token].map((one) => one.getBoundingClientRect());
    const way = `translate(${a.left - b.left}px, ${a.top - b.top}px)`;
    token.animate([{ transform: way }, { transform: "none" }], {
      duration,
      easing: "ease-in-out",
    });
  }

  function ribbons() {
    const box = arcs.getBoundingClientRect();
    const [width, height] = [box.width, box.height];
    arcs.setAttribute("viewBox", `0 0 ${width} ${height}`);
    arcs.replaceChildren();
    if (!looked || !width) return;
    const sum = looked.reduce((total, part) => total + part, 0);
    let x = (width - WIDE) / 2;
    [...source.children].forEach((node, i) => {
      const wide = (WIDE * looked[i]) / sum;
      const chip = node.getBoundingClientRect();
      const up = chip.left + chip.width / 2 - box.left - wide / 2;
      const half = height / 2;
      if (wide > 0.4)
        arcs.append(
          svg("path", {
            class: tokens[i] === END ? "play-end" : null,
            d:
              `M${up} 0C${up} ${half} ${x} ${half} ${x} ${height}` +
              `H${x + wide}C${x + wide} ${half} ${up + wide} ${half} ` +
              `${up + wide} 0Z`,
          }),
        );
      x += wide;
    });
  }
  new ResizeObserver(ribbons).observe(arcs);

  const focus = () => bars.querySelector(".play-taken button")?.focus();
  return { node, open, draw, write, fly, focus };
}

/** The line's steps as a table. */
export function tableOf({ source }, { steps }) {
  const head = ["step", "token", "likely", "next likeliest"];
  const heads = [...head, ...source.map((token) => `at ${name(token)}`)];
  const rows = steps.map(({ bars, taken, looked }, i) => {
    const { token, share: likely } = bars[taken];
    const second = bars[taken ? 0 : 1];
    return [
      i + 1,
      rowHead(name(token)),
      share(likely),
      `${name(second.token)} ${share(second.share)}`,
      ...looked.map((part) => `${part}\u00a0%`),
    ];
  });
  return tabulate(heads, rows);
}
