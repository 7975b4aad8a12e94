// The page "Decoding": a translation that plays by itself, recorded or by
// a model of the reader's own.

import { breathe, choice, el, inAddress, slider, upTo } from "./common.js";
import { becomes, ownSentence } from "./own_model.js";
import { stageOf, tableOf } from "./play_stage.js";
import { name, open, opened, rivalOf, told } from "./play_words.js";
import { played } from "./played.js";

const START = 600; // milliseconds from seeing the part to its first beat
const BEAT = { look: 400, weigh: 400, win: 300, rest: 700 };
const BREAK = 2000; // between the first sentence and the second
const ALONE = 2; // so many sentences play without being asked
const SEEN = 0.6; // how much of the part has to be on the screen,
const FILLED = 0.38; // or of the screen has to be the part

/** Runs what comes next after a while, but only while the part is seen. */
function clock(place) {
  let timer = 0;
  let waiting = null; // [milliseconds, what then]
  let seen = false;
  function wake() {
    clearTimeout(timer);
    if (waiting && seen && !document.hidden)
      timer = setTimeout(waiting[1], waiting[0]);
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
    { threshold: upTo(21).map((i) => i / 20) },
  ).observe(place);
  document.addEventListener("visibilitychange", wake);
  return {
    later(wait, then) {
      waiting = [wait, then];
      wake();
    },
    stop() {
      clearTimeout(timer);
      waiting = null;
    },
  };
}

export function start(place) {
  const recorded = place.querySelector("script").textContent;
  const sentences = JSON.parse(recorded).map(open);
  const count = sentences.length; // of those that were recorded
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  let sentence, line, at; // at: tokens written
  let playing = false;
  let alone = false; // whether nobody asked for what plays
  let turn = 0; // only the line that was asked for last is shown
  const inLink = inAddress(place, "play");

  // The frame

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
  const words = el("p", { class: "live-result play-told" });
  const stage = stageOf({ pick, go });
  const numbers = el("div");
  place.replaceChildren(
    el(
      "div",
      { class: "play-controls" },
      el("div", { class: "live-buttons" }, play, back, ahead),
      where.node,
    ),
    stage.node,
    words,
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

  const { later, stop } = clock(place);
  function running(on) {
    playing = on;
    play.textContent = on ? "Pause" : "Play";
    place.classList.toggle("play-moving", on && !calm.matches);
    if (!on) stop();
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
        if (!calm.matches) stage.fly(BEAT.win);
        later(BEAT.win, () => {
          phase("rest");
          later(BEAT.rest, beat);
        });
      });
    });
  }
  function over() {
    const number = sentences.indexOf(sentence);
    if (alone && number + 1 < ALONE) {
      tell();
      later(BREAK, () => {
        take(number + 1);
        later(START, beat);
      });
      return;
    }
    running(false);
    show(at);
    if (!alone) say();
  }

  // What the reader does

  function go(to) {
    turn++;
    alone = false;
    running(false);
    show(Math.min(line.steps.length, Math.max(0, to)));
    say();
    keep();
  }
  async function pick(step, bar) {
    const mine = ++turn;
    alone = false;
    running(false);
    if (bar && !recordedOne()) words.textContent = "Translating …";
    const found = bar ? await sentence.line(step, bar) : sentence.own;
    if (mine !== turn) return;
    line = found;
    measure();
    show(step + 1);
    say();
    keep();
    if (bar && !calm.matches) {
      running(true);
      later(BEAT.rest, beat);
      play.focus({ preventScroll: true });
    } else stage.focus();
  }
  function turnTo(number) {
    pause();
    take(number);
    keep();
    if (calm.matches) go(0);
    else begin();
  }
  /** A sentence by a model of the reader's own: the last of the list. */
  async function look(model, text, note) {
    const tell = (length) => {
      note.textContent = `Translating, ${length} tokens …`;
      return breathe();
    };
    sentences[count] = opened(await played(model, text, tell));
    which.options(listed(), count);
    turnTo(count);
    place.scrollIntoView({ block: "start" });
    return `${becomes(text, sentence.own.said)} All of this is your model's.`;
  }
  const recordedOne = () => sentences.indexOf(sentence) < count;
  function keep() {
    if (!recordedOne()) return; // no address has the model
    inLink.write({
      sentence: sentences.indexOf(sentence),
      step: at,
      ...(line.bar ? { pick: `${line.fork}.${line.bar}` } : {}),
    });
  }

  // What is shown

  function take(number) {
    turn++;
    sentence = sentences[number];
    line = sentence.own;
    which.value = number;
    stage.open(sentence);
    measure();
    show(0);
  }
  function measure() {
    where.limit(0, line.steps.length);
    numbers.replaceChildren(tableOf(sentence, line));
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
    stage.draw(line, to);
    tell(to);
  }
  function write() {
    stage.write(line, at);
    ways();
  }
  function tell(to = at) {
    const moving = playing && at < line.steps.length;
    words.textContent = told(sentence, line, to, moving);
  }
  const say = () => (said.textContent = words.textContent);
  /** The buttons below: back from a rival, on to what is closest. */
  function ways() {
    const done = at === line.steps.length && !playing;
    const rival = done && !line.bar && rivalOf(sentence);
    const follow = sentences[sentences.indexOf(sentence) + 1];
    own.hidden = !line.bar;
    next.hidden = !rival && !(done && follow);
    if (rival) {
      next.textContent = `What if it had written ${name(rival.token)}?`;
      next.onclick = () => pick(sentence.closest, 1);
    } else if (follow) {
      next.textContent = `Next: ${follow.text}`;
      next.onclick = () => {
        play.focus({ preventScroll: true });
        turnTo(sentences.indexOf(follow));
      };
    }
  }

  // Beginning

  const asked = inLink.read();
  const number = Number(asked.sentence);
  take(sentences[number] ? number : 0);
  if ("step" in asked) {
    const [step, bar] = (asked.pick ?? "").split(".").map(Number);
    if (bar) line = sentence.line(step, bar);
    measure();
    const wanted = Math.trunc(Number(asked.step)) || 0;
    show(Math.min(line.steps.length, Math.max(0, wanted)));
    place.scrollIntoView({ block: "center" });
  } else if (calm.matches) show(line.steps.length);
  else {
    alone = true;
    running(true);
    later(START, beat);
  }
  addEventListener("beforeprint", () => {
    pause();
    show(line.steps.length);
  });
}
