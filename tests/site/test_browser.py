"""The built site in a real browser, without a network."""

import pytest
import tangle

SITE = tangle.ROOT / "_build" / "html"
PAGES = sorted(
    path.relative_to(SITE).as_posix()
    for path in SITE.rglob("*.html")
    if not {"_static", "_modules", "reports"} & set(path.parts)
)


def visit(browser, address, name, width=1200, scheme="light"):
    """Open a page; what went wrong on it, and where it asked."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    page = context.new_page()
    errors, asked = [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console",
        lambda message: (
            errors.append(message.text)
            if message.type == "error"
            else None
        ),
    )
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{address}/{name}", wait_until="load")
    page.wait_for_function(
        "!window.MathJax || !MathJax.startup || !MathJax.startup.promise"
        " || MathJax.startup.promise.then(() => true)"
    )
    page.wait_for_function(
        "document.querySelectorAll('[id^=altair-viz]').length =="
        " document.querySelectorAll('[id^=altair-viz] svg').length"
    )
    return page, errors, asked


@pytest.mark.parametrize("name", PAGES)
def test_page_works_offline(name, browser, address):
    page, errors, asked = visit(browser, address, name)
    foreign = [
        url
        for url in asked
        if not url.startswith((address, "data:", "blob:"))
    ]
    formulas = page.locator(".math").count()
    drawn = page.locator(".math mjx-container").count()
    raw = page.locator("mjx-merror").count()
    page.context.close()
    assert not errors
    assert not foreign
    assert drawn >= formulas and not raw


@pytest.mark.parametrize("name", PAGES)
def test_page_fits_a_phone(name, browser, address):
    page, errors, _ = visit(browser, address, name, width=360)
    width = page.evaluate("document.documentElement.scrollWidth")
    page.context.close()
    assert width <= 360


def test_dark_mode(browser, address):
    page, _, _ = visit(
        browser,
        address,
        "book/architecture/positions.html",
        scheme="dark",
    )
    colour = page.evaluate(
        "getComputedStyle(document.body).backgroundColor"
    )
    page.context.close()
    red = int(colour.split("(")[1].split(",")[0])
    assert red < 80
