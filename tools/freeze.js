// Freezes a page: formulas drawn, folds open, controls gone, and links as
// [page, anchor] pairs. Where the site has a live part, a line says so.
([name, names, site, xml, live]) => {
  const article = document.querySelector("article.bd-article");
  article.querySelectorAll(".live").forEach((e, k) => {
    const words = document.createElement("p");
    words.className = "on-the-site";
    words.textContent = live[k];
    e.replaceWith(words, ...e.querySelectorAll(
      "table, .cover-still, .broken-answers"));
  });
  article.querySelectorAll(
    "script, noscript, style, button, fieldset, form, .headerlink," +
    ".viewcode-link, .downloads, .chapter-map")
    .forEach(e => e.remove());
  // Code in the colour of most of its words needs no mark around each.
  article.querySelectorAll("pre span").forEach(e => {
    if (/^(n|nn|p|w|)$/.test(e.className) && !e.id)
      e.replaceWith(...e.childNodes);
  });
  article.normalize();
  article.querySelectorAll("details").forEach(e => {
    const box = document.createElement("div");
    const head = e.querySelector("summary");
    box.className = "fold " + e.className;
    if (e.id) box.id = e.id;
    if (head) {
      const heading = head.querySelector("h2, h3, h4");
      const words = heading || document.createElement("p");
      if (!heading) {
        words.className = "fold-title";
        const open = head.querySelector(".collapsed") || head;
        words.textContent = open.textContent.trim();
      }
      head.replaceWith(words);
    }
    box.append(...e.childNodes);
    e.replaceWith(box);
  });
  article.querySelectorAll(".fold-title").forEach(e => {
    if (/^Show the code/.test(e.textContent)) e.remove();
  });
  article.querySelectorAll("mjx-container").forEach(e => {
    const math = e.querySelector("mjx-assistive-mml math");
    if (!xml) return;
    if (e.hasAttribute("display")) math.setAttribute("display", "block");
    math.querySelectorAll("*").forEach(m => {
      [...m.attributes].forEach(a => {
        if (/^(data-|class|style)/.test(a.name)) m.removeAttribute(a.name);
      });
    });
    e.replaceWith(math);
  });
  article.querySelectorAll("svg").forEach(svg => {
    if (xml) svg.setAttribute("role", "img");
    svg.querySelectorAll("*").forEach(e => {
      [...e.attributes].forEach(a => {
        if (/^(data-|aria-|role)/.test(a.name)) e.removeAttribute(a.name);
      });
    });
  });
  const seen = new Set();
  article.querySelectorAll("[id]").forEach(e => {
    if (seen.has(e.id)) e.removeAttribute("id");
    seen.add(e.id);
  });
  const target = (page, id) => xml
    ? `${page}.xhtml${id ? "#" + id : ""}` : `#${page}--${id || "top"}`;
  article.querySelectorAll("a").forEach(a => {
    const svg = a.closest("svg");
    const raw = a.getAttribute("href") || a.getAttribute("xlink:href");
    const url = new URL(raw || "", document.baseURI);
    const page = decodeURIComponent(url.pathname).replace(site + "/", "")
      .replace(/[.]html$/, "");
    if (/^https?:/.test(url.protocol) && !/^https?:..127/.test(url.href))
      return;
    const id = decodeURIComponent(url.hash.slice(1));
    if (svg || !raw || !(page in names) || (id && page == name &&
        !document.getElementById(id))) a.replaceWith(...a.childNodes);
    else a.setAttribute("href", target(names[page], id));
  });
  const images = [];
  article.querySelectorAll("img").forEach(i => {
    const path = decodeURIComponent(new URL(i.src).pathname)
      .replace(site + "/", "");
    images.push(path);
    i.setAttribute("src", xml ? "images/" + path.replaceAll("/", "-")
      : path);
  });
  if (!xml) article.querySelectorAll("[id]").forEach(e => {
    if (!e.closest("svg") && !e.closest("mjx-container"))
      e.id = `${names[name]}--${e.id}`;
  });
  const keep = /^(id|class|href|src|alt|title|colspan|rowspan|start|lang)$/;
  article.querySelectorAll("*").forEach(e => {
    if (e.closest("svg, math, mjx-container")) return;
    [...e.attributes].forEach(a => {
      if (!keep.test(a.name)) e.removeAttribute(a.name);
    });
  });
  if (!xml) return [article.innerHTML, images];
  const text = new XMLSerializer().serializeToString(article)
    .replace(/^<article[^>]*>/, "").replace(/<.article>$/, "");
  return [text, images];
}
