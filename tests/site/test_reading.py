"""Some pages of the built site, as a reader uses them."""

import pytest
from parts import SITE

CHAPTER = "book/architecture/attention.html"
LAYERS = "book/architecture/layers.html"
DRAWN = (
    "(!window.MathJax || !MathJax.startup || !MathJax.startup.promise"
    " || MathJax.startup.promise.then(() => true))"
)


@pytest.fixture
def read(visit):
    """Open a page whose formulas are drawn."""

    def open_page(name, **settings):
        page = visit(name, **settings)
        page.wait_for_function(DRAWN)
        return page

    return open_page


def follow(page, name: str) -> None:
    """To another page, as a link leads there."""
    page.evaluate("url => { location.href = url }", f"/{name}")
    page.wait_for_url(f"**/{name}")
    page.wait_for_function(DRAWN)


@pytest.mark.parametrize("name", ["index.html", CHAPTER])
def test_opened_as_a_file(browser, name):
    """No server, no network, and no complaint on the console."""
    page, told = browser.new_page(), []

    def heard(line):
        if line.type in ("warning", "error"):
            told.append(line.text)

    page.on("console", heard)
    page.on("pageerror", lambda error: told.append(str(error)))
    page.context.set_offline(True)
    page.goto((SITE / name).as_uri())
    page.wait_for_function(DRAWN)
    page.wait_for_timeout(500)
    assert not told
    assert page.locator("article h1").is_visible()
    page.close()


def test_switch_is_remembered(read):
    """The paper only, by keyboard; it holds on the next page."""
    page = read(CHAPTER)
    box, code = page.locator(".paper").first, page.locator("div.cell").first
    assert box.is_visible() and code.is_visible()
    page.locator(".shows select").focus()
    page.keyboard.press("ArrowDown")
    assert box.is_visible() and not code.is_visible()
    follow(page, LAYERS)
    assert box.is_visible() and not code.is_visible()
    page.locator(".shows select").select_option("code")
    assert code.is_visible() and not box.is_visible()
    follow(page, "book/appendix/glossary.html")
    assert page.locator("dl.glossary").is_visible()


INSIDE = {"details.in-depth": "> p", "details.check": "pre"}


def test_a_new_visitor_sees_folds(read):
    """Checks, solutions and "In depth" are there, and closed."""
    page = read(CHAPTER)
    assert page.locator(".shows select").input_value() == "all"
    for fold, inside in [*INSIDE.items(), (".solution", "pre")]:
        first = page.locator(fold).first
        assert first.is_visible()
        assert not first.locator(inside).first.is_visible()
    page.locator("details.in-depth summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("details.in-depth > p").first.is_visible()


def test_without_scripts(visit, address):
    """All is folded that the scripts fold; live parts are still."""
    page = visit(CHAPTER, java_script_enabled=False)
    for fold, inside in INSIDE.items():
        first = page.locator(fold).first
        assert first.locator("> summary").is_visible()
        assert not first.locator(inside).first.is_visible()
    assert not page.locator(".shows").count()
    assert page.locator("a.symbol[title]").count()
    page.goto(f"{address}/book/architecture/positions.html")
    assert page.locator(".tag_still svg").is_visible()


CUT = """selector => {
  for (const fold of document.querySelectorAll("details")) fold.open = true;
  return [...document.querySelectorAll(selector)]
    .filter(box => box.scrollWidth > box.clientWidth)
    .map(box => box.textContent.slice(0, 60));
}"""


PRINTED = ["results/attention_maps", "appendix/conformance"]


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("name", PRINTED)
def test_what_is_printed_is_read_to_its_end(read, name, width):
    """What is wider than code wraps; the rest is cut nowhere but on a phone,
    where it scrolls."""
    page = read(f"book/{name}.html", width=width)
    assert page.locator(".cell_output pre").count() > 2
    kind = ".output" if width > 600 else ".output:not(.columns)"
    assert not page.evaluate(CUT, f".cell_output {kind} pre")


LINES = """() => [...document.querySelectorAll(".output.columns pre")]
  .filter(box => box.checkVisibility())
  .map(box => {
    const look = getComputedStyle(box);
    const high = box.clientHeight - parseFloat(look.paddingTop)
      - parseFloat(look.paddingBottom);
    const lines = box.textContent.replace(/\\n$/, "").split("\\n").length;
    const reached = box.scrollWidth <= box.clientWidth + 1
      || box.tabIndex == 0;
    return [high / parseFloat(look.lineHeight) / lines, reached];
  })"""


def test_columns_stay_columns_on_a_phone(read):
    """No line that is printed wraps, and what scrolls does so by keyboard."""
    page = read("book/start/one_sitting.html", width=390)
    found = page.evaluate(LINES)
    assert len(found) > 10
    assert all(0.95 < lines < 1.15 and reached for lines, reached in found)


@pytest.mark.parametrize("name", ["architecture/layers", "results/rivals"])
def test_no_formula_is_cut_on_a_phone(read, name):
    page = read(f"book/{name}.html", width=390)
    page.evaluate("""async () => {
      for (const formula of document.querySelectorAll("div.math")) {
        formula.scrollIntoView(); // it is drawn when it is seen
        await new Promise((done) => setTimeout(done, 100));
      }
    }""")
    page.wait_for_selector("div.math mjx-container")
    assert not page.evaluate(CUT, "div.math mjx-container")


def test_a_bar_says_what_it_is(read):
    """Altair's bars, when they are pointed at, in the page's own ink."""
    page = read("book/results/attention_maps.html", color_scheme="dark")
    ink = page.evaluate("getComputedStyle(document.body).color")
    chart = page.locator("svg.picture:has([aria-roledescription=bar])")
    fills = chart.locator("text").evaluate_all(
        "all => all.map(text => getComputedStyle(text).fill)"
    )
    assert {*fills} == {ink}
    bar = chart.locator('path[aria-label*="where am I?"]')
    bar.scroll_into_view_if_needed()
    page.wait_for_timeout(500)  # until the scrolling has ended
    bar.hover()
    tip = page.get_by_role("tooltip")
    tip.wait_for()
    assert tip.inner_text() == bar.get_attribute("aria-label")
    assert "nats per token" in tip.inner_text()


BLOCKED = """for (const name of ["localStorage", "sessionStorage"])
  Object.defineProperty(window, name, { configurable: true, get() {
    throw new DOMException("access is denied", "SecurityError");
  }});"""


def test_it_works_where_nothing_is_kept(visit):
    """The search, its keys, the colours and the switch, without storage."""

    def block(page):
        page.add_init_script(BLOCKED)

    page = visit("search.html?q=mask", prepare=block)
    page.locator("#search-results li").first.wait_for()
    page = visit(CHAPTER, prepare=block)
    page.keyboard.press("Control+k")
    page.locator(
        "#pst-search-dialog, .search-button__search-container"
    ).first.wait_for()
    page.keyboard.press("Escape")
    before = page.evaluate("document.documentElement.dataset.mode")
    page.locator(".theme-switch-button:visible").first.click()
    assert page.evaluate("document.documentElement.dataset.mode") != before
    page.locator(".shows select").select_option("code")
    assert not page.locator(".paper").first.is_visible()


@pytest.mark.parametrize("name", ["index.html", CHAPTER])
def test_nothing_is_sideways_at_320(read, name):
    """1,280 pixels at four times the size of letters (WCAG 1.4.10)."""
    page = read(name, width=320)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    bar = ".header-article a, .header-article button, .header-article select"
    for control in page.locator(bar).all():
        if control.is_visible():
            box = control.bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= 320


def test_the_bar_goes_while_one_reads_on_a_phone(read):
    """It comes when one turns back, or when the focus is in it."""
    page = read(CHAPTER, width=390)
    page.add_style_tag(content="* { transition: none !important }")
    bar = page.locator(".bd-header-article")

    def bottom(by):
        page.evaluate("by => scrollBy({top: by, behavior: 'instant'})", by)
        page.wait_for_timeout(200)
        box = bar.bounding_box()
        return box["y"] + box["height"]

    assert bottom(0) > 0
    assert bottom(900) <= 0
    assert bottom(-60) > 40
    assert bottom(60) <= 0
    bar.locator("button").first.focus()
    assert bottom(60) > 40


def test_a_link_shows_what_is_hidden(read):
    page = read(CHAPTER)
    page.locator(".shows select").select_option("paper")
    page.evaluate("location.hash = '#attention-ex-1'")
    page.wait_for_function("document.documentElement.dataset.shows == 'all'")
    assert page.locator("#attention-ex-1").is_visible()


@pytest.mark.parametrize("way", ["hover", "focus"])
def test_symbols_are_explained(read, way):
    page = read(CHAPTER)
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


def test_tab_to_a_term_below_the_window_explains_it(read):
    """What the browser then scrolls doesn't hide it."""
    page = read(CHAPTER)
    symbol = page.locator("a.symbol:visible").last
    symbol.evaluate("symbol => symbol.focus()")
    page.wait_for_timeout(500)
    tip = page.get_by_role("tooltip")
    assert tip.is_visible()
    boxes = tip.bounding_box(), symbol.bounding_box()
    assert abs(boxes[0]["y"] - boxes[1]["y"]) < 200


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
  const e = document.activeElement;
  // an editor's ring is around its box
  const s = getComputedStyle(e.closest(".editor-box") ?? e);
  const ring = parseFloat(s.outlineWidth) > 0
    && s.outlineStyle != "none" || s.boxShadow != "none";
  return [e.dataset.number, ring, e.outerHTML.slice(0, 120)];
}"""


@pytest.mark.parametrize(
    "name",
    [
        "index.html",
        "book/start/learning.html",
        "book/start/one_sitting.html",
        "book/translating/beams.html#beams.step=2",
        "search.html",
    ],
)
def test_keyboard_reaches_everything(read, name):
    page = read(name, reduced_motion="reduce")  # what plays stands still
    page.wait_for_load_state("networkidle")  # and the live parts are drawn
    wanted = set(page.evaluate(REACHABLE))
    assert len(wanted) > 40
    reached = set()
    for _ in range(2 * len(wanted)):  # boxes that scroll are stops too
        if wanted <= reached:
            break
        page.keyboard.press("Tab")
        number, ring, element = page.evaluate(FOCUSED)
        if number is not None:
            reached.add(number)
            assert ring, f"no visible focus on {element}"
            if "editor-text" in element:  # where Tab indents; the page says so
                page.keyboard.press("Escape")
    assert not wanted - reached


def test_an_address_that_leads_nowhere(visit, address):
    page = visit("book/there/is/no/such/page.html")
    assert "404" in page.problems.pop()  # the server's answer
    assert page.locator("article h1").inner_text() == "No page is here"
    assert page.evaluate("document.styleSheets.length") > 3
    page.locator("article a", has_text="The first page").click()
    page.wait_for_url(f"{address}/index.html")


def test_folds_are_open_in_print(read):
    page = read(CHAPTER)
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
