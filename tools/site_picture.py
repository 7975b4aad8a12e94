"""The picture that a shared link shows, from the built site.

`python tools/site_picture.py`, after `make book`: the first page, as it
covers a word, 1,200 by 630 pixels. It is committed, so that the README
has it too.
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
.cover-doors, .cover-facts, .bd-article section section, footer,
.prev-next-area, .skip-link, #pst-skip-link { display: none !important }
.bd-article-container { padding: 0 !important; width: 1120px !important }
.bd-article h1 { font-size: 3.2rem !important; margin: 1.6rem 0 0.6rem }
.bd-article :is(h1, .cover-claim > p) { max-width: none !important }
.bd-article .cover-claim, .bd-article .cover-claim > p {
  font-size: 1.6rem !important; max-width: none !important }
.live .cover-words { font-size: 2rem !important }
.live .cover-means { font-size: 1.8rem !important }
.live .cover-was { font-size: 1.2rem !important }
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
        page.locator(".cover-was del").first.wait_for()
        page.evaluate("scrollTo(0, 0)")
        page.wait_for_timeout(500)  # the ribbons follow the words
        page.screenshot(path=PICTURE)
        browser.close()
    server.shutdown()


if __name__ == "__main__":
    main()
