"""The built site, served to a real browser without a network."""

import functools
import http.server
import os
import threading
import warnings
from pathlib import Path

import pytest
import tangle

CHROMIUM = "/usr/bin/chromium"
SITE = tangle.ROOT / "_build" / "html"
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
