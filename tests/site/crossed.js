// Words of a page's pictures that lie on words, on a line, a mark or an
// edge, or are cut: a list of [picture, words, what].
() => {
  const found = [];
  // The corners of a part of a box, as they are on the screen.
  const corners = ({ x, y, width, height }, m, wider = 0) =>
    [
      [x - wider, y],
      [x + width + wider, y],
      [x + width + wider, y + height],
      [x - wider, y + height],
    ].map(([a, b]) => [m.a * a + m.c * b + m.e, m.b * a + m.d * b + m.f]);
  // Whether a straight line can be drawn between two convex shapes.
  const apart = (one, other) =>
    [one, other].some((shape) =>
      shape.some(([ax, ay], i) => {
        const [bx, by] = shape[(i + 1) % shape.length];
        const along = (points) =>
          points.map(([x, y]) => x * (by - ay) + y * (ax - bx));
        const [u, v] = [along(one), along(other)];
        return (
          Math.max(...u) <= Math.min(...v) || Math.max(...v) <= Math.min(...u)
        );
      }),
    );
  const inside = ({ x, y }, box) =>
    x >= box.x &&
    x <= box.x + box.width &&
    y >= box.y &&
    y <= box.y + box.height;
  const named = (mark, what) =>
    document.getElementById(mark.getAttribute(what).slice(5, -1));

  function look(svg) {
    const frame = svg.getBoundingClientRect();
    const holder = svg.closest("[aria-label]");
    const name = holder ? holder.getAttribute("aria-label").slice(0, 40) : "";
    const tell = (word, what) => found.push([name, word.text, what]);

    const words = [...svg.querySelectorAll("text")]
      .filter((text) => text.textContent.trim())
      .map((text) => {
        const box = text.getBBox();
        const size = parseFloat(getComputedStyle(text).fontSize);
        const middle = box.y + box.height / 2;
        const m = text.getScreenCTM();
        const high = (part) => ({
          x: box.x,
          width: box.width,
          y: middle - (part * size) / 2,
          height: part * size,
        });
        return {
          text: text.textContent,
          size,
          ink: corners(high(0.6), m), // about as high as its capitals
          room: corners(high(0.6), m, 1.5),
          whole: corners(high(1), m),
        };
      });

    words.forEach((word, i) => {
      const out = ([x, y]) =>
        x < frame.left - 1 ||
        x > frame.right + 1 ||
        y < frame.top - 1 ||
        y > frame.bottom + 1;
      if (word.whole.some(out)) tell(word, "is cut");
      for (const other of words.slice(i + 1)) {
        const alike = word.size === other.size; // else it may be an index
        const near = alike
          ? !apart(word.room, other.room)
          : !apart(word.ink, other.ink);
        if (near) tell(word, other.text);
      }
    });

    const drawn = (selector) =>
      [...svg.querySelectorAll(selector)].filter(
        (e) => !e.closest("mask, clipPath, defs, marker"),
      );
    for (const mark of drawn("use, circle")) {
      if (getComputedStyle(mark).fill === "none") continue;
      const box = mark.getBBox();
      if (box.width + box.height < 2) continue;
      const shape = corners(box, mark.getScreenCTM());
      for (const word of words)
        if (!apart(word.ink, shape)) tell(word, "a mark");
    }
    for (const line of drawn("path, line, polyline, rect, circle")) {
      const style = getComputedStyle(line);
      if (style.stroke === "none" || !parseFloat(style.strokeOpacity)) continue;
      if (!parseFloat(style.strokeWidth)) continue;
      const m = line.getScreenCTM();
      const { x, y, width, height } = line.getBBox();
      const area = { x, y: y - 0.01, width, height: height + 0.02 };
      const near = words.filter(
        (word) => !apart(word.ink, corners(area, m, 0.01)),
      );
      if (!near.length) continue;
      const masked = line.closest("[mask]");
      const holes = masked
        ? [...named(masked, "mask").querySelectorAll("[fill=black]")].map((e) =>
            e.getBBox(),
          )
        : [];
      const clipped = line.closest("[clip-path]");
      const bounds =
        clipped && named(clipped, "clip-path").firstElementChild.getBBox();
      const length = line.getTotalLength();
      const hit = new Set();
      for (let at = 0; at <= length; at += Math.max(0.7, length / 3000)) {
        const point = line.getPointAtLength(at);
        if (holes.some((hole) => inside(point, hole))) continue;
        if (bounds && !inside(point, bounds)) continue;
        const dot = corners(
          { x: point.x, y: point.y, width: 0.2, height: 0.2 },
          m,
        );
        for (const word of near) if (!apart(word.ink, dot)) hit.add(word);
      }
      for (const word of hit) tell(word, "a line");
    }
  }

  for (const fold of document.querySelectorAll("details")) fold.open = true;
  for (const svg of document.querySelectorAll("svg.picture"))
    if (svg.checkVisibility()) look(svg);
  return found;
}
