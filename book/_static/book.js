/* For the reader: a switch for what a page shows, the glossary's words
   on hover and focus, links that open what is folded, and print with all
   folds open. */
(function () {
  "use strict";
  var root = document.documentElement;
  var KEY = "book-shows";
  var CHOICES = [
    ["all", "everything"],
    ["paper", "the paper only"],
    ["code", "the code only"],
  ];

  // The switch

  function show(choice) {
    root.dataset.shows = choice;
    var select = document.querySelector(".shows select");
    if (select) select.value = choice;
  }

  // In the bar above each page; what a page has none of is not offered.
  function build(article, bar) {
    var label = document.createElement("label");
    label.className = "shows d-print-none";
    label.append("Show ");
    var select = document.createElement("select");
    CHOICES.forEach(function (choice) {
      if (
        (choice[0] === "paper" && !article.querySelector(".paper")) ||
        (choice[0] === "code" && !article.querySelector("div.cell"))
      )
        return;
      var option = document.createElement("option");
      option.value = choice[0];
      option.textContent = choice[1];
      select.append(option);
    });
    select.addEventListener("change", function () {
      localStorage.setItem(KEY, select.value);
      show(select.value);
    });
    label.append(select);
    bar.prepend(label);
  }

  // A link opens the folds around its target, and the section's own;
  // if the switch hides it, the whole page is shown, this once.
  function reveal() {
    var id = location.hash.slice(1);
    try {
      id = decodeURIComponent(id);
    } catch (error) {
      /* a stray % in the address: looked for as it stands */
    }
    var target = id && document.getElementById(id);
    if (!target) return;
    var label = target.matches("section > span");
    var section = label ? target.parentElement : target;
    var fold = section.querySelector(":scope > details.in-depth");
    for (fold = fold || target.closest("details"); fold; ) {
      fold.open = true;
      fold = fold.parentElement.closest("details");
    }
    var gone = !target.getClientRects().length;
    if (
      gone ||
      (target.tagName === "SPAN" && /paper|code/.test(root.dataset.shows))
    )
      show("all");
    target.scrollIntoView();
  }

  function prepareSwitch() {
    var article = document.querySelector("article.bd-article");
    var bar = document.querySelector(".article-header-buttons");
    var cover = document.querySelector('[data-live="cover"]');
    if (cover || !bar || !article?.querySelector(".paper, div.cell")) {
      root.dataset.shows = "all";
      return;
    }
    build(article, bar);
    var choice = root.dataset.shows;
    var offered = document.querySelector(
      '.shows option[value="' + choice + '"]'
    );
    show(offered ? choice : "all");
  }

  // What the glossary says

  var tip, owner, timer;

  function hide() {
    clearTimeout(timer);
    if (owner) owner.removeAttribute("aria-describedby");
    if (tip) tip.hidden = true;
    owner = null;
  }

  function say(link) {
    clearTimeout(timer);
    if (link === owner) return;
    hide();
    if (!tip) {
      tip = document.createElement("div");
      tip.id = "glossary-tip";
      tip.setAttribute("role", "tooltip");
      tip.addEventListener("pointerenter", function () {
        clearTimeout(timer);
      });
      tip.addEventListener("pointerleave", later);
      document.body.append(tip);
    }
    owner = link;
    tip.textContent = link.dataset.says || link.getAttribute("aria-label");
    tip.hidden = false;
    link.setAttribute("aria-describedby", tip.id);
    put();
  }

  function put() {
    var place = owner.getBoundingClientRect();
    var left = Math.min(
      place.left,
      root.clientWidth - tip.offsetWidth - 8
    );
    var above = place.top - tip.offsetHeight - 6;
    tip.style.left = Math.max(8, left) + "px";
    tip.style.top = (above > 60 ? above : place.bottom + 6) + "px";
  }

  function later() {
    clearTimeout(timer);
    timer = setTimeout(hide, 200);
  }

  function explained(event) {
    return (
      event.target.closest &&
      event.target.closest('[data-says], [aria-roledescription="bar"]')
    );
  }

  function prepareTips() {
    document.querySelectorAll(".bd-article a[title]").forEach(function (link) {
      link.dataset.says = link.title;
      link.removeAttribute("title");
      // A formula is no name; its LaTeX, before it is set, is one.
      var name = link.textContent.replace(/\\[()]|\\text|[\\{}]/g, "");
      link.setAttribute("aria-label", name.trim());
    });
    document.addEventListener("pointerover", function (event) {
      var link = explained(event);
      if (link) say(link);
    });
    document.addEventListener("pointerout", function (event) {
      if (explained(event)) later();
    });
    document.addEventListener("focusin", function (event) {
      var link = explained(event);
      if (link) say(link);
      else hide();
    });
    document.addEventListener("keydown", function (event) {
      if (event.key === "Escape") hide();
    });
    document.addEventListener(
      "scroll",
      function () {
        // Tab scrolls to what it reaches.
        if (owner && owner === document.activeElement) put();
        else hide();
      },
      {passive: true}
    );
  }

  // What scrolls can be scrolled by keyboard: also what unfolds later,
  // and what a live page draws.
  var SCROLLS =
    ".bd-article pre, .bd-article div.math, .bd-article table," +
    " .bd-article .text_html";
  var sizes = new ResizeObserver(function (entries) {
    entries.forEach(function (entry) {
      var box = entry.target;
      if (tell) fade(box);
      var wide = box.scrollWidth > box.clientWidth + 1;
      var high = box.scrollHeight > box.clientHeight + 1;
      if (
        (wide || high) &&
        !/visible|clip/.test(getComputedStyle(box).overflowX) &&
        !box.querySelector("a, button, [tabindex]")
      )
        box.tabIndex = 0;
    });
  });

  // What goes on to the right fades there. Firefox has no timeline of
  // scrolling, which `book.css` asks for: it is told.
  var tell = !CSS.supports("animation-timeline: scroll(self inline)");

  function fade(box) {
    var left = box.scrollWidth - box.clientWidth - box.scrollLeft;
    box.classList.toggle("goes-on", left > 1);
  }

  function prepareScrolling() {
    document.querySelectorAll(SCROLLS).forEach(function (box) {
      sizes.observe(box);
    });
  }

  function prepareLive() {
    var drawn = new MutationObserver(prepareScrolling);
    document.querySelectorAll(".live").forEach(function (part) {
      drawn.observe(part, {childList: true, subtree: true});
    });
  }

  // Formulas are set a few at a time, so that a phone stays responsive:
  // those in the window and near it first, then the others.
  var FEW = 6;
  function typesetByAndBy() {
    var kinds = ".math, .tex2jax_process, .mathjax_process, .output_area";
    var left = new Set(document.querySelectorAll(kinds));
    left.forEach(function (box) {
      if (box.parentElement.closest(kinds)) left.delete(box);
    });
    var near = new Set();
    var told; // what is near, for the first time
    var known = new Promise(function (resolve) {
      told = resolve;
    });
    var seen = new IntersectionObserver(
      function (entries) {
        entries.forEach(function (entry) {
          if (entry.isIntersecting) near.add(entry.target);
          else near.delete(entry.target);
        });
        told();
      },
      {rootMargin: "50%"}
    );
    left.forEach(function (box) {
      seen.observe(box);
    });
    function take() {
      var few = Array.from(near).concat(Array.from(left));
      few = Array.from(new Set(few)).slice(0, FEW);
      few.forEach(function (box) {
        seen.unobserve(box);
        near.delete(box);
        left.delete(box);
      });
      return few;
    }
    function pause(milliseconds) {
      return new Promise(function (resolve) {
        setTimeout(resolve, milliseconds);
      });
    }
    function next() {
      if (!left.size) return Promise.resolve();
      return window.MathJax.typesetPromise(take())
        .then(function () {
          return pause(0);
        })
        .then(next);
    }
    if (!left.size) return Promise.resolve();
    // A page that nobody looks at is told nothing.
    return Promise.race([known, pause(2000)]).then(next);
  }

  // The bar above a page

  var FAR = 8; // pixels: less is a finger that trembles
  function prepareBar() {
    function now() {
      return Math.max(0, window.scrollY); // Safari bounces above the top
    }
    var last = now();
    document.addEventListener(
      "scroll",
      function () {
        var by = now() - last;
        if (Math.abs(by) < FAR) return;
        last = now();
        root.classList.toggle("reads-on", by > 0);
      },
      {passive: true}
    );
  }

  // Print

  function preparePrint() {
    var closed = [];
    window.addEventListener("beforeprint", function () {
      closed = Array.from(document.querySelectorAll("details:not([open])"));
      closed.forEach(function (fold) {
        fold.open = true;
      });
    });
    window.addEventListener("afterprint", function () {
      closed.forEach(function (fold) {
        fold.open = false;
      });
    });
  }

  // What a screen reader would stumble over, and no option changes

  function prepareNames() {
    var side = document.getElementById("pst-primary-sidebar");
    if (side) {
      side.setAttribute("role", "complementary");
      side.setAttribute("aria-label", "The book");
    }
    document.querySelectorAll(".bd-article th").forEach(function (cell) {
      if (!cell.textContent.trim()) cell.setAttribute("role", "cell");
    });
    document
      .querySelectorAll(".citation, .citation-list")
      .forEach(function (cited) {
        cited.removeAttribute("role");
      });
  }

  root.dataset.shows = localStorage.getItem(KEY) || "all";
  // MathJax reads its settings after this event and before the next one.
  document.addEventListener("readystatechange", function () {
    if (document.readyState === "interactive" && window.MathJax)
      window.MathJax.startup = {pageReady: typesetByAndBy};
  });
  document.addEventListener("DOMContentLoaded", function () {
    prepareNames();
    prepareSwitch();
    reveal();
    window.addEventListener("hashchange", reveal);
    prepareTips();
    prepareBar();
    preparePrint();
  });
  window.addEventListener("load", function () {
    prepareScrolling();
    prepareLive();
    if (tell)
      document.addEventListener(
        "scroll",
        function (event) {
          var box = event.target;
          if (box.matches && box.matches(SCROLLS)) fade(box);
        },
        {capture: true, passive: true}
      );
  });
})();
