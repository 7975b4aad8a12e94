"""Decoding that plays by itself, in its chapter, in a real browser."""

import json
import re
from typing import NamedTuple

import pytest
import tangle
import torch
from parts import given, greedily, plain, run_of, shipped, slide
from playwright.sync_api import expect

PAGE = "book/translating/decoding.html"
PART = ".live[data-live=play]"
SENTENCES = tangle.ROOT / "web" / "sentences.json"
LISTED = json.loads(SENTENCES.read_text("utf-8"))["play"]
MODEL = {text: name for name, texts in LISTED.items() for text in texts}
LINE = f"{PART} .play-target"
BAR = f"{PART} .play-bars"


SCROLL = f"""document.querySelector('{PART}').scrollIntoView(
  {{ block: "center", behavior: "instant" }})"""


class Step(NamedTuple):
    """One step as it was recorded, its tokens by name."""

    tokens: list[str]
    shares: list[float]
    looked: list[float]


def sentences() -> list[dict]:
    """What the page was given."""
    return given(PAGE, "play")


def step(sentence, recorded) -> Step:
    bars, looked, *_ = recorded
    tokens = [sentence["tokens"][place] for place in bars[::2]]
    shares = [share / 1000 for share in bars[1::2]]
    return Step(tokens, shares, [part / 100 for part in looked])


def own(sentence) -> list[Step]:
    return [step(sentence, recorded) for recorded in sentence["steps"]]


def names(sentence) -> list[str]:
    """The tokens of the model's own translation, as shown."""
    return [plain(each.tokens[0]) for each in own(sentence)]


# What was recorded


def check(name, recorded, ids, steps) -> None:
    """Steps are the library's while it says these ids."""
    library = shipped(name)
    source_ids = torch.tensor(library.encode([recorded["text"]]))
    _, maps, shares = run_of(library.model, source_ids, ids)
    cross = torch.stack([one for path, one in maps.items() if "cross" in path])
    for row, each, looked in zip(
        shares[-len(steps) :],
        (step(recorded, one) for one in steps),
        cross.mean((0, 1))[-len(steps) :],
        strict=True,
    ):
        most = row.topk(len(each.tokens))
        assert each.tokens == library.tokenizer.pieces(most.indices.tolist())
        assert each.shares == pytest.approx(most.values.tolist(), abs=6e-4)
        assert each.looked == pytest.approx(looked.tolist(), abs=6e-3)


def test_what_is_played_is_the_librarys():
    """Each step, its rivals, and the line that every rival leads to."""
    for recorded in sentences():
        text = recorded["text"]
        name = MODEL[text]
        tokenizer = shipped(name).tokenizer
        best = greedily(name, text)
        assert recorded["said"] == tokenizer.decode(best).strip()
        check(name, recorded, best, recorded["steps"])
        for at, (bars, _, lines) in enumerate(recorded["steps"]):
            rivals = [recorded["tokens"][place] for place in bars[2::2]]
            for rival, (said, follow) in zip(rivals, lines, strict=True):
                [place] = tokenizer_places(tokenizer, rival)
                line = greedily(name, text, [*best[:at], place])
                assert said == (tokenizer.decode(line).strip() or "nothing")
                assert len(line) == at + 1 + len(follow)
                if follow:
                    check(name, recorded, line, follow)


def tokenizer_places(tokenizer, piece: str) -> list[int]:
    """The ids that are shown as this piece."""
    pieces = tokenizer.pieces(list(range(len(tokenizer))))
    return [i for i, one in enumerate(pieces) if one == piece]


def test_the_sentences_are_those_that_are_listed():
    """All but the first have a fork: a second as likely as one in six."""
    assert [each["text"] for each in sentences()] == list(MODEL)
    close = [
        max(each.shares[1] for each in own(sentence))
        for sentence in sentences()
    ]
    assert close[0] < 0.01 and min(close[1:]) > 1 / 6


def test_the_other_past_tense_only_just_loses():
    """What the page's text says of the last sentence."""
    sentence = sentences()[-1]
    gaps = [each.shares[0] - each.shares[1] for each in own(sentence)]
    fork = gaps.index(min(gaps))
    assert gaps[fork] < 0.03 and "vergaß" not in sentence["said"]
    assert "vergaß" in sentence["steps"][fork][2][0][0]


# What is seen


def opened(visit, state="", **settings):
    """The chapter, at the part, drawn."""
    settings = {"width": 1280, "height": 800} | settings
    page = visit(f"{PAGE}{state}", **settings)
    if settings.get("java_script_enabled", True):
        page.wait_for_selector(f"{PART} .play-target", state="attached")
        page.evaluate(SCROLL)
    return page


def line(page) -> list[str]:
    return page.locator(f"{LINE} li").all_text_contents()


def button(page, name):
    part = page.locator(PART)
    return part.get_by_role("button", name=name, exact=True)


def paused(visit, **settings):
    page = opened(visit, **settings)
    button(page, "Pause").click()
    button(page, "Play").wait_for()
    return page


def scrub(page, value) -> None:
    slide(page.locator(PART).get_by_role("slider", name="step"), value)


def choose(page, sentence) -> None:
    """A sentence, before its first step, not playing."""
    select = page.locator(PART).get_by_label("sentence", exact=True)
    select.select_option(label=sentence["text"])
    if button(page, "Pause").count():
        button(page, "Pause").click()
    scrub(page, 0)


def bars(page) -> list[tuple[str, str]]:
    rows = page.locator(f"{BAR} li:not(.play-rest)")
    return rows.evaluate_all(
        "all => all.map(row => [...row.querySelectorAll("
        "'.play-token, .play-share')].map(one => one.textContent))"
    )


def written(share: float) -> str:
    if share < 0.001:
        return "<\u00a00.1\u00a0%"
    percent = 100 * share
    return f"{percent + 1e-9:.{int(percent < 9.95)}f}\u00a0%"


def shows(page, sentence, each: Step) -> None:
    """Bars and ribbons are those of a step."""
    wanted = zip(each.tokens, each.shares, strict=True)
    for (name, share), (token, part) in zip(bars(page), wanted, strict=True):
        assert (name, share) == (plain(token), written(part))
    words = page.locator(f"{PART} .play-source li")
    wanted = [
        f"{plain(token)}{100 * part:.0f}\u00a0%"
        for token, part in zip(sentence["source"], each.looked, strict=True)
    ]
    assert words.all_text_contents() == wanted
    wide = page.locator(f"{PART} .play-arcs path").evaluate_all(
        "all => all.map(one => Number("
        "/H([\\d.]+)/.exec(one.getAttribute('d'))[1]"
        "- / ([\\d.]+) [\\d.]+H/.exec(one.getAttribute('d'))[1]))"
    )
    total = sum(each.looked)
    looked = [64 * part / total for part in each.looked]
    looked = [one for one in looked if one > 0.4]
    assert wide == pytest.approx(looked, abs=0.01)


def test_untouched_it_translates_within_fifteen_seconds(visit):
    """In silence, and without fetching anything; on a phone in sight."""
    page = opened(visit, width=360, height=780)
    written = page.locator(f"{LINE} li")
    expect(written).to_have_text(names(sentences()[0]), timeout=15_000)
    assert not page.locator(f"{PART} .play-said").text_content()
    for url in page.asked:
        assert not re.search(r"/live/data/", url)
    box = page.locator(f"{PART} .play-target button").first.bounding_box()
    assert box["y"] + box["height"] <= 780


def test_every_step_shows_its_numbers(visit, fits):
    """At one height, so that the text below never moves."""
    page = paused(visit, width=360)
    sentence, heights = sentences()[1], set()
    choose(page, sentence)
    for number, each in enumerate(own(sentence), 1):
        button(page, "Step").click()
        shows(page, sentence, each)
        assert line(page) == names(sentence)[:number]
        heights.add(round(page.locator(PART).bounding_box()["height"]))
    status = page.locator(f"{PART} .play-said").text_content()
    assert f"“{sentence['said']}”" in status
    assert len(heights) == 1
    page.locator(f"{PART} summary", has_text="table").click()
    scrub(page, 2)
    fits(page, PART)


def test_another_bar_leads_to_its_own_continuation(visit):
    """And the address brings it back."""
    page = paused(visit)
    sentence = sentences()[1]
    choose(page, sentence)
    scrub(page, 1)
    page.locator(f"{BAR} button").nth(1).click()
    button(page, "Pause").click()
    said, follow = sentence["steps"][0][2][0]
    later = [step(sentence, one) for one in follow]
    wanted = [plain(own(sentence)[0].tokens[1])]
    assert line(page) == wanted
    scrub(page, 99)
    wanted += [plain(each.tokens[0]) for each in later]
    assert line(page) == wanted
    told = page.locator(f"{PART} .play-told").text_content()
    assert f"“{said.strip()}”" in told
    scrub(page, 3)
    again = opened(visit, page.evaluate("location.hash"))
    assert line(again) == line(page) != names(sentence)[:3]
    again.wait_for_timeout(1000)
    assert line(again) == line(page)  # it does not start by itself
    button(page, "The model's own choice").click()
    assert line(page) == names(sentence)[:1]
    for odd in ["#play.step=no&play.sentence=77", "#play.step=99"]:
        assert opened(visit, odd).locator(PART).is_visible()


def test_what_was_asked_for_stays_when_it_ends(visit):
    """Also where the first sentence still played by itself."""
    page = opened(visit)
    page.locator(f"{BAR} button").nth(1).click()
    said = page.locator(f"{PART} .play-said")
    expect(said).not_to_be_empty(timeout=20_000)
    button(page, "The model's own choice").wait_for()
    page.wait_for_timeout(3000)  # longer than before a second sentence
    assert button(page, "The model's own choice").is_visible()
    assert page.locator(f"{PART} select").input_value() == "0"


def test_reduced_motion_stands_still_with_all_in_reach(visit):
    """By the buttons, the slider, the line and its bars."""
    page = opened(visit, reduced_motion="reduce")
    wanted = names(sentences()[0])
    assert line(page) == wanted
    before = state(page)
    page.wait_for_timeout(1000)
    assert state(page) == before
    button(page, "Back").click()
    assert line(page) == wanted[:-1]
    button(page, "Step").click()
    button(page, "Step").click()  # there is none after the last
    assert line(page) == wanted
    scrub(page, 0)
    assert line(page) == [] and not bars(page)
    scrub(page, 4)
    page.locator(f"{LINE} button").nth(1).click()  # a token of the line
    assert line(page) == wanted[:2]
    shows(page, sentences()[0], own(sentences()[0])[1])


def state(page) -> str:
    """All that the part shows."""
    return page.locator(PART).evaluate(
        'part => part.innerHTML.replace(/style="[^"]*"/g, \'\')'
    )


HALTS = {  # with `on` false it goes on
    "out of sight": f"""on => on
      ? scrollTo({{ top: 99999, behavior: "instant" }}) : {SCROLL}""",
    "hidden tab": """on => {
      Object.defineProperty(document, "hidden",
        { value: on, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }""",
}


def test_it_halts_and_goes_on(visit):
    page = opened(visit)
    written = page.locator(f"{LINE} li")
    written.first.wait_for()
    for halt in HALTS.values():
        page.evaluate(halt, True)
        page.wait_for_timeout(700)
        before, count = state(page), written.count()
        page.wait_for_timeout(1000)
        assert state(page) == before
        moving = "x => x.timeline === document.timeline"  # not by scrolling
        assert not page.evaluate(f"document.getAnimations().some({moving})")
        page.evaluate(halt, False)
        written.nth(count).wait_for()  # the next token


def test_by_keyboard_only(visit):
    page = opened(visit)
    button(page, "Pause").focus()

    def press(*keys):
        for key in keys:
            page.keyboard.press(key)

    press("Space")
    assert button(page, "Play").count() == 1
    press("Tab", "Tab", "Enter")  # Back, Step
    wanted = names(sentences()[0])
    assert line(page) == wanted[: len(line(page))]
    press("Tab", "Home", "ArrowRight", "ArrowRight")  # the slider
    assert line(page) == wanted[:2]
    press("Tab", "Tab", "Enter")  # the first bar, a rival
    rival = own(sentences()[0])[1].tokens[1]
    assert line(page) == [wanted[0], plain(rival)]
    press("Space")  # where the focus is now: Pause
    focused = page.evaluate_handle("document.activeElement").as_element()
    assert focused.text_content() == "Play"
    style = focused.evaluate("node => getComputedStyle(node).outlineStyle")
    assert style == "solid"


def test_without_a_script_a_table_says_it(visit):
    page = opened(visit, java_script_enabled=False)
    sentence = sentences()[0]
    table = page.locator(f"{PART} table.play-still")
    said = table.locator("caption").text_content()
    assert sentence["text"] in said and sentence["said"] in said
    rows = table.locator("tbody tr")
    assert rows.count() == len(sentence["steps"])
    for row, each in zip(rows.all(), own(sentence), strict=True):
        cells = row.locator("th, td").all_text_contents()
        parts = [*each.looked, each.shares[0]]
        wanted = [f"{100 * part:.0f}\xa0%" for part in parts]
        assert cells == [plain(each.tokens[0]), *wanted]
