// The loss of a run, step by step, as a curve.

import { svg } from "./common.js";
import { STEPS, shortened } from "./train_runs.js";

const MARKED = [20, 70, 100, 110, 130, 200, 400, 800]; // written on the curve
const LETTERS = 24; // of what is written there
const TOP = 7; // of the loss
const MARGIN = { left: 28, right: 8, top: 8, bottom: 34 };

/** The chart, with a run that was recorded as a faint line.
 *
 * `point(at)` is told which moment is pointed at, or null.
 */
export function chartOf({ least, moments: ghost }, point) {
  let scale = null; // where a step and a loss are
  let moments = [];
  const node = svg("svg", {
    class: "train-chart",
    role: "img",
    onpointermove: (event) => point(under(event)),
    onpointerleave: () => point(null),
  });
  const line = ([x1, y1], [x2, y2], kind) =>
    svg("line", { class: kind, x1, y1, x2, y2 });
  const words = (text, x, y, anchor) =>
    svg("text", { x, y, "text-anchor": anchor }, text);

  /** Moment `to` of a run; `own`: made here, and those of `past` before. */
  function draw(run, to, own, past) {
    moments = run.moments;
    const box = node.getBoundingClientRect();
    if (!box.width) return;
    const { left, right, top, bottom } = MARGIN;
    const [wide, high] = [box.width, box.height];
    const x = (step) => left + ((wide - left - right) * step) / STEPS;
    const y = (loss) =>
      top + (high - top - bottom) * (1 - Math.min(TOP, loss) / TOP);
    scale = { x, left: box.left };
    const drawn = (all, kind) =>
      svg("polyline", {
        class: kind,
        points: all
          .filter(({ loss }) => loss !== null)
          .map((one) => `${x(one.step)},${y(one.loss)}`)
          .join(" "),
      });
    const { step, loss } = moments[to];
    const edge = wide - right;
    node.setAttribute("viewBox", `0 0 ${wide} ${high}`);
    node.setAttribute(
      "aria-label",
      `The loss over ${STEPS} steps` +
        (loss === null
          ? ", which have not begun."
          : `: ${loss.toFixed(2)} at step ${step}; the least is ` +
            `${least.toFixed(2)}.`),
    );
    const shown = own ? moments : moments.slice(0, to + 1);
    node.replaceChildren(
      ...[0, 2, 4, 6].flatMap((tick) => [
        line([left, y(tick)], [edge, y(tick)], "train-axis"),
        words(tick, left - 6, y(tick) + 4, "end"),
      ]),
      ...[0, 200, 400, 600, 800].map((tick) =>
        words(tick, x(tick), high - bottom + 16, tick ? "middle" : "start"),
      ),
      words("step", x(STEPS / 2), high - 4, "middle"),
      words("loss per word", edge - 2, top + 6, "end"),
      line([left, y(least)], [edge, y(least)], "train-least"),
      words(`floor ${least.toFixed(2)}`, edge - 2, y(least) + 15, "end"),
      line([x(step), y(0)], [x(step), y(TOP)], "train-cursor"),
      ...past.map((one) => drawn(one.moments, "train-past")),
      drawn(ghost, "train-curve train-recorded"),
      drawn(shown, "train-curve"),
      ...written(shown, x, y, edge),
      loss === null ? "" : svg("circle", { cx: x(step), cy: y(loss), r: 4 }),
    );
  }

  /** The moment that is nearest to the pointer. */
  function under(event) {
    if (!scale) return null;
    const far = (one) =>
      Math.abs(scale.x(one.step) - (event.clientX - scale.left));
    return moments.reduce(
      (best, one, i) => (far(one) < far(moments[best]) ? i : best),
      0,
    );
  }
  return { node, draw };
}

/** What it wrote for "I like trees", where it wrote it. */
function written(moments, x, y, edge) {
  const found = [];
  let [below, last] = [-Infinity, null];
  for (const { step, loss, said } of moments) {
    if (!MARKED.includes(step) || !said || said === last) continue;
    const whole = shortened(said).replace(/ \(.*/, "");
    const text =
      whole.length > LETTERS ? `${whole.slice(0, LETTERS)} …` : whole;
    const [a, b] = [x(step), y(loss)];
    const row = Math.max(b - 6, below + 16);
    if (a + 7 * text.length > edge) continue;
    below = row;
    last = said;
    const place = { class: "train-written", lang: "es", x: a + 7, y: row };
    found.push(
      svg("circle", { class: "train-mark", cx: a, cy: b, r: 2.5 }),
      svg("text", place, text),
    );
  }
  return found;
}
