// Python in an editor, changed and run in the page: the paper in one file,
// with buttons that change its lines and a curve of its losses, or an
// exercise.

import { el, megabytes, newId, svg } from "./common.js";

const INDENT = "    ";
const KEPT = 400; // printed lines
const [WIDE, HIGH] = [220, 120]; // of the curve
const STEP = /^step +(\d+) +loss +([\d.]+) *(.*)/;
const WORDS =
  "and as assert break class continue def del elif else except finally for " +
  "from global if import in is lambda nonlocal not or pass raise return try " +
  "while with yield None True False";
const PARTS = new RegExp(
  [
    /(?<s>"""[^]*?"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')/.source,
    /(?<c>#.*)/.source,
    `(?<k>\\b(?:${WORDS.replaceAll(" ", "|")})\\b)`,
    /(?<m>\b\d[\d_]*(?:\.\d+)?(?:e-?\d+)?)/.source,
  ].join("|"),
  "g",
);

/** Lines of Python in the classes of the site's own highlighter. */
function coloured(text) {
  const lines = [[]];
  const add = (piece, kind) =>
    piece.split("\n").forEach((part, i) => {
      if (i) lines.push([]);
      lines.at(-1).push(kind ? el("span", { class: kind }, part) : part);
    });
  let end = 0;
  for (const { 0: part, index, groups } of text.matchAll(PARTS)) {
    add(text.slice(end, index));
    add(part, Object.keys(groups).find((kind) => groups[kind]));
    end = index + part.length;
  }
  add(text.slice(end));
  return lines.map((parts) => el("span", {}, ...parts, "\n"));
}

/** The losses that a run has printed: [step, loss]. */
function curve(points) {
  const most = Math.max(...points.map(([, loss]) => loss), 1);
  const last = Math.max(...points.map(([step]) => step), 1);
  const x = (step) => 8 + ((WIDE - 16) * step) / last;
  const y = (loss) => HIGH - 20 - ((HIGH - 40) * loss) / most;
  const places = points.map(([step, loss]) => [x(step), y(loss)]);
  const words = (text, x, y, anchor) =>
    svg("text", { x, y, "text-anchor": anchor }, text);
  const [step, loss] = points.at(-1) ?? [];
  const said = points.length
    ? `The loss: ${points[0][1]} at first, ${loss} at step ${step}`
    : "The loss, when the file runs";
  return svg(
    "svg",
    { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": said },
    svg("line", { x1: 8, x2: WIDE - 8, y1: y(0), y2: y(0) }),
    svg("polyline", { points: places.join(" ") }),
    places.map(([cx, cy]) => svg("circle", { cx, cy, r: 2.5 })),
    words("loss", 8, 12, "start"),
    words(points.length ? loss.toFixed(2) : "", WIDE - 8, 12, "end"),
    words("0", 8, HIGH - 5, "start"),
    words(points.length ? `step ${step}` : "steps", WIDE - 8, HIGH - 5, "end"),
  );
}

export function start(place) {
  const { name: file, edits, ...about } = JSON.parse(
    place.querySelector("script").textContent,
  );
  if (!about.folder) return; // the page says so
  const all = Object.values(about.files).reduce((sum, bytes) => sum + bytes);
  const text = place.querySelector("pre").textContent;
  const original = edits ? text : text.trimEnd();
  let worker = null;
  let loaded = 0;
  let lines = [];
  let waiting = null; // to show them
  let began = false;
  const keys = newId("keys");

  // The editor

  const area = el("textarea", {
    class: "editor-text",
    "aria-label": file,
    "aria-describedby": keys,
    autocapitalize: "off",
    autocomplete: "off",
    spellcheck: "false",
    wrap: "off",
    oninput: () => changed(),
    onkeydown: (event) => pressed(event),
  });
  const copy = el("code", { class: "highlight", "aria-hidden": "true" });
  const editor = el("div", { class: "editor-box" }, copy, area);
  let leaving = false; // after Escape, Tab goes on to what comes next

  /** Show the text, with some lines marked, and the first of them in sight. */
  function changed(marked = [], kind) {
    copy.replaceChildren(...coloured(area.value));
    for (const number of marked)
      copy.children[number - 1]?.classList.add(kind);
    const first = copy.children[marked[0] - 1];
    const middle = (editor.clientHeight - (first?.offsetHeight ?? 0)) / 2;
    if (first) editor.scrollTop = first.offsetTop - middle;
    for (const [name, button] of Object.entries(chips))
      button.setAttribute("aria-disabled", !possible(name));
  }

  function pressed(event) {
    const tab = event.key === "Tab" && !event.shiftKey && !leaving;
    leaving = event.key === "Escape";
    if (!tab) return;
    event.preventDefault();
    document.execCommand("insertText", false, INDENT); // can be undone
  }

  // One change each

  const possible = (name) =>
    edits[name].every(([old]) => area.value.includes(old));
  const lineOf = (at) => area.value.slice(0, at).split("\n").length;
  function change(name) {
    if (!possible(name)) return;
    const marked = [];
    for (const [old, fresh] of edits[name]) {
      const line = lineOf(area.value.indexOf(old));
      marked.push(fresh ? line : line - 1); // what is gone was after it
      area.value = area.value.replaceAll(old, () => fresh);
    }
    changed(marked, "editor-changed");
    editor.scrollIntoView({ block: "nearest" }); // the page may hide it
    status.textContent = `${name}: line ${marked.join(" and ")}`;
  }
  const button = (text, onclick) =>
    el("button", { type: "button", onclick }, text);
  const chips = Object.fromEntries(
    Object.keys(edits ?? {}).map((one) => [one, button(one, () => change(one))]),
  );

  // Running it

  const run = button("Run", () => began || go());
  run.classList.add("live-main");
  const stop = button("Stop", () => began && halt("Stopped."));
  const reset = button("Reset", () => {
    area.value = original;
    changed();
    status.textContent = `${file} is as it was.`;
  });
  const status = el("p", { class: "live-result", role: "status" });
  const output = el("pre", {
    tabindex: 0,
    role: "region",
    "aria-label": `What ${file} prints`,
    "aria-live": edits ? false : "polite", // what a check says
  });
  const chart = edits && el("div", { class: "editor-curve" });

  function go() {
    lines = [];
    changed();
    show();
    running(true);
    if (!worker) {
      loaded = 0;
      const path = new URL("editor_worker.js", import.meta.url);
      worker = new Worker(path, { type: "module" });
      worker.onmessage = ({ data }) => told[data.kind](data);
      worker.onerror = () => told.lost();
    }
    worker.postMessage({ ...about, script: area.value, name: file });
  }
  function running(yes) {
    began = yes && performance.now();
    run.setAttribute("aria-disabled", yes);
    stop.setAttribute("aria-disabled", !yes);
  }
  function over(why) {
    running(false);
    show();
    status.textContent = why;
  }
  function halt(why) {
    worker.onmessage = null; // some may be under way
    worker.terminate();
    worker = null;
    over(why);
  }
  const told = {
    loaded(part) {
      loaded += part.bytes;
      const much = Math.floor(loaded / 1e6);
      status.textContent =
        loaded < all
          ? `Loading Python: ${much} of ${megabytes(all)} …`
          : "Starting Python …";
    },
    began() {
      began = performance.now();
      status.textContent = "Running …";
    },
    printed({ text }) {
      lines.push(text);
      waiting ??= requestAnimationFrame(show);
    },
    ended() {
      const seconds = Math.round((performance.now() - began) / 1000);
      over(edits ? `Ended after ${seconds} s.` : "");
    },
    failed({ trace }) {
      const own = trace.indexOf(`  File "${file}"`);
      const places = [...trace.matchAll(`File "${file}", line (\\d+)`)];
      const what = trace.trim().split("\n").at(-1);
      lines.push(...trace.slice(Math.max(own, 0)).trimEnd().split("\n"));
      if (!places.length) return halt(what); // Python itself is lost
      const number = Number(places.at(-1)[1]);
      changed([number], "editor-wrong");
      over(`Line ${number}: ${what}`);
    },
    lost: () =>
      halt("Python could not be loaded. Is there a connection? Run it again."),
  };
  function show() {
    waiting = null;
    lines = lines.slice(-KEPT);
    output.textContent = lines.join("\n");
    output.scrollTop = output.scrollHeight;
    if (!edits) return;
    const steps = lines.map((line) => line.match(STEP)).filter(Boolean);
    chart.replaceChildren(
      curve(steps.map(([, step, loss]) => [Number(step), Number(loss)])),
    );
    const [, step, , words] = steps.at(-1) ?? [];
    if (began && step)
      status.replaceChildren(`Step ${step}: `, el("b", { lang: "es" }, words));
  }
  place.replaceChildren(
    edits
      ? el(
          "div",
          {
            class: "live-buttons editor-edits",
            role: "group",
            "aria-label": "Change a line",
          },
          Object.values(chips),
        )
      : el(
          "p",
          { class: "live-axis" },
          "Put your code in the place of the three dots. The last line checks ",
          "it: press Run.",
        ),
    editor,
    el("div", { class: "live-buttons" }, run, stop, reset, status),
    el("div", { class: "editor-output" }, output, chart ?? null),
    el(
      "p",
      { class: "live-axis", id: keys },
      "Tab indents; after Escape, Tab leaves the editor. The first ",
      `Run loads Python from this site, ${megabytes(all)}: `,
      el("a", { href: "https://pyodide.org" }, "Pyodide"),
      " (",
      el("a", { href: new URL("LICENSES.txt", import.meta.url) }, "MPL 2.0"),
      ").",
    ),
  );
  area.value = original;
  changed();
  show();
  running(false);
}
