"""Which line is broken? Its lines, its record, and the game in a browser."""

import json
import math

import broken
import pytest
import tangle
from parts import press

PAGE = "book/appendix/course.html"
HEALTHY, AGAIN, *LEVELS = broken.levels()
POINT, GIVE = "This line is wrong (a miss: −3)", "Show me (no points)"
PAGES_CODE = {
    line.rstrip()
    for cell in broken.planted()["cells"]()
    for line in broken.own_names(cell).splitlines()
}


@pytest.mark.parametrize("level", LEVELS, ids=lambda one: one["mistake"])
def test_a_level_is_the_books_code_with_one_change(level):
    code, wrong = level["code"], level["wrong"]
    others = [line for i, line in enumerate(code) if i not in wrong]
    assert {*others} <= PAGES_CODE and {*level["mended"]} <= PAGES_CODE
    changed = [code[i] for i in wrong if code[i] not in PAGES_CODE]
    assert changed or len(wrong) == 2  # the neighbours of what is missing
    assert wrong[-1] in level["suspects"] and len(level["suspects"]) > 3


def test_the_record_is_that_of_the_table():
    text = (tangle.ROOT / "runs/mistakes.json").read_text("utf-8")
    known = {row["mistake"]: row for row in json.loads(text)["rows"]}
    assert len(LEVELS) == 10
    for row in [HEALTHY, AGAIN, *LEVELS]:
        assert len(row["curve"]) == 60 and len(row["held_out"]) == 12
        if other := known.get(row["mistake"]):
            assert abs(math.log(row["last"] / other["last"])) < 0.15
            assert abs(row["right"] - other["right"]) < 10


def test_what_the_answers_say_can_be_seen():
    seen = {row["mistake"]: row for row in LEVELS}

    def earlier(mistake):
        return max(seen[mistake]["target"][:-1])

    def above(mistake):
        rows = seen[mistake]["self"]
        return max(x for i, row in enumerate(rows) for x in row[i + 1 :])

    reshaped = "heads joined without moving their axis back"
    assert earlier("an open future") > 1 and earlier(reshaped) > 0.1
    assert above(reshaped) == 0 < 0.05 < above("0 for a forbidden score")
    assert max(seen["no cross-attention"]["source"]) < 0.01
    shown = seen["labels shown to the decoder"]
    assert earlier(shown["mistake"]) == 0 and shown["held_out"][-1] > 4
    size = seen["no factor √d_model"]
    assert size["words"] < size["places"] < HEALTHY["words"]
    kept = seen["gradients that stay"]
    counted = seen["padding counted"]
    assert counted["losses"][0] != counted["losses"][1]
    assert max(counted["padding"]) < 0.01  # what a wrong guess is told
    first = seen["the first position's logits"]
    assert first["held_out"] == HEALTHY["held_out"]
    assert kept["sizes"][0] == HEALTHY["sizes"][0]
    assert seen["a ramp that lags by one"]["sizes"][0][0] == 0
    assert kept["sizes"][1][-1] > 10 * HEALTHY["sizes"][1][-1]


def test_a_game_from_the_first_level_to_the_last(visit, fits):
    page = visit(PAGE, width=320)
    place = page.locator("[data-live=broken]")
    total = place.locator(".broken-total")
    lines = place.locator(".broken-code input")
    lines.first.wait_for()
    for number, level in enumerate(LEVELS, 1):
        if number == 1:
            *looks, last = place.locator(".broken-shop button").all()
            for look in looks:
                look.click()
            lines.first.check()  # by mistake
            press(place, POINT)
            assert "still worth 3 points" in place.inner_text()
            last.click()  # which costs one
            assert "still worth" not in place.inner_text()
            fits(page, "[data-live=broken]")
        at = level["wrong"][-1]
        place.locator(f".broken-code input[value='{at}']").focus()
        page.keyboard.press("Space")
        press(place, POINT)
        said = place.get_by_role("status").last.inner_text()
        assert said.startswith("Yes: ")
        if number < 10:
            assert page.evaluate("document.activeElement.textContent") == (
                "Next level"
            )
            page.keyboard.press("Enter")
            assert page.evaluate("document.activeElement.textContent") == (
                str(number + 1)
            )
    assert total.inner_text() == "92 of 100 points"
    page.reload()
    assert total.inner_text() == "92 of 100 points"
    press(place, "Start again")
    press(place, GIVE)
    assert total.inner_text() == "0 of 100 points"


def test_a_game_where_nothing_can_be_kept(visit):
    block = "Object.defineProperty(window, 'localStorage', {get() {throw 1}})"
    page = visit(PAGE, prepare=lambda page: page.add_init_script(block))
    place = page.locator("[data-live=broken]")
    press(place, GIVE)
    assert "The chapter" in place.inner_text()
    page.problems.clear()  # the site's own scripts complain


def test_the_sheet_needs_no_script(visit):
    page = visit(PAGE, java_script_enabled=False)
    sheet = page.locator(".broken-still")
    assert sheet.locator("tbody tr").count() == 10
    assert page.get_by_text("Answers", exact=True).is_visible()
    for level in LEVELS:
        for at in level["suspects"]:
            assert level["code"][at].strip() in sheet.inner_text()
