"""The built site, served to a real browser without a network."""

import functools
import http.server
import json
import os
import threading
import warnings
from pathlib import Path

import pytest
from parts import AXE, DATA, LOOK, SITE

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the site, and its own page for what is not there."""

    def log_message(self, *arguments):
        pass

    def send_error(self, code, message=None, explain=None):
        if code != 404:
            return super().send_error(code, message, explain)
        body = (SITE / "404.html").read_bytes()
        self.send_response(404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="module")
def address():
    handler = functools.partial(Quiet, directory=str(SITE))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="session")
def chromium():
    """The browser's path; without one the tests that need it skip."""
    if not Path(CHROMIUM).exists():
        if os.environ.get("BROWSER_REQUIRED"):
            raise RuntimeError(f"these tests need {CHROMIUM}")
        warnings.warn(
            f"NO BROWSER: {CHROMIUM} is missing, the site is not tested "
            "in one",
            stacklevel=1,
        )
        pytest.skip(f"no {CHROMIUM}")
    return {"executable_path": CHROMIUM, "args": FLAGS}


@pytest.fixture(scope="module")
def browser(chromium):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**chromium)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def index():
    """What the live parts know of the models."""
    return json.loads((DATA / "index.json").read_text("utf-8"))


@pytest.fixture
def visit(browser, address):
    """Open pages of the site, each in a context of its own.

    `page.asked` are the addresses that a page has requested, and
    `page.problems` what has gone wrong in it: errors, and requests to
    elsewhere. A page has none at the end of a test; one that means to
    provoke some clears the list.
    """
    pages = []

    def open_page(
        path, prepare=None, wait="load", width=1200, height=900, **settings
    ):
        settings["viewport"] = {"width": width, "height": height}
        page = browser.new_context(**settings).new_page()
        page.asked, page.problems = [], []
        pages.append(page)

        def note_request(request):
            page.asked.append(request.url)
            if not request.url.startswith((address, "data:", "blob:")):
                page.problems.append(f"asked for {request.url}")

        def note_message(message):
            if message.type == "error":
                where = message.location["url"]
                page.problems.append(f"{message.text} ({where})")

        page.on("request", note_request)
        page.on("console", note_message)
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        if prepare:
            prepare(page)
        page.goto(f"{address}/{path}", wait_until=wait)
        return page

    yield open_page
    for page in pages:
        page.context.close()
    assert not [problem for page in pages for problem in page.problems]


@pytest.fixture
def fits():
    """Whether a page is no wider than its window, and a part accessible.

    All of axe-core's rules by day, those of colours by night too.
    """

    def check(page, part):
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= page.viewport_size["width"]
        page.evaluate(AXE.read_text("utf-8"))
        page.add_style_tag(content="* { transition: none !important }")
        theme = "document.documentElement.dataset.theme"
        before, only = page.evaluate(theme), {"runOnly": ["color-contrast"]}
        found = page.evaluate(LOOK, ["light", part, {}])
        found += page.evaluate(LOOK, ["dark", part, only])
        page.evaluate(f"before => {{ {theme} = before }}", before)
        assert not found

    return check
