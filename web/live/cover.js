// The first page: cover a word, and the decoder may no longer look at it.

import { el, inAddress } from "./common.js";
import {
  align,
  open,
  placesOf,
  recalled,
  spoken,
  touched,
} from "./covering.js";
import { ownSentence } from "./cover_own.js";
import { stageOf } from "./cover_stage.js";
import { called } from "./model.js";

const WAIT = 2000; // milliseconds until it covers a word by itself
const SNAP = 350; // while the ribbons of a covered word let go

export function start(place) {
  const still = place.querySelector(".cover-still");
  const given = place.querySelector("script").textContent;
  const recorded = JSON.parse(given).map(open);
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const inLink = inAddress(place, "cover");

  let sentence; // what is shown: one that was recorded, or one's own
  let hidden = new Set(); // the covered words, by number
  let turn = 0; // of the reader: what is on its way may be of the last one
  let timer = 0;

  // The frame

  const stage = stageOf((number, { shiftKey }) => {
    const also = shiftKey && own.loaded(sentence); // else one is recorded
    return show(touched(hidden, number, also));
  });
  const means = el("p", { class: "cover-means" });
  const was = el("p", { class: "cover-was" });
  const said = el("p", { class: "live-spoken", role: "status" });
  const button = (text, press) =>
    el("button", { type: "button", onclick: press }, text);
  const move = button("Pause", () => (timer ? halt() : show(new Set())));
  const next = el("span", {}, "Touch another, or");
  const picks = recorded.map((one) =>
    button(one.text, () => take(one).then(wait)),
  );
  const own = ownSentence((one) => {
    stage.node.scrollIntoView({ block: "nearest" }); // the form is below it
    return take(one);
  });
  own.opener.addEventListener("click", halt);
  place.replaceChildren(
    el("p", { class: "cover-key" }, "Ribbons: where the decoder looks"),
    stage.node,
    el("div", { class: "cover-told" }, means, was),
    el("div", { class: "live-buttons cover-ways" }, next, move),
    el(
      "div",
      {
        class: "live-buttons cover-picks",
        role: "group",
        "aria-label": "Another sentence",
      },
      picks,
      own.opener,
    ),
    own.node,
    said,
    still,
  );

  // What the reader does

  /** Another sentence, with nothing covered. */
  function take(one, covered = new Set()) {
    sentence = one;
    hidden = new Set();
    picks.forEach((pick, i) =>
      pick.setAttribute("aria-pressed", String(recorded[i] === one)),
    );
    own.follow(one, recorded.includes(one));
    stage.open(one);
    return show(covered);
  }

  /** Cover these words and no others, and translate again. */
  async function show(covered) {
    const mine = ++turn;
    hidden = covered;
    halt();
    const snapped = stage.cover(hidden);
    let found = recalled(sentence, hidden);
    if (snapped && !calm.matches)
      await new Promise((done) => setTimeout(done, SNAP));
    if (mine !== turn) return;
    if (!found) {
      found = await own.write(sentence, placesOf(sentence, hidden));
      sentence.states.push(found);
      if (mine !== turn) return;
    }
    stage.draw(found);
    tell(found);
    if (turn > 1) said.textContent = spoken(sentence, found, hidden);
    keep();
  }

  // What is told

  function tell(state) {
    const first = sentence.states[0].words;
    const texts = (line) => line.map(({ text }) => text);
    const { removed, added } = align(texts(first), texts(state.words));
    means.replaceChildren(
      ...(state.means && hidden.size
        ? ["In English: ", el("q", {}, state.means)]
        : []),
    );
    const lost = first.map((word, number) => [
      word.glued ? "" : " ",
      el(removed.has(number) ? "del" : "span", {}, word.text),
    ]);
    const [, code] = sentence.codes;
    const language = called(code);
    const verdict = !hidden.size
      ? [
          "Touch an English word: the decoder, which writes the " +
            `${language || "translation"}, may no longer look at it.`,
        ]
      : removed.size || added.size
        ? [
            "Before",
            el("span", { class: "cover-in" }, language && `, in ${language}`),
            ": ",
            el("span", { lang: code }, lost.flat()),
          ]
        : ["Nothing changes: the model can do without looking at this word."];
    was.replaceChildren(...verdict);
  }
  /** What can be done next: the buttons under the picture. */
  function ways() {
    const pressed = document.activeElement === move;
    move.textContent = timer ? "Pause" : "Uncover";
    move.hidden = !timer && !hidden.size;
    if (pressed && move.hidden) stage.focus();
    next.hidden = Boolean(timer) || !hidden.size;
  }

  // The address

  function keep() {
    const number = recorded.indexOf(sentence);
    const numbers = [...hidden].map((one) => one + 1).sort((a, b) => a - b);
    inLink.write({
      ...(number >= 0
        ? { sentence: number + 1 }
        : { model: sentence.model, text: sentence.text }),
      ...(hidden.size ? { covered: numbers.join(".") } : {}),
    });
  }

  // Beginning

  function halt() {
    clearTimeout(timer);
    timer = 0;
    ways();
  }

  /** A word that changes much is covered by itself, once. */
  function wait() {
    const number = sentence.words.findIndex(
      ({ text }) => text === sentence.opens_on,
    );
    if (calm.matches || number < 0 || hidden.size) return;
    clearTimeout(timer);
    timer = setTimeout(() => show(new Set([number])), WAIT);
    ways();
  }

  const asked = inLink.read();
  const covered = (asked.covered ?? "").split(".").map((one) => one - 1);
  const known = (one) =>
    new Set(covered.filter((number) => one.words[number]?.isWord));
  const wanted = recorded[Number(asked.sentence) - 1];
  if (wanted) {
    const words = known(wanted);
    const there = recalled(wanted, words); // of two words nothing is recorded
    take(wanted, there ? words : new Set([...words].slice(0, 1)));
    place.scrollIntoView({ block: "center" });
    return;
  }
  take(recorded[0]);
  if (asked.text) {
    own
      .make(asked.text, asked.model)
      .then((one) => take(one, known(one)))
      .catch((error) => (was.textContent = error.message));
    return;
  }
  const seen = new IntersectionObserver(
    ([entry]) => {
      if (entry.intersectionRatio < 0.5 || document.hidden) return;
      seen.disconnect();
      wait();
    },
    { threshold: 0.5 },
  );
  seen.observe(stage.node);
}
