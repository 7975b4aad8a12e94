"""Cover a word, on the first page, in a real browser."""

import itertools
import json
import re

import pytest
import tangle
import torch
from parts import given, greedily, shipped
from playwright.sync_api import expect

PAGE = "index.html"
PART = ".live[data-live=cover]"
SENTENCES = json.loads(
    (tangle.ROOT / "web" / "sentences.json").read_text("utf-8")
)
TOLD = [  # what the book tells of: sentence, covered word, what is written
    ("A girl in", "ball", "wirft einen Hund."),
    ("A girl in", "girl", "Ein Mann in einem roten Kleid"),
    ("I love you.", "I", "Du liebst dich."),
    ("The boy", "not", "Al niño le gusta mi llave roja"),
    ("I like trees", "trees", "gustan"),
]


def test_recorded_coverings_are_the_librarys():
    """Every word of every sentence, covered as the library's decoder is."""
    recorded = given(PAGE, "cover")
    for one, listed in zip(recorded, SENTENCES["cover"], strict=True):
        name, text = listed["model"], listed["text"]
        assert (one["model"], one["text"]) == (name, text)
        tokenizer = shipped(name).tokenizer
        words = re.findall(r"\w+", text)
        for word, state in zip(["", *words], one["states"], strict=True):
            covered = [one["source"][place] for place in state["covered"]]
            assert "".join(covered).replace("▁", "") == word
            ids = greedily(name, text, covered=state["covered"])
            assert state["said"] == tokenizer.decode(ids)
            assert state["tokens"] == tokenizer.pieces(ids)
            looked = torch.tensor(state["looked"])
            assert not looked[:, state["covered"]].any()
            assert state["means"], f"{state['said']!r} has no English"


# What is seen


def opened(visit, state="", **settings):
    settings = {"width": 1280, "height": 800} | settings
    page = visit(f"{PAGE}{state}", **settings)
    if settings.get("java_script_enabled", True):
        page.locator(f"{PART} .cover-source button").first.wait_for()
    return page


def stop_the_clock(page) -> None:
    """Its two seconds pass when the test says so, on any machine."""
    page.clock.install(time=0)
    page.clock.pause_at(1)


def line(page, of="target") -> str:
    text = page.locator(f"{PART} .cover-{of}").inner_text()
    return re.sub(r"\s+([.,?!])", r"\1", " ".join(text.split()))


def word(page, text):
    source = page.locator(f"{PART} .cover-source")
    return source.get_by_role("button", name=text, exact=True).first


def status(page) -> str:
    return page.locator(f"{PART} [role=status]").text_content()


def covered(page) -> list[str]:
    pressed = page.locator(f"{PART} .cover-source [aria-pressed=true]")
    return pressed.all_text_contents()


def choose(page, start) -> None:
    picks = page.locator(f"{PART} .cover-picks button")
    picks.filter(has_text=re.compile(f"^{re.escape(start)}")).click()


def wait_for_line(page, text) -> None:
    target = page.locator(f"{PART} .cover-target")
    pattern = r"\s*".join(map(re.escape, re.findall(r"\w+|[.,]", text)))
    expect(target).to_have_text(re.compile(pattern), timeout=60_000)


def test_untouched_it_covers_a_word_once(visit):
    """After two seconds, from what the page has: nothing is asked for."""
    page = opened(visit, prepare=stop_the_clock)
    page.clock.run_for(2500)
    whole = "Ein Mädchen in einem roten Kleid wirft einen Ball zu ihrem Hund."
    wait_for_line(page, "wirft einen Hund.")
    before = page.locator(f"{PART} .cover-was").inner_text()
    assert before == f"Before, in German: {whole}"
    ways = page.locator(f"{PART} .cover-ways")
    assert ways.inner_text().startswith("Touch another")
    assert covered(page) == ["ball"]
    assert (
        page.locator(f"{PART} .cover-means")
        .inner_text()
        .endswith("A girl in a red dress throws a dog.")
    )
    removed = page.locator(f"{PART} .cover-was del").all_text_contents()
    assert removed == ["Ball", "zu", "ihrem"]
    told = status(page)
    assert told.startswith("Covered: ball. Now: Ein Mädchen in einem roten")
    page.clock.run_for(5000)
    assert covered(page) == ["ball"]
    page.locator(PART).get_by_role("button", name="Uncover").click()
    assert page.evaluate("document.activeElement.textContent") == "ball"
    for url in page.asked:
        assert not re.search(r"\.bin", url)


def test_each_sentence_shows_what_it_can_do(visit):
    """Chosen, it covers its own most surprising word, once."""
    page = opened(visit, prepare=stop_the_clock)
    for one in given(PAGE, "cover")[1:]:
        choose(page, one["text"])
        page.clock.run_for(3000)
        assert covered(page) == [one["opens_on"]]
        word(page, one["opens_on"]).click()
        page.clock.run_for(3000)
        assert not covered(page)
    key = page.locator(f"{PART} .cover-key").inner_text()
    assert key == "Ribbons: where the decoder looks"


def test_it_stands_still_if_asked(visit):
    """By its button, or by what the reader has set for all pages."""
    paused = opened(visit, prepare=stop_the_clock)
    paused.locator(PART).get_by_role("button", name="Pause").click()
    assert paused.evaluate("document.activeElement.textContent") == "A"
    reduced = opened(visit, reduced_motion="reduce", prepare=stop_the_clock)
    for page in paused, reduced:
        page.clock.run_for(5000)
        assert not covered(page) and "Ball" in line(page)
    word(reduced, "ball").click()
    wait_for_line(reduced, "wirft einen Hund.")
    moving = "part => part.getAnimations({ subtree: true }).length"
    assert reduced.locator(PART).evaluate(moving) == 0


def by_keys(button):
    button.focus()
    button.page.keyboard.press("Space")


def test_what_the_book_tells_of(visit):
    """By mouse, by touch and by keyboard in turn."""
    page = opened(visit, has_touch=True, reduced_motion="reduce")
    ways = lambda one: one.click(), lambda one: one.tap(), by_keys
    for (start, text, wanted), cover in zip(TOLD, 2 * ways, strict=False):
        choose(page, start)
        before = line(page)
        cover(word(page, text))
        wait_for_line(page, wanted)
        assert f"Covered: {text}. Now: " in status(page)
        cover(word(page, text))  # and uncovered again
        expect(page.locator(f"{PART} .cover-was")).to_contain_text("Touch")
        assert line(page) == before and not covered(page)


def test_another_touch_moves_the_cover(visit):
    """From any word to any other, the picture is that of the one."""
    page = opened(visit, reduced_motion="reduce")
    for number in 1, 4:
        one = given(PAGE, "cover")[number]
        choose(page, one["text"])
        words = re.findall(r"\w+", one["text"])
        for before, after in itertools.permutations(range(len(words)), 2):
            for place in before, after:
                word(page, words[place]).click()
            wait_for_line(page, one["states"][after + 1]["said"])
            assert covered(page) == [words[after]]
            assert not page.locator(f"{PART} .cover-snapped").count()
            word(page, words[after]).click()


def test_every_ribbon_leads_from_a_word_to_a_word(visit):
    """As wide as recorded; none from a covered word, wrapped or not.

    In several lines only the widest are drawn.
    """
    for width, least, thin in (360, 6, 5.9), (1280, 16, 2.3):
        page = opened(visit, width=width, reduced_motion="reduce")
        word(page, "ball").click()
        wait_for_line(page, "wirft einen Hund.")
        ends = page.evaluate(
            """part => {
              const arcs = document.querySelector(`${part} .ribbons`);
              const box = arcs.getBoundingClientRect();
              const middle = one => {
                const { left, width } = one.getBoundingClientRect();
                return left + width / 2 - box.left;
              };
              const words = name => [...document.querySelectorAll(
                `${part} .cover-${name} > span > *`)];
              return [...arcs.children].map(path => {
                // down past other words, in a curve, down past others
                const numbers = path.getAttribute("d")
                  .match(/[-\\d.]+/g).map(Number);
                const x0 = numbers[0], x1 = numbers[7];
                const wide = numbers[10] - x1;
                return {
                  from: Number(path.dataset.source), wide,
                  off: Math.abs(x0 + wide / 2
                      - middle(words("source")[path.dataset.source]))
                    + Math.abs(x1 + wide / 2
                      - middle(words("target")[path.dataset.target])),
                };
              });
            }""",
            PART,
        )
        assert len(ends) >= least
        assert all(one["off"] < 1 for one in ends)
        assert 8 not in {one["from"] for one in ends}  # ball
        assert all(thin < one["wide"] < 24.1 for one in ends)
        page.set_viewport_size({"width": 700, "height": 800})
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 700


PHONE = {"width": 390, "height": 844, "has_touch": True, "is_mobile": True}


def test_a_finger_on_a_translated_word_shows_its_ribbons(visit):
    """They stay until it touches something else."""
    page = opened(visit, reduced_motion="reduce", **PHONE)
    strong = "path:not(.ribbon-dim)"
    ribbons = page.locator(f"{PART} .ribbons {strong}")
    every = ribbons.count()
    page.locator(f"{PART} .cover-target span span").first.tap()
    targets = ribbons.evaluate_all("all => all.map(o => o.dataset.target)")
    assert targets and set(targets) == {"0"} and len(targets) < every
    page.locator(f"{PART} .cover-stage").tap(position={"x": 4, "y": 100})
    assert ribbons.count() == every


def test_on_a_phone_the_form_and_what_comes_of_it_are_seen(visit):
    page = opened(visit, reduced_motion="reduce", **PHONE)
    choose(page, "Your own")
    go = page.locator(PART).get_by_role("button", name="Load the model")
    expect(go).to_be_in_viewport(ratio=1)
    page.locator(PART).get_by_label("A sentence in English").fill("I run.")
    go.click()
    target = page.locator(f"{PART} .cover-target")
    expect(target).to_contain_text("Ich", timeout=60_000)
    expect(target).to_be_in_viewport(ratio=1)


def test_the_address_brings_a_state_back(visit):
    page = opened(visit)
    choose(page, "I love you.")
    word(page, "I").click()
    wait_for_line(page, "Du liebst dich.")
    address = page.evaluate("location.hash")
    again = opened(visit, address, prepare=stop_the_clock)
    again.clock.run_for(5000)
    wait_for_line(again, "Du liebst dich.")
    assert covered(again) == ["I"]
    for odd in ["#cover.sentence=77&cover.covered=x", "#cover.covered=3"]:
        assert opened(visit, odd).locator(PART).is_visible()


@pytest.mark.parametrize("width", [360, 390, 1280])
def test_the_text_below_does_not_move(visit, fits, width):
    """While the words of a sentence are covered, one by one."""
    page = opened(visit, width=width, reduced_motion="reduce")
    recorded = given(PAGE, "cover")[0]
    heights = set()
    for number, text in enumerate(re.findall(r"\w+", recorded["text"])):
        button = page.locator(f"{PART} .cover-source button").nth(number)
        assert button.text_content() == text
        button.click()
        wait_for_line(page, recorded["states"][number + 1]["said"])
        heights.add(round(page.locator(PART).bounding_box()["height"]))
        if text == "ball" and width == 360:
            fits(page, PART)
        button.click()
    assert len(heights) == 1, heights


def test_two_states_without_a_script_and_on_paper(visit):
    page = opened(visit, java_script_enabled=False)
    for text in ["zu ihrem Hund.", "wirft einen Hund.", "throws a dog."]:
        assert page.locator(PART).get_by_text(text).is_visible()
    page = opened(visit)
    page.emulate_media(media="print")
    for text in ["zu ihrem Hund.", "wirft einen Hund."]:
        still = page.locator(f"{PART} .cover-still")
        assert still.get_by_text(text).is_visible()
    assert not page.locator(f"{PART} .cover-stage").is_visible()


def test_a_first_screen(visit):
    """One claim, the frame, three doors; no form before the picture."""
    for width, height, what in [
        (1280, 800, [".cover-target", ".cover-was", ".cover-doors"]),
        (390, 844, [".cover-target", ".cover-was", ".cover-doors"]),
        (360, 780, [".cover-target", ".cover-was"]),
    ]:
        page = opened(visit, width=width, height=height)
        wait_for_line(page, "wirft einen Hund.")
        for part in what:
            box = page.locator(part).first.bounding_box()
            assert box["y"] + box["height"] <= height, part
    fields = page.evaluate(
        """() => {
          const frame = document.querySelector(".cover-stage");
          return [...document.querySelectorAll(
            "article :is(input, select, textarea)")].filter(one =>
              one.compareDocumentPosition(frame) & 4).length;
        }"""
    )
    assert fields == 0
    assert page.locator(".cover-doors a").count() == 3


# Two words at once, and a sentence of one's own


def test_two_words_where_the_model_is(visit):
    """With Shift; before it is loaded, a touch moves the cover as ever."""
    page = opened(visit, reduced_motion="reduce")
    choose(page, "I love you.")
    word(page, "I").click()
    wait_for_line(page, "Du liebst dich.")
    word(page, "you").click(modifiers=["Shift"])
    wait_for_line(page, given(PAGE, "cover")[1]["states"][3]["said"])
    assert covered(page) == ["you"]
    choose(page, "Your own")
    page.locator(PART).get_by_label("A sentence in English").fill(
        "I love you."
    )
    page.locator(PART).get_by_role(
        "button", name=re.compile("Load the model")
    ).click()
    word(page, "I").click()
    word(page, "you").click(modifiers=["Shift"])
    ids = greedily("tatoeba-en-de", "I love you.", covered=[0, 2])
    wait_for_line(page, shipped("tatoeba-en-de").tokenizer.decode(ids))
    expect(page.locator(f"{PART} [role=status]")).to_contain_text(
        "Covered: I and you. Now: "
    )


def test_a_letter_of_several_tokens_is_part_of_its_word(visit):
    texts = opened(visit).evaluate(
        """async () => {
          const { wordsOf } = await import("/_static/live/covering.js");
          const tokens = ["▁na", "\\ufffd", "\\ufffd", "ve", "."];
          const words = wordsOf(tokens, (places) => places.join(""));
          return words.map(({ text }) => text);
        }"""
    )
    assert texts == ["0123", "4"]


def test_a_sentence_of_ones_own(visit):
    page = opened(visit, reduced_motion="reduce")
    choose(page, "Your own")
    field = page.locator(PART).get_by_label("A sentence in English")
    field.fill("I lost my umbrella.")
    go = page.locator(PART).get_by_role(
        "button", name=re.compile("Load the model")
    )
    assert re.search(r"\([\d.]+\sMB\)", go.text_content())
    go.click()
    wait_for_line(page, "Ich habe meinen Schirm verloren.")
    word(page, "umbrella").click()
    library = shipped("tatoeba-en-de")
    text = "I lost my umbrella."
    place = library.tokenizer.pieces(library.encode([text])[0])
    ids = greedily("tatoeba-en-de", text, covered=[place.index("▁umbrella")])
    wait_for_line(page, library.tokenizer.decode(ids))
    again = opened(visit, page.evaluate("location.hash"))
    wait_for_line(again, library.tokenizer.decode(ids))
    assert covered(again) == ["umbrella"]
