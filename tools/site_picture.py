"""The picture that a shared link shows, from the built site.

`python tools/site_picture.py`, after `make book`: the first page, as it
covers a word, and the first lines of its code, 1,200 by 630 pixels. It is
committed, so that the README has it too.
"""

import functools
import http.server
import threading

from playwright.sync_api import sync_playwright
from print_book import ROOT, SITE, start

PICTURE = ROOT / "book" / "_static" / "site.png"
STATE = "index.html#cover.sentence=1&cover.covered=9"
ONLY = """
.bd-sidebar-primary, .bd-header-article, .cover-ways, .cover-picks,
.cover-was, .cover-doors, .cover-facts, .bd-article section section, footer,
.prev-next-area, .skip-link, #pst-skip-link { display: none !important }
.bd-article-container { padding: 0 !important; width: 1120px !important }
.bd-article h1 { font-size: 3rem !important; margin: 1.2rem 0 0.4rem }
.bd-article :is(h1, .cover-claim > p) { max-width: none !important }
.bd-article .cover-claim, .bd-article .cover-claim > p {
  font-size: 1.5rem !important; max-width: none !important }
.live .cover-words { font-size: 2rem !important; min-height: 0 !important }
.live .cover-source [aria-pressed=true] { color: #7b8794 !important }
.live .cover-told { min-height: 0; padding: 0 }
.live .cover-means { font-size: 1.6rem !important }
.live[data-live=cover] { min-height: 0 !important }
.bd-article div.cell { margin: 0.8rem 0 }
.bd-article div.cell pre { font-size: 1.15rem !important }
"""
# The page's own sentence, without what is true of the page alone; its code.
SHOWN = """
const claim = document.querySelector(".cover-claim p");
claim.innerHTML = claim.innerHTML.replace(/ Its model opens.*/, "");
document.querySelector(".cover-doors").before(
  document.querySelector("section section .cell"));
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


def main() -> None:
    handler = functools.partial(Quiet, directory=str(SITE))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = start(playwright)
        page = browser.new_page(
            viewport={"width": 1200, "height": 630},
            color_scheme="light",
            reduced_motion="reduce",
        )
        page.goto(f"http://127.0.0.1:{server.server_port}/{STATE}")
        page.add_style_tag(content=ONLY)
        page.locator(".cover-means q").wait_for()
        page.evaluate(SHOWN)
        page.evaluate("scrollTo(0, 0)")
        page.wait_for_timeout(500)  # the ribbons follow the words
        page.screenshot(path=PICTURE)
        browser.close()
    server.shutdown()


if __name__ == "__main__":
    main()
