"""Some pages of the built site, as a reader uses them."""

import pytest
import tangle

CHAPTER = "book/architecture/attention.html"
DRAWN = (
    "(!window.MathJax || !MathJax.startup || !MathJax.startup.promise"
    " || MathJax.startup.promise.then(() => true))"
)


@pytest.fixture
def page(browser):
    context = browser.new_context(
        viewport={"width": 1200, "height": 900}
    )
    yield context.new_page()
    context.close()


def open_page(page, url: str) -> None:
    page.goto(url, wait_until="load")
    page.wait_for_function(DRAWN)


@pytest.mark.parametrize("name", ["index.html", CHAPTER])
def test_opened_as_a_file(page, name):
    """No server, no network, and no complaint on the console."""
    told = []

    def heard(line):
        if line.type in ("warning", "error"):
            told.append(line.text)

    page.on("console", heard)
    page.on("pageerror", lambda error: told.append(str(error)))
    page.context.set_offline(True)
    page.goto((tangle.ROOT / "_build/html" / name).as_uri())
    page.wait_for_function(DRAWN)
    page.wait_for_timeout(500)
    assert not told
    assert page.locator("article h1").is_visible()


def test_dark_mode(page, address):
    page.emulate_media(color_scheme="dark")
    page.goto(f"{address}/book/architecture/positions.html")
    colour = page.evaluate(
        "getComputedStyle(document.body).backgroundColor"
    )
    red = int(colour.split("(")[1].split(",")[0])
    assert red < 80


def test_switch_is_remembered(page, address):
    """The paper only, by keyboard; it holds on the next page."""
    open_page(page, f"{address}/{CHAPTER}")
    box, code = page.locator(".paper").first, page.locator("div.cell")
    assert box.is_visible() and code.first.is_visible()
    page.locator(".shows input:checked").focus()
    page.keyboard.press("ArrowDown")
    assert box.is_visible() and not code.first.is_visible()
    open_page(page, f"{address}/book/architecture/layers.html")
    assert page.locator(".paper").first.is_visible()
    assert not page.locator("div.cell").first.is_visible()
    page.locator(".shows input[value=code]").check()
    assert page.locator("div.cell").first.is_visible()
    assert not page.locator(".paper").first.is_visible()
    open_page(page, f"{address}/book/appendix/glossary.html")
    assert page.locator("dl.glossary").is_visible()


def test_a_link_shows_what_is_hidden(page, address):
    open_page(page, f"{address}/{CHAPTER}")
    page.locator(".shows input[value=paper]").check()
    page.evaluate("location.hash = '#attention-ex-1'")
    page.wait_for_function(
        "document.documentElement.dataset.shows == 'all'"
    )
    assert page.locator("#attention-ex-1").is_visible()


@pytest.mark.parametrize("way", ["hover", "focus"])
def test_symbols_are_explained(page, address, way):
    open_page(page, f"{address}/{CHAPTER}")
    symbol = page.locator("a.symbol").first
    symbol.scroll_into_view_if_needed()
    page.wait_for_timeout(500)  # until the scrolling has ended
    getattr(symbol, way)()
    tip = page.get_by_role("tooltip")
    tip.wait_for()
    assert tip.inner_text() == symbol.get_attribute("data-says")
    assert symbol.get_attribute("aria-describedby") == "glossary-tip"
    page.keyboard.press("Escape")
    assert not tip.is_visible()


REACHABLE = """() => {
  const shown = e => e.getClientRects().length
    && e.checkVisibility({checkVisibilityCSS: true});
  const all = document.querySelectorAll(
    "a[href], button, input, select, textarea, summary, [tabindex='0']");
  return [...all].filter(e => shown(e) && !e.disabled && e.tabIndex >= 0)
    .map((e, i) => { e.dataset.number = i; return e; })
    .filter(e => e.type != "radio" || e.checked)
    .map(e => e.dataset.number);
}"""
FOCUSED = """() => {
  const e = document.activeElement, s = getComputedStyle(e);
  const ring = parseFloat(s.outlineWidth) > 0
    && s.outlineStyle != "none" || s.boxShadow != "none";
  return [e.dataset.number, ring, e.outerHTML.slice(0, 120)];
}"""


@pytest.mark.parametrize(
    "name",
    [
        "index.html",
        "book/architecture/masks.html",
        "book/appendix/glossary.html",
        "search.html",
    ],
)
def test_keyboard_reaches_everything(page, address, name):
    open_page(page, f"{address}/{name}")
    page.wait_for_timeout(300)
    wanted = set(page.evaluate(REACHABLE))
    assert len(wanted) > 40
    reached = set()
    for _ in range(
        2 * len(wanted)
    ):  # boxes that scroll are stops too
        if wanted <= reached:
            break
        page.keyboard.press("Tab")
        number, ring, element = page.evaluate(FOCUSED)
        if number is not None:
            reached.add(number)
            assert ring, f"no visible focus on {element}"
    assert not wanted - reached


def test_an_address_that_leads_nowhere(page, address):
    answer = page.goto(f"{address}/book/there/is/no/such/page.html")
    assert answer.status == 404
    assert page.locator("article h1").inner_text() == (
        "No page is here"
    )
    assert page.evaluate("document.styleSheets.length") > 3
    page.locator("article a", has_text="The first page").click()
    page.wait_for_load_state()
    assert page.url == f"{address}/index.html"


def test_folds_are_open_in_print(page, address):
    open_page(page, f"{address}/{CHAPTER}")
    folds = "document.querySelectorAll('details:not([open])').length"
    assert page.evaluate(folds) > 3
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(folds) == 0
    fading = page.evaluate("document.getAnimations().length")
    assert not fading, "print would show what fades in as empty"
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(folds) > 3


def test_the_map_leads_to_chapters(page, address):
    open_page(page, f"{address}/index.html")
    page.locator(".book-map a", has_text="feed-forward").first.click()
    page.wait_for_load_state()
    assert page.url == f"{address}/book/architecture/layers.html"


def test_search_needs_no_server(page, address):
    open_page(page, f"{address}/{CHAPTER}")
    page.keyboard.press("Control+k")
    page.wait_for_timeout(300)
    page.keyboard.type("warmup")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?*")
    found = page.locator("#search-results li a")
    found.first.wait_for()
    assert any(
        "schedule" in link.get_attribute("href")
        for link in found.all()
    )
