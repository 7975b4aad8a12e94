"""The page that translates, timed in Chromium over the built site.

    python benchmarks/live.py

The runtime in the page has one thread. The page's own clock is read, so
that no loading is in it; the first translation, which loads, is left out.
"""

import functools
import http.server
import json
import re
import statistics
import threading
from pathlib import Path

SITE = Path(__file__).resolve().parents[1] / "_build" / "html"
CHROMIUM = "/usr/bin/chromium"
TEXTS = {  # twelve words each, from each model's own world
    "little-spanish": "The new boys need red keys and the girls"
    " like old houses",
    "multi30k-en-de": "A man in a blue shirt is standing on a green field",
}
SECONDS = re.compile(r"(\d+\.\d+) s for (\d+) pieces")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


def missing() -> str:
    """Why the page cannot be timed, or ""."""
    index = SITE / "_static" / "live" / "data" / "index.json"
    if not Path(CHROMIUM).exists():
        return f"no {CHROMIUM}"
    if not index.exists():
        return "make book comes first"
    return json.loads(index.read_text("utf-8"))["missing"]


def translate(page, text: str) -> tuple[float, int]:
    """Use the page; returns what its clock said, and the pieces."""
    said = page.locator(".live .live-result", has_text=SECONDS).first
    page.get_by_label("A sentence in").fill(text)
    page.evaluate(
        "document.querySelector('.live .live-result').textContent = ''"
    )
    page.get_by_label("A sentence in").press("Enter")
    said.wait_for(timeout=120_000)
    seconds, pieces = SECONDS.search(said.text_content()).groups()
    return float(seconds), int(pieces)


def measure(address: str, rounds: int) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu"],
        )
        for name, text in TEXTS.items():
            page = browser.new_page()
            page.goto(f"{address}/index.html#model={name}")
            page.wait_for_selector(".live-result")
            translate(page, text)  # loads the model
            times = [translate(page, text) for _ in range(rounds)]
            seconds = statistics.median(t for t, _ in times)
            print(f"| {name} | {times[0][1]} | {seconds:.2f} |")
            page.close()
        browser.close()


def live(rounds: int = 5) -> None:
    """Print the time of twelve words, beam 4, for each shipped model."""
    print("\nThe live page, 12 words, one thread; the bar is 1.5 s\n")
    if why := missing():
        return print(f"(not timed: {why})")
    print("| model | pieces | seconds |\n|---|---|---|")
    handler = functools.partial(Quiet, directory=str(SITE))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    measure(f"http://127.0.0.1:{server.server_port}", rounds)
    server.shutdown()


if __name__ == "__main__":
    live()
