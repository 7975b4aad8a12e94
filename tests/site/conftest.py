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
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def address():
    site = tangle.ROOT / "_build" / "html"
    handler = functools.partial(Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), handler
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def browser():
    if not Path(CHROMIUM).exists():
        if os.environ.get("BROWSER_REQUIRED"):
            raise RuntimeError(f"these tests need {CHROMIUM}")
        warnings.warn(
            f"NO BROWSER: {CHROMIUM} is missing, the site is not tested "
            "in one",
            stacklevel=1,
        )
        pytest.skip(f"no {CHROMIUM}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=FLAGS
        )
        yield browser
        browser.close()
