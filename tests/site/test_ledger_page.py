"""The ledger as a page: counted, linked from the chapters, filtered."""

import copy
import re
from collections import Counter
from pathlib import Path

import tangle
import yaml
from parts import PAGES, SITE, html, soup

PAGE = "book/appendix/paper.html"
ROWS = yaml.safe_load(
    (tangle.ROOT / "book" / "fidelity.yml").read_text("utf-8")
)


def chapter(row: dict) -> str:
    label = row["chapter"].partition("-")[0]
    return "why_attention" if label in ("layer_types", "cost") else label


def test_every_row_is_there_with_its_state_and_places():
    page = soup(PAGE)
    assert len(page.select(".ledger-row")) == len(ROWS)
    for row in ROWS:
        name = re.sub("[^a-z0-9]+", "-", f"row-{row['id']}".lower())
        shown = page.find(id=name)
        assert f"status-{row['status']}" in shown["class"], name
        assert f"chapter-{chapter(row)}" in shown["class"]
        assert shown.select("a"), name  # where it is explained
        assert bool(row.get("symbol")) == ("code: " in shown.get_text())
        assert bool(row.get("test")) == ("held by: " in shown.get_text())


def test_a_test_leads_to_its_file():
    """To the book's own, not to that of Jupyter Book's repository."""
    for link in soup(PAGE).select(".ledger-row a"):
        address = link["href"]
        assert "executablebooks" not in address
        if link.get_text().startswith("test_"):
            assert Path(address).name.startswith("test_")
            local = (SITE / PAGE).parent / address
            assert local.is_file() or address.startswith("https://")


def test_formulas_are_formulas_and_pages_have_titles():
    for row in map(copy.copy, soup(PAGE).select(".ledger-row")):
        for special in row.select("a, code, .math"):
            special.decompose()
        words = row.get_text()
        assert not re.search(r"[$^_\\]|sqrt|O\(", words), words


def test_the_first_sentence_counts_truly():
    count = Counter(row["status"] for row in ROWS)
    words = soup(PAGE).select_one("article").get_text(" ")
    sentence = re.search(r"Of \d+ statements[^.]*\.", words)[0]
    numbers = [int(x) for x in re.findall(r"\d+", sentence)]
    states = ("exact", "option", "scaled", "open", "undecidable")
    assert numbers == [len(ROWS), *(count[state] for state in states)]


def test_the_first_page_counts_truly():
    tested = sum(bool(row.get("test")) for row in ROWS)
    said = f"{tested} of {len(ROWS)} statements on the paper"
    assert said in (tangle.ROOT / "index.md").read_text("utf-8")


LEADS = re.compile(
    r'href="[^"]*paper\.html\?chapter=(\w+)#ledger-rows">'
    r"→\sstatement by statement \((\d+)\)"
)


def test_boxes_lead_to_their_rows():
    led = Counter()
    for page in PAGES:
        for name, count in LEADS.findall(html(page)):
            assert int(count) == sum(chapter(row) == name for row in ROWS)
            led[name] += 1
    assert len(led) > len({chapter(row) for row in ROWS}) / 2, led


def opened(visit, query=""):
    page = visit(PAGE + query)
    page.wait_for_selector(".ledger-filter output:not(:empty)")
    return page


def visible(page) -> int:
    return page.locator(".ledger-row:visible").count()


def test_the_filter_shows_what_is_asked_for(visit):
    page = opened(visit)
    assert visible(page) == len(ROWS)
    page.select_option(".ledger-filter [name=status]", "open")
    unrun = [row for row in ROWS if row["status"] == "open"]
    assert visible(page) == len(unrun)
    assert page.locator(".ledger-filter output").text_content() == (
        f"{len(unrun)} of {len(ROWS)} statements"
    )
    assert page.url.endswith("?status=open")
    page.select_option(".ledger-filter [name=section]", "6-1")
    both = [row for row in unrun if str(row["section"]) == "6.1"]
    assert visible(page) == len(both) > 0
    # a section without a row left is not there either
    headings = page.locator("section[id^=paper-]:visible").count()
    assert headings == 1
    page.click(".ledger-filter button")
    assert visible(page) == len(ROWS)
    assert "?" not in page.url


def test_the_address_filters_and_a_title_is_the_pages(visit):
    page = opened(visit, "?chapter=loss#ledger-rows")
    wanted = sum(chapter(row) == "loss" for row in ROWS)
    assert visible(page) == wanted > 0
    named = page.locator(".ledger-filter [name=chapter] option:checked")
    assert named.text_content().startswith("The loss")
    assert visible(opened(visit, "?chapter=nothing")) == len(ROWS)


def test_a_link_to_what_is_filtered_away_shows_all(visit):
    page = opened(visit, "?chapter=loss#ledger-rows")
    hidden = page.locator("section[id^=paper-][hidden]").first
    name = hidden.get_attribute("id")
    page.evaluate("name => { location.hash = name }", name)
    page.locator(f"#{name}").wait_for()
    assert visible(page) == len(ROWS)
