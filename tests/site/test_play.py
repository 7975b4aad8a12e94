"""Decoding that plays by itself, on the first page, in a real browser."""

import re
from typing import NamedTuple

import pytest
import tangle
import torch
import yaml
from parts import given, in_all_looks, plain, shipped, slide
from playwright.sync_api import expect

from transformer_lib import greedy_decode, record_attention
from transformer_lib.decoding import evaluating
from transformer_lib.embeddings import BOS, EOS

PAGE = "index.html"
PART = ".live[data-live=play]"
SENTENCES = tangle.ROOT / "web" / "sentences.yml"
LISTED = yaml.safe_load(SENTENCES.read_text("utf-8"))["play"]
MODEL = {text: name for name, texts in LISTED.items() for text in texts}
LINE = f"{PART} .play-target"
BAR = f"{PART} .play-bars"
# Notes what the part showed, whenever it changed.
WATCH = f"""() => {{
  const part = document.querySelector("{PART}");
  window.seen = [];
  const note = () => {{
    const line = part.querySelector(".play-target");
    seen.push({{
      time: performance.now(),
      phase: part.dataset.phase,
      line: [...line.children].map(one => one.textContent),
      bars: [...part.querySelectorAll(".play-bars li:not(.play-rest)")].map(
        bar => parseFloat(bar.style.getPropertyValue("--share"))),
      bands: part.querySelectorAll(".play-arcs path").length,
      said: part.querySelector(".play-said").textContent,
    }});
  }};
  new MutationObserver(note).observe(part, {{
    subtree: true, childList: true, attributes: true, characterData: true,
  }});
}}"""


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


# What was recorded is what the shipped models say


def agrees(sentence, ids: list[int], steps: list[Step], begin=0) -> None:
    """Steps from `begin` are what the model says at these ids."""
    library = shipped(MODEL[sentence["text"]])
    model, tokenizer = library.model, library.tokenizer
    source_ids = torch.tensor(library.encode([sentence["text"]]))
    inputs = torch.tensor([[BOS, *ids[:-1]]])
    with evaluating(model), record_attention(model) as maps:
        rows = model(source_ids, inputs)[0].softmax(-1)
    cross = [one[0] for path, one in maps.items() if "cross" in path]
    looked = torch.cat(cross).mean(0)
    assert len(steps) == len(ids) - begin
    for number, each in enumerate(steps, begin):
        best = rows[number].topk(len(each.tokens))
        assert each.tokens == tokenizer.pieces(best.indices.tolist())
        assert (torch.tensor(each.shares) - best.values).abs().max() < 6e-4
        apart = torch.tensor(each.looked) - looked[number]
        assert apart.abs().max() < 0.0051


@pytest.mark.parametrize("text", MODEL)
def test_recorded_numbers_are_the_models_own(text):
    """The greedy line; and each rival with what follows greedily."""
    sentence = next(one for one in sentences() if one["text"] == text)
    library = shipped(MODEL[text])
    tokenizer, model = library.tokenizer, library.model
    source_ids = torch.tensor(library.encode([text]))
    assert sentence["source"] == tokenizer.pieces(source_ids[0].tolist())
    assert sentence["vocabulary"] == len(tokenizer)
    best = greedy_decode(model, source_ids).ids[0][0]
    assert sentence["said"] == tokenizer.decode(best)
    steps = own(sentence)
    agrees(sentence, best, steps)
    ids = {tokenizer.pieces([i])[0]: i for i in range(len(tokenizer))}
    for number, recorded in enumerate(sentence["steps"]):
        rivals = steps[number].tokens[1:]
        assert len(rivals) == len(recorded[2]) >= 2
        for rival, (said, follow) in zip(rivals, recorded[2], strict=True):
            later = [step(sentence, one) for one in follow]
            line = [*best[:number], ids[rival]]
            line += [ids[each.tokens[0]] for each in later]
            assert line[-1] == EOS and said == tokenizer.decode(line)
            agrees(sentence, line, later, number + 1)


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
    """The first page, with the part drawn."""
    settings = {"width": 1280, "height": 800} | settings
    page = visit(f"{PAGE}{state}", **settings)
    if settings.get("java_script_enabled", True):
        page.wait_for_selector(f"{PART} .play-target", state="attached")
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


def test_untouched_it_has_translated_within_fifteen_seconds(visit):
    page = opened(visit)
    page.evaluate(WATCH)
    begun = page.evaluate("performance.now()")
    assert begun < 4000
    wanted = names(sentences()[0])
    page.wait_for_timeout(15_000)  # a busy machine may have begun late
    seen = page.evaluate("seen")
    assert seen[-1]["time"] < begun + 15_500
    lines = [each["line"] for each in seen]
    for count in range(1, len(wanted) + 1):
        assert wanted[:count] in lines  # token by token
    ready = lines.index(wanted)
    assert any(each["bands"] > 1 for each in seen[:ready])
    # Then a real fork, in the next sentence.
    assert any(
        len(each["bars"]) > 2 and sorted(each["bars"])[-2] > 0.2
        for each in seen[ready:]
        if each["phase"] == "win"
    )
    assert {each["said"] for each in seen} == {""}  # silent
    for url in page.asked:
        assert not re.search(r"/ort/|\.onnx|\.wasm|/data/(?!index)", url)
    page.wait_for_timeout(20_000)
    button(page, "Play").wait_for()  # it rests, at the second's end
    assert line(page) == names(sentences()[1])
    page.wait_for_timeout(3000)
    assert line(page) == names(sentences()[1])


def says_where_it_looked(said, sentence, each: Step) -> None:
    """The two words with most."""
    parts = zip(sentence["source"], each.looked, strict=True)
    shares = {plain(token): round(100 * part) for token, part in parts}
    words = [word for word in shares if word not in {".", "?", "end"}]
    most = sorted(map(shares.get, words), reverse=True)[:2]
    listed = re.findall(r"(\w+) (\d+)\s%", said.partition("at ")[2])[:2]
    assert [int(share) for _, share in listed] == most
    assert [shares[word] for word, _ in listed] == most


def test_every_step_shows_its_numbers(visit):
    page = paused(visit)
    for sentence in sentences():
        choose(page, sentence)
        for number, each in enumerate(own(sentence), 1):
            button(page, "Step").click()
            shows(page, sentence, each)
            assert line(page) == names(sentence)[:number]
            status = page.locator(f"{PART} [role=status]")
            said = status.text_content()
            if number < len(own(sentence)):
                assert plain(each.tokens[0]) in said
                says_where_it_looked(said, sentence, each)
        assert f"“{sentence['said']}”" in said


def state(page) -> str:
    """All that the part shows."""
    return page.locator(PART).evaluate(
        'part => part.innerHTML.replace(/style="[^"]*"/g, \'\')'
    )


HALTS = {  # what stops it; with `on` false it goes on
    "pause": f"on => document.querySelector('{PART} .live-main').click()",
    "out of sight": "on => scrollTo({top: on * 9999, behavior: 'instant'})",
    "hidden tab": """on => {
      Object.defineProperty(document, "hidden",
        { value: on, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }""",
}


@pytest.mark.parametrize("way", HALTS)
def test_it_halts_and_goes_on(visit, way):
    page = opened(visit)
    written = page.locator(f"{LINE} li")
    written.first.wait_for()
    page.evaluate(HALTS[way], True)
    page.wait_for_timeout(700)
    before, count = state(page), written.count()
    page.wait_for_timeout(3000)
    assert state(page) == before
    moving = "x => x.timeline === document.timeline"  # not by scrolling
    assert not page.evaluate(f"document.getAnimations().some({moving})")
    page.evaluate(HALTS[way], False)
    written.nth(count).wait_for()  # the next token


def test_back_step_and_scrub(visit):
    page = paused(visit)
    wanted = names(sentences()[0])
    scrub(page, 0)
    assert line(page) == [] and not bars(page)
    scrub(page, 4)
    assert line(page) == wanted[:4]
    button(page, "Back").click()
    assert line(page) == wanted[:3]
    button(page, "Step").click()
    button(page, "Step").click()
    button(page, "Step").click()  # there is no sixth
    assert line(page) == wanted
    page.locator(f"{LINE} button").nth(1).click()  # a token of the line
    assert line(page) == wanted[:2]
    shows(page, sentences()[0], own(sentences()[0])[1])


def test_another_bar_leads_to_its_own_continuation(visit):
    page = paused(visit)
    for sentence in sentences():
        choose(page, sentence)
        for number, recorded in enumerate(sentence["steps"]):
            for bar, (said, follow) in enumerate(recorded[2], 1):
                scrub(page, number + 1)
                page.locator(f"{BAR} button").nth(bar).click()
                button(page, "Pause").click()
                later = [step(sentence, one) for one in follow]
                rival = own(sentence)[number].tokens[bar]
                wanted = names(sentence)[:number] + [plain(rival)]
                assert line(page) == wanted
                scrub(page, 99)
                wanted += [plain(each.tokens[0]) for each in later]
                assert line(page) == wanted
                if later:
                    shows(page, sentence, later[-1])
                told = page.locator(f"{PART} .play-told").text_content()
                assert f"“{said.strip()}”" in told
                button(page, "The model's own choice").click()
                assert line(page) == names(sentence)[: number + 1]


def test_a_picked_rival_plays_on(visit):
    page = paused(visit)
    sentence = sentences()[1]
    choose(page, sentence)
    gaps = [each.shares[0] - each.shares[1] for each in own(sentence)]
    fork = gaps.index(min(gaps))
    scrub(page, fork + 1)
    page.locator(f"{BAR} button").nth(1).click()
    button(page, "Play").wait_for(timeout=20_000)
    status = page.locator(f"{PART} [role=status]").text_content()
    assert f"“{sentence['steps'][fork][2][0][0]}”" in status
    assert f"“{sentence['said']}”" in status


def test_reduced_motion_stands_still_with_all_in_reach(visit):
    page = opened(visit, reduced_motion="reduce")
    sentence = sentences()[0]
    assert line(page) == names(sentence)
    before = state(page)
    page.wait_for_timeout(3000)
    assert state(page) == before
    part = page.locator(PART)
    moving = "part => part.getAnimations({ subtree: true }).length"
    assert part.evaluate(moving) == 0
    button(page, "Back").click()
    assert line(page) == names(sentence)[:-1]
    scrub(page, 0)
    button(page, "Play").click()
    for _ in range(20):  # asked for, it goes on by jumps
        assert part.evaluate(moving) == 0
        page.wait_for_timeout(200)
    assert line(page)
    part.locator("summary").click()
    assert part.locator("tbody tr").count() == len(names(sentence))


@pytest.mark.parametrize("width", [360, 1280])
def test_the_text_below_never_moves(visit, width):
    def height(page):
        return round(page.locator(PART).bounding_box()["height"])

    still = opened(visit, width=width, java_script_enabled=False)
    heights = {height(still)}
    page = opened(visit, width=width)
    page.locator(PART).scroll_into_view_if_needed()
    for _ in range(30):
        heights.add(height(page))
        page.wait_for_timeout(100)
    button(page, "Pause").click()
    for sentence in sentences():
        choose(page, sentence)
        for number in range(len(sentence["steps"]) + 1):
            scrub(page, number)
            heights.add(height(page))
        scrub(page, 1)
        page.locator(f"{BAR} button").nth(1).click()
        button(page, "Pause").click()
        scrub(page, 99)
        heights.add(height(page))
    assert len(heights) == 1, heights


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


def test_the_address_brings_it_back(visit):
    page = paused(visit)
    sentence = sentences()[2]
    choose(page, sentence)
    scrub(page, 1)
    page.locator(f"{BAR} button").nth(1).click()
    button(page, "Pause").click()
    scrub(page, 3)
    address = page.evaluate("location.hash")
    again = opened(visit, address)
    assert line(again) == line(page) != names(sentence)[:3]
    again.wait_for_timeout(2500)
    assert line(again) == line(page)  # it does not start by itself
    for odd in ["#play.step=no&play.sentence=77", "#play.step=99"]:
        assert opened(visit, odd).locator(PART).is_visible()


def test_the_first_screen_has_it_whole(visit):
    """At 1280 by 800 from the source to the line, and Pause."""
    page = opened(visit)
    for what in [".live-main", ".play-source", ".play-bars", ".play-target"]:
        box = page.locator(f"{PART} {what}").bounding_box()
        assert box["y"] + box["height"] <= 800, what
    link = page.locator("a[href='#index-own']").first
    assert link.bounding_box()["y"] <= 800  # to the translator
    phone = opened(visit, width=375, height=667)
    box = button(phone, "Pause").bounding_box()
    assert box["y"] + box["height"] <= 667
    # one that nobody touches writes the line where it can be seen
    phone = opened(visit, width=360, height=780)
    wanted = names(sentences()[0])
    written = phone.locator(f"{LINE} li")
    expect(written).to_have_text(wanted, timeout=15_000)
    box = phone.locator(f"{PART} .play-target button").first.bounding_box()
    assert box["y"] + box["height"] <= 780


@pytest.mark.parametrize("width", [360, 375, 768])
def test_no_word_is_crossed_and_nothing_is_cut_off(visit, width):
    page = paused(visit, width=width)
    for sentence in sentences():
        choose(page, sentence)
        scrub(page, 99)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        boxes = [
            word.bounding_box()
            for word in page.locator(f"{PART} .play-source li").all()
        ]
        assert len({round(box["y"]) for box in boxes}) == 1
        right = max(box["x"] + box["width"] for box in boxes)
        outer = page.locator(PART).bounding_box()
        assert right <= outer["x"] + outer["width"]
        cut = page.locator(f"{PART} .play-token").evaluate_all(
            "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).length"
        )
        assert not cut


@in_all_looks
def test_it_is_accessible(visit, fits, look):
    page = paused(visit, **look)
    page.locator(f"{PART} summary").click()
    for sentence in sentences()[:2]:
        choose(page, sentence)
        for number in [0, 1, 4, 99]:
            scrub(page, number)
            fits(page, PART)


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
