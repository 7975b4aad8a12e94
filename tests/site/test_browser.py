"""Every page of the built site in a real browser, without a network.

Each page is opened once, and all that is asked of every page is measured
then: what it requests, what it weighs, whether it fits a phone, and
axe-core's rules, by day and by night.
"""

import asyncio
import functools
import gzip
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote, urlsplit

import pytest
from parts import AXE, LOOK, PAGES, SITE

MODULES = [name for name in PAGES if name.startswith("_modules/transformer_")]
PAGES = [  # one template, and code alone: one of these speaks for all
    name for name in PAGES if name not in MODULES[1:]
]
MOST = 1_000_000  # bytes of a first visit, before a live part is opened
READY = """() => {
  const count = what => document.querySelectorAll(what).length;
  const ready = !window.MathJax || !MathJax.startup
    || !MathJax.startup.promise || MathJax.startup.promise;
  return Promise.resolve(ready).then(() =>
    count(".live") <= count(".live-result, .live-missing[role=status]"));
}"""
COUNTS = """() => ({
  formulas: document.querySelectorAll(".math").length,
  drawn: document.querySelectorAll(".math mjx-container").length,
  raw: document.querySelectorAll("mjx-merror").length,
})"""
# Opens what is folded; keeps of each kind of code token one, of the
# formulas four, of the library's definitions ten, of the ledger's rows
# twenty: what is a hundred times on a page looks each time the same, and
# looking at each takes minutes.
THIN = """() => {
  document.querySelectorAll("details").forEach(d => { d.open = true; });
  const seen = new Set();
  document.querySelectorAll("pre span, .sig span").forEach(e => {
    const kind = e.className + e.parentElement.className;
    if (e.children.length) return;
    if (seen.has(kind)) e.replaceWith(e.textContent);
    seen.add(kind);
  });
  const rest = (what, number) =>
    [...document.querySelectorAll(what)].slice(number);
  rest("mjx-container", 4).forEach(f => f.replaceWith("formula"));
  rest("article dl.py > :is(dt, dd)", 20).forEach(d => d.remove());
  rest(".ledger-row", 20).forEach(row => row.remove());
  rest("dl.py:empty", 0).forEach(d => d.remove());
  const still = document.createElement("style");
  still.textContent = "*, ::before, ::after {"
    + " transition: none !important; animation: none !important; }";
  document.head.append(still);
}"""
# Leaves one of each kind of element, by the classes of all around it: they
# decide on its colours. Kinds of earlier pages go too; the new ones are told.
KINDS = """earlier => {
  const kind = e => e.tagName + ["class", "style", "fill", "role"].map(
    name => e.getAttribute(name)).join();
  const seen = new Set(earlier), found = [];
  const hash = text => [...text].reduce(
    (sum, sign) => (31 * sum + sign.charCodeAt(0)) | 0, 0);
  const walk = (e, path) => {
    const own = path + ">" + kind(e);
    [...e.children].forEach(child => walk(child, own));
    if (e.children.length || own.includes(">DEFS")) return;
    const name = hash(own + !e.textContent.trim());
    if (seen.has(name)) e.remove();
    else found.push(name);
    seen.add(name);
  };
  walk(document.body, "");
  return found;
}"""
COLOURS = ["color-contrast", "link-in-text-block"]
NO_COLOURS = {"rules": {rule: {"enabled": False} for rule in COLOURS}}


async def translate(page) -> None:
    """Use the page that translates, so that its answer is looked at."""
    field = page.get_by_label("A sentence in English")
    await field.fill("I like trees")
    await field.press("Enter")
    answer = page.locator(".live-result", has_text=" s for ")
    await answer.first.wait_for(timeout=60_000)


async def look(page, seen: set[int]) -> dict[str, list[str]]:
    """What axe-core finds, the colours by day and by night.

    `seen` are the kinds of elements whose colours need no second look.
    """
    await page.evaluate(THIN)
    await page.evaluate(AXE.read_text("utf-8"))
    found = {"rules": await page.evaluate(LOOK, ["light", None, NO_COLOURS])}
    seen.update(await page.evaluate(KINDS, list(seen)))
    only = {"runOnly": COLOURS}
    for theme in ["light", "dark"]:
        found[theme] = await page.evaluate(LOOK, [theme, None, only])
    return found


async def examine(context, address: str, name: str, seen) -> dict:
    """All that is asked of every page."""
    page = await context.new_page()
    errors, asked = [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console",
        lambda line: line.type == "error" and errors.append(line.text),
    )
    page.on("request", lambda request: asked.append(request.url))
    await page.goto(f"{address}/{name}", wait_until="load")
    await page.wait_for_function(READY)
    found = await page.evaluate(COUNTS)
    found |= {"first": list(asked), "asked": asked}
    if name == "index.html":
        await translate(page)
    await page.set_viewport_size({"width": 360, "height": 800})
    wide = "document.documentElement.scrollWidth"
    found["width"] = await page.evaluate(wide)
    await page.set_viewport_size({"width": 1200, "height": 900})
    # Of the whole page. `look` takes it apart, and a script of the theme's
    # that then runs late doesn't find its header.
    found["errors"] = list(errors)
    found |= await look(page, seen)
    await page.close()
    return found


async def examine_all(chromium: dict, address: str) -> dict[str, dict]:
    """Two pages at a time, in one browser."""
    from playwright.async_api import async_playwright

    found, seen, waiting = {}, set(), list(reversed(PAGES))
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(**chromium)
        context = await browser.new_context(
            viewport={"width": 1200, "height": 900}, color_scheme="light"
        )

        async def work():
            while waiting:
                name = waiting.pop()
                try:
                    found[name] = await examine(context, address, name, seen)
                except Exception as error:
                    found[name] = {"failed": repr(error)}

        await asyncio.gather(work(), work())
        await browser.close()
    return found


@pytest.fixture(scope="module")
def pages(chromium, address):
    with ThreadPoolExecutor(1) as pool:  # a thread has its own loop
        coroutine = examine_all(chromium, address)
        return pool.submit(asyncio.run, coroutine).result()


@pytest.fixture
def found(pages, name):
    assert "failed" not in pages[name], pages[name]
    return pages[name]


@pytest.mark.parametrize("name", PAGES)
def test_page_works_offline(name, found, address):
    foreign = [
        url
        for url in found["asked"]
        if not url.startswith((address, "data:", "blob:"))
    ]
    assert not found["errors"]
    assert not foreign
    # its icons are few, and in a style sheet
    assert not [url for url in found["asked"] if "fontawesome" in url]
    assert found["drawn"] >= found["formulas"] and not found["raw"]


@pytest.mark.parametrize("name", PAGES)
def test_page_fits_a_phone(name, found):
    assert found["width"] <= 360


@pytest.mark.parametrize("name", PAGES)
def test_page_is_accessible(name, found):
    """All of axe-core's rules; those of colours by day and by night."""
    for part in ["rules", "light", "dark"]:
        assert not found[part], "\n".join([part, *found[part][:5]])


@functools.cache
def weight(path: str) -> int:
    """Bytes of a file of the site, gzipped as a server sends it."""
    return len(gzip.compress((SITE / path).read_bytes(), 6))


def files(found: dict, address: str) -> set[str]:
    own = [url for url in found["first"] if url.startswith(address)]
    return {unquote(urlsplit(url).path).lstrip("/") for url in own}


@pytest.mark.parametrize("name", PAGES)
def test_page_is_light(name, found, address):
    """A first visit on a phone's connection takes seconds."""
    size = sum(map(weight, files(found, address)))
    assert size <= MOST, f"{size:,} bytes"
