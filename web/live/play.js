// The page "Decoding": a translation that plays by itself, recorded or by
// a model of the reader's own.

import {
  choice,
  el,
  percent,
  readState,
  slider,
  svg,
  writeState,
} from "./common.js";
import { becomes, ownSentence } from "./own_model.js";

const START = 600; // milliseconds from seeing the part to its first beat
const BEAT = { look: 400, weigh: 400, win: 300, rest: 700 };
const BREAK = 2000; // between the first sentence and the second
const ALONE = 2; // so many sentences play without being asked
const SEEN = 0.6; // how much of the part has to be on the screen,
const FILLED = 0.38; // or of the screen has to be the part
const WIDE = 64; // pixels of all ribbons together
const END = "<eos>";

const name = (token) => (token === END ? "end" : token.replaceAll("▁", ""));
const begins = (token) => token.startsWith("▁") || token === END;

/** What was recorded, as steps that say what they mean. */
export function open(recorded) {
  const { tokens } = recorded;
  const step = ([flat, looked, lines]) => {
    const bars = [];
    for (let i = 0; i < flat.length; i += 2)
      bars.push({ token: tokens[flat[i]], share: flat[i + 1] / 1000 });
    return { bars, looked, taken: 0, lines };
  };
  const own = { said: recorded.said, steps: recorded.steps.map(step) };
  /** The line in which step `at` takes its bar number `bar`. */
  const line = (at, bar) => {
    const found = own.steps[at]?.lines[bar - 1];
    if (!found) return own;
    const fork = { ...own.steps[at], taken: bar };
    return {
      said: found[0].trim(),
      fork: at,
      bar,
      steps: [...own.steps.slice(0, at), fork, ...found[1].map(step)],
    };
  };
  return { ...recorded, own, line, closest: closest(own.steps) };
}

/** The same of what a model of the reader's own does. */
function opened(played) {
  const own = { said: played.said, steps: played.steps };
  const line = async (at, bar) => {
    const found = await played.line(at, bar);
    return { ...found, fork: at, bar };
  };
  return { ...played, own, line, closest: closest(own.steps) };
}

/** The step at which the second was nearest to the first. */
function closest(steps) {
  const gap = ({ bars }) => bars[0].share - bars[1].share;
  return steps.reduce(
    (best, step, at) => (gap(step) < gap(steps[best]) ? at : best),
    0,
  );
}

/** The words that a step looked at most, and what all the signs got. */
function most(source, looked) {
  const parts = looked.map((part, i) => ({ part, token: source[i] }));
  const isWord = ({ token }) => token !== END && /[\p{L}\p{N}]/u.test(token);
  const words = parts.filter(isWord).sort((a, b) => b.part - a.part);
  if (!words.length) return "";
  const listed = words
    .slice(0, 2)
    .map(({ token, part }) => `${name(token)} ${part}\u00a0%`)
    .join(" and ");
  const signs = parts.filter((one) => !isWord(one));
  const rest = signs.reduce((sum, { part }) => sum + part, 0);
  const which = signs.length > 1 ? "punctuation and end sign" : "the end sign";
  return (
    `Of the words, it looked most at ${listed}` +
    (rest > words[0].part ? `; ${which} got ${rest} %.` : ".")
  );
}
const named = (token) => (token === END ? "the end sign" : name(token));
const share = (part) => (part < 0.001 ? "<\u00a00.1\u00a0%" : percent(part));

export function start(place) {
  const recorded = place.querySelector("script").textContent;
  const sentences = JSON.parse(recorded).map(open);
  const count = sentences.length; // of those that were recorded
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  let sentence, line, at; // at: tokens written
  let playing = false;
  let alone = false; // whether nobody asked for what plays
  let seen = false;

  // Controls

  const button = (text, press) =>
    el("button", { type: "button", onclick: press }, text);
  const play = button("Play", () => (playing ? pause() : begin()));
  play.classList.add("live-main");
  const back = button("Back", () => go(at - 1));
  const ahead = button("Step", () => go(at + 1));
  const where = slider("step", { min: 0, max: 1, value: 0 }, () =>
    go(where.value),
  );
  const listed = () => sentences.map(({ text }, i) => [i, text]);
  const which = choice("sentence", listed(), 0, () =>
    turnTo(Number(which.value)),
  );
  const own = button("The model's own choice", () => pick(line.fork, 0));
  const next = button("", () => {});
  const said = el("p", { class: "play-said", role: "status" });
  const told = el("p", { class: "live-result play-told" });

  // The picture

  const from = el("span", { class: "play-language" });
  const to = el("span", { class: "play-language" });
  const source = el("ol", { class: "play-source", lang: "en" });
  const arcs = svg("svg", { class: "play-arcs", "aria-hidden": "true" });
  const bars = el("ul", { class: "play-bars" });
  const target = el("ol", { class: "play-target" });
  const numbers = el("div");
  place.replaceChildren(
    el(
      "div",
      { class: "play-controls" },
      el("div", { class: "live-buttons" }, play, back, ahead),
      where.node,
    ),
    el(
      "div",
      { class: "play-stage" },
      from,
      source,
      arcs,
      el("span", { class: "play-language" }, "next token"),
      bars,
      to,
      target,
    ),
    told,
    el("div", { class: "live-buttons play-ways" }, own, next),
    which.node,
    said,
    el(
      "details",
      { class: "live-numbers" },
      el("summary", {}, "All steps as a table"),
      numbers,
    ),
    ownSentence("Play", look),
  );

  // What plays

  let timer = 0;
  let waiting = null; // [milliseconds, what then]
  const awake = () => seen && !document.hidden;
  function later(wait, then) {
    clearTimeout(timer);
    waiting = [wait, then];
    if (awake()) timer = setTimeout(then, wait);
  }
  function wake() {
    clearTimeout(timer);
    if (waiting && awake()) timer = setTimeout(waiting[1], waiting[0]);
  }
  function running(on) {
    playing = on;
    play.textContent = on ? "Pause" : "Play";
    place.classList.toggle("play-moving", on && !calm.matches);
    if (on) return;
    clearTimeout(timer);
    waiting = null;
  }
  function begin() {
    alone = false;
    if (at === line.steps.length) show(0);
    running(true);
    later(START / 2, beat);
  }
  function pause() {
    if (!playing) return;
    alone = false;
    running(false);
    show(at);
  }
  /** A step in four phases: look, weigh, one wins, rest. */
  function beat() {
    if (at === line.steps.length) return over();
    phase("look");
    where.value = at + 1;
    draw(at + 1);
    later(BEAT.look, () => {
      phase("weigh");
      later(BEAT.weigh, () => {
        phase("win");
        at += 1;
        write();
        fly();
        later(BEAT.win, () => {
          phase("rest");
          later(BEAT.rest, beat);
        });
      });
    });
  }
  function over() {
    const number = sentences.indexOf(sentence);
    if (!alone) {
      running(false);
      show(at);
      say();
    } else if (number + 1 < ALONE) {
      tell();
      later(BREAK, () => {
        take(number + 1);
        later(START, beat);
      });
    } else {
      running(false);
      show(at);
    }
  }
  /** The token that won, from its bar to its place in the line. */
  function fly() {
    const bar = bars.querySelector(".play-taken .play-token");
    const token = target.lastElementChild;
    if (calm.matches || !bar || !token) return;
    const [a, b] = [bar, token].map((one) => one.getBoundingClientRect());
    const way = `translate(${a.left - b.left}px, ${a.top - b.top}px)`;
    token.animate([{ transform: way }, { transform: "none" }], {
      duration: BEAT.win,
      easing: "ease-in-out",
    });
  }

  // What the reader does

  function go(to) {
    running(false);
    show(Math.min(line.steps.length, Math.max(0, to)));
    say();
    keep();
  }
  async function pick(step, bar) {
    running(false);
    const asked = sentence;
    if (bar && !recordedOne()) told.textContent = "Translating …";
    const found = bar ? await sentence.line(step, bar) : sentence.own;
    if (asked !== sentence) return;
    line = found;
    measure();
    show(step + 1);
    say();
    keep();
    if (bar && !calm.matches) {
      running(true);
      later(BEAT.rest, beat);
      play.focus({ preventScroll: true });
    } else bars.querySelector(".play-taken button")?.focus();
  }
  function turnTo(number) {
    pause();
    take(number);
    if (calm.matches) go(0);
    else begin();
  }
  /** A sentence by a model of the reader's own: the last of the list. */
  async function look(model, text, note) {
    const { played } = await import("./microscope.js");
    const tell = (length) => {
      note.textContent = `Translating, ${length} tokens …`;
      return new Promise((done) => setTimeout(done));
    };
    sentences[count] = opened(await played(model, text, tell));
    which.options(listed(), count);
    turnTo(count);
    place.scrollIntoView({ block: "start" });
    return `${becomes(text, sentence.said)} All of this is your model's.`;
  }
  const recordedOne = () => sentences.indexOf(sentence) < count;
  function keep() {
    if (!recordedOne()) return; // no address has the model
    const others = Object.entries(readState()).filter(
      ([key]) => !key.startsWith("play."),
    );
    const state = {
      ...Object.fromEntries(others),
      "play.sentence": sentences.indexOf(sentence),
      "play.step": at,
    };
    if (line.bar) state["play.pick"] = `${line.fork}.${line.bar}`;
    writeState(state);
  }

  // What is shown

  function take(number) {
    sentence = sentences[number];
    line = sentence.own;
    which.value = number;
    const [english, other] = sentence.languages;
    from.textContent = english;
    to.textContent = other;
    const lang = { Spanish: "es", German: "de" }[other] ?? "";
    [source.lang, target.lang] = sentence.codes ?? ["en", lang];
    source.replaceChildren(
      ...sentence.source.map((token) =>
        el(
          "li",
          { class: token === END ? "play-end" : null },
          name(token),
          el("small", {}),
        ),
      ),
    );
    measure();
    show(0);
  }
  function measure() {
    where.limit(0, line.steps.length);
    numbers.replaceChildren(table(sentence, line));
  }
  /** Step `to`, all of it at once; 0 is before the first. */
  function show(to) {
    at = to;
    where.value = at;
    phase("still");
    draw(at);
    write();
  }
  const phase = (now) => (place.dataset.phase = now);
  function draw(to) {
    const step = line.steps[to - 1];
    [...source.children].forEach((node, i) => {
      const part = step?.looked[i] ?? 0;
      node.style.setProperty("--share", `${part}%`);
      node.lastChild.textContent = step ? `${part}\u00a0%` : "";
    });
    ribbons(step?.looked);
    const rest = step
      ? 1 - step.bars.reduce((sum, bar) => sum + bar.share, 0)
      : 0;
    bars.replaceChildren(
      ...(step
        ? [
            ...step.bars.map((bar, i) => row(to - 1, step, bar, i)),
            el(
              "li",
              { class: "play-rest", style: `--share: ${rest}` },
              el("span", { class: "play-token" }, "all others"),
              track(),
              el("span", { class: "play-share" }, share(rest)),
            ),
          ]
        : []),
    );
    tell(to);
  }
  const track = () => el("span", { class: "play-track" }, el("i"));
  function row(step, { taken, lines }, bar, i) {
    const inside = [
      el("span", { class: "play-token" }, name(bar.token)),
      track(),
      el("span", { class: "play-share" }, share(bar.share)),
    ];
    const kinds = [
      i === taken ? "play-taken" : "",
      lines ? "play-free" : "", // what it leads to can be shown
    ].filter(Boolean);
    return el(
      "li",
      { class: kinds.join(" ") || null, style: `--share: ${bar.share}` },
      lines
        ? el(
            "button",
            {
              type: "button",
              "aria-pressed": String(i === taken),
              onclick: () => pick(step, i),
            },
            inside,
          )
        : inside,
    );
  }
  let written = null; // the line that the chips are of
  function write() {
    if (written !== line) target.replaceChildren();
    written = line;
    while (target.children.length > at) target.lastChild.remove();
    while (target.children.length < at)
      target.append(chip(target.children.length));
    [...target.children].forEach((node, i) =>
      node.classList.toggle("play-new", i + 1 === at),
    );
    ways();
  }
  function chip(i) {
    const { bars: found, taken } = line.steps[i];
    const { token } = found[taken];
    const kinds = [
      begins(token) ? "play-word" : "",
      token === END ? "play-end" : "",
      i === line.fork ? "play-picked" : "",
    ].filter(Boolean);
    const press = () => go(i + 1);
    return el(
      "li",
      { class: kinds.join(" ") || null },
      el(
        "button",
        { type: "button", title: `step ${i + 1}`, onclick: press },
        name(token),
      ),
    );
  }
  function ribbons(looked) {
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
            class: sentence.source[i] === END ? "play-end" : null,
            d:
              `M${up} 0C${up} ${half} ${x} ${half} ${x} ${height}` +
              `H${x + wide}C${x + wide} ${half} ${up + wide} ${half} ` +
              `${up + wide} 0Z`,
          }),
        );
      x += wide;
    });
  }
  /** The step in a sentence, and at the end what was close. */
  function tell(to = at) {
    told.textContent = sentenceOf(to, playing && at < line.steps.length);
  }
  function sentenceOf(to, moving) {
    const step = line.steps[to - 1];
    if (!step)
      return (
        `“${sentence.text}” is about to become ` +
        `${sentence.languages[1] || "a translation"}, token by token.`
      );
    const count = line.steps.length;
    const { token, share: likely } = step.bars[step.taken];
    const chosen =
      step.taken > 0
        ? `you picked ${named(token)}, ${share(likely)}, instead of ` +
          `${named(step.bars[0].token)}, ${share(step.bars[0].share)}`
        : `${named(token)}, ${share(likely)}, is the likeliest`;
    const words =
      `Step ${to} of ${count}: ${chosen}. ` +
      most(sentence.source, step.looked);
    if (moving || to < count) return words;
    return `Done: “${line.said}” ${doubt()}`;
  }
  function doubt() {
    if (line.bar)
      return `The model's own translation was “${sentence.own.said}”`;
    const number = sentence.closest;
    const [first, second] = sentence.own.steps[number].bars;
    if (second.share < 0.05) {
      const low = Math.min(
        ...sentence.own.steps.map(({ bars: [bar] }) => bar.share),
      );
      return `No step was in doubt: each winner had at least ${share(low)}.`;
    }
    return (
      `It was closest at step ${number + 1}: ${named(first.token)} ` +
      `${share(first.share)}, ${named(second.token)} ` +
      `${share(second.share)}.`
    );
  }
  const say = () => (said.textContent = told.textContent);
  /** The buttons below: back from a rival, on to what is closest. */
  function ways() {
    const done = at === line.steps.length && !playing;
    own.hidden = !line.bar;
    const number = sentence.closest;
    const [, rival] = sentence.own.steps[number].bars;
    const follow = sentences[sentences.indexOf(sentence) + 1];
    const fork = done && !line.bar && rival.share >= 0.05;
    next.hidden = !fork && !(done && follow);
    if (fork) {
      next.textContent = `What if it had written ${named(rival.token)}?`;
      next.onclick = () => pick(number, 1);
    } else if (follow) {
      next.textContent = `Next: ${follow.text}`;
      next.onclick = () => {
        play.focus({ preventScroll: true });
        turnTo(sentences.indexOf(follow));
      };
    }
  }

  // Beginning

  const asked = readState();
  const linked = "play.step" in asked;
  const number = Number(asked["play.sentence"]);
  take(sentences[number] ? number : 0);
  if (linked) {
    const [step, bar] = (asked["play.pick"] ?? "").split(".").map(Number);
    if (bar) line = sentence.line(step, bar);
    measure();
    const wanted = Number(asked["play.step"]);
    show(Math.min(line.steps.length, Math.max(0, Math.trunc(wanted) || 0)));
    place.scrollIntoView({ block: "center" });
  } else if (calm.matches) show(line.steps.length);
  else {
    alone = true;
    running(true);
    later(START, beat);
  }
  new IntersectionObserver(
    ([entry]) => {
      const enough = Math.min(
        SEEN * entry.boundingClientRect.height,
        FILLED * innerHeight,
      );
      seen = entry.intersectionRect.height >= enough;
      wake();
    },
    { threshold: [...Array(21).keys()].map((i) => i / 20) },
  ).observe(place);
  document.addEventListener("visibilitychange", wake);
  addEventListener("beforeprint", () => {
    pause();
    show(line.steps.length);
  });
  new ResizeObserver(() => {
    const shown = playing && place.dataset.phase === "look" ? at + 1 : at;
    ribbons(line.steps[shown - 1]?.looked);
  }).observe(arcs);
}

/** The line's steps as a table. */
function table({ source }, { steps }) {
  const cell = (text) => el("td", {}, text);
  const head = ["step", "token", "likely", "next likeliest"];
  return el(
    "table",
    {},
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        [...head, ...source.map((token) => `at ${name(token)}`)].map(
          (text) => el("th", { scope: "col" }, text),
        ),
      ),
    ),
    el(
      "tbody",
      {},
      steps.map(({ bars, taken, looked }, i) => {
        const { token, share: likely } = bars[taken];
        const second = bars[taken ? 0 : 1];
        return el(
          "tr",
          {},
          cell(i + 1),
          el("th", { scope: "row" }, name(token)),
          cell(share(likely)),
          cell(`${name(second.token)} ${share(second.share)}`),
          looked.map((part) => cell(`${part}\u00a0%`)),
        );
      }),
    ),
  );
}
