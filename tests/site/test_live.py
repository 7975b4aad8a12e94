"""The live parts in a real browser, beside the library's own numbers."""

import json
import math
import re
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
import tangle
import torch
from parts import (
    DATA,
    SITE,
    beams_of,
    greedily,
    library_beam,
    number,
    numbers,
    plain,
    press,
    shipped,
    slide,
)
from playwright.sync_api import expect

from transformer_book.figures import COLOURS, SIGNED
from transformer_lib import causal_mask, load_corpus, padding_mask, sinusoids

PAGES = {  # the chapter that a live part stands in
    "positions": "book/architecture/positions.html",
    "masks": "book/architecture/masks.html",
    "beams": "book/translating/beams.html",
    "attention": "book/results/attention_maps.html",
    "translate": "index.html",
}
ONE_SCREEN = [
    *list(PAGES.values())[:-1],
    "book/architecture/attention.html",
    "book/start/learning.html",
    "book/start/sentence.html",
    "book/translating/decoding.html",
]
PICK_A_TARGET = "Pick a token of the trans"
ODD = [
    "Trees",
    "No",
    "i LIKE trees",
    "I want trees because I like books",
    "Schadenfreude and Gemütlichkeit",
    "The 3 red, new, old & big houses!",
    "  I like   trees  ",
    "日本 😀",
    "<bos> the girls <eos>",
    "I don't like Ana's house",
    "I\u00a0like\t the\r\ntrees",
    "Gemu\u0308tlich\u00adkeit\u3000is\u200b\u2028fine",
]


def opened(visit, name, state="", width=1200, prepare=None):
    """A chapter, with its part drawn."""
    page = visit(PAGES[name] + state, prepare, width=width)
    # Two pages have a second part, with tests of its own.
    page.evaluate("document.querySelector('[data-live=cover]')?.remove()")
    page.wait_for_selector(".live-result, .live-missing[role=status]")
    return page


def put(part, label, value):
    slide(part.get_by_role("slider", name=label, exact=True), value)


def wait_for_text(page, text, place=".live .live-result"):
    page.locator(place, has_text=text).first.wait_for(timeout=60_000)


# Masks and positions


def test_positions(visit):
    page = opened(visit, "positions", width=1280)
    part = page.locator("[data-part=positions]")
    d_model, position = 256, 127
    said = part.locator(".live-result")
    assert "too fast" in said.text_content()
    turns = [2 * torch.pi * 10000 ** (i / 64) / 32 for i in range(0, 64, 2)]
    nearest = min(range(32), key=lambda i: abs(math.log(turns[i])))
    put(part, "dimension", 2 * nearest)  # the one that is asked for
    assert said.text_content().startswith("✓")
    put(part, "dimension", 2 * nearest + 2)
    assert "too slow" in said.text_content()
    put(part, "length", 128)
    put(part, "d_model", d_model)
    put(part, "position", position)
    put(part, "dimension", 1)
    cells = part.locator("tbody td:last-child").all_text_contents()
    wanted = sinusoids(position + 1, d_model)[position]
    shown = numbers(cells)
    assert shown.shape == wanted.shape
    assert (shown - wanted).abs().max() < 6e-5  # four decimals
    assert part.get_by_text(f"Position {position}, dimension 1: cos(").count()


def test_masks(visit):
    """The decoder's: padding and what comes later."""
    page = opened(visit, "masks")
    part = page.locator("[data-part=masks]")
    kind = "both (the decoder's)"
    part.get_by_role("radio", name=kind, exact=True).check()
    put(part, "length", 7)
    put(part, "padding", 3)
    ids = torch.tensor([[4, 5, 6, 7, 0, 0, 0]])
    mask = (padding_mask(ids) & causal_mask(7))[0, 0]
    text = part.locator("pre").text_content()
    rows = [[int(n) for n in row.split()] for row in text.split("\n")]
    assert torch.equal(torch.tensor(rows).bool(), mask)
    # what is asked: the rows in which padding closes what the triangle opens
    said = part.locator(".live-result")
    for query, (both, alone) in enumerate(
        zip(mask, causal_mask(7)[0, 0], strict=True)
    ):
        put(part, "query", query)
        found = said.text_content().startswith("✓")
        assert found == (not torch.equal(both, alone))


# What the other pages read


def chosen(page):
    """The sentence that is chosen."""
    return page.get_by_label("sentence", exact=True).evaluate(
        "select => select.selectedOptions[0].textContent"
    )


def fits_a_phone(page):
    page.set_viewport_size({"width": 360, "height": 800})
    width = page.evaluate("document.documentElement.scrollWidth")
    return width <= 360


PART = "article .live:not([data-live=cover], [data-live=editor])"
TOUCHED = {"has_touch": True, "is_mobile": True}


@pytest.mark.parametrize("page", ONE_SCREEN)
@pytest.mark.parametrize("width", [1280, 390])
def test_a_part_is_one_screen_and_its_room_was_kept(visit, page, width):
    """Nothing below it moves when it comes, on a phone neither."""
    high, touched = (844, TOUCHED) if width == 390 else (640, {})
    page = visit(page, width=width, height=844, **touched)
    part = page.locator(PART).first
    part.scroll_into_view_if_needed()
    part.locator(":is(button, [role=slider], input)").first.wait_for()
    room = part.evaluate("one => parseFloat(getComputedStyle(one).minHeight)")
    height = part.bounding_box()["height"]
    assert room - 1 < height <= min(room + 16, high)


# The least heights at which controls are met: at their middle, from the
# first to the last pixel that is theirs.
REACH = """() => {
  const found = [];
  document.documentElement.style.scrollBehavior = "auto";
  for (const one of document.querySelectorAll(
    ".live :is(button:not(.copybtn), select, summary, input)")) {
    const aim = one.closest("label") ?? one;
    if (one.disabled || !one.checkVisibility()) continue;
    aim.scrollIntoView({ block: "center" });
    const box = aim.getBoundingClientRect();
    const [x, y] = [box.x + Math.min(box.width / 2, 20), box.y];
    const hit = at => aim.contains(document.elementFromPoint(x, at));
    const middle = y + box.height / 2;
    let [up, down] = [0, 0];
    while (up < 30 && hit(middle - up - 1)) up++;
    while (down < 30 && hit(middle + down + 1)) down++;
    const kind = one.parentElement.className || one.parentElement.tagName;
    const name = one.ariaLabel || one.textContent || one.type;
    found.push([kind, name.slice(0, 30), up + down + 1]);
  }
  return found;
}"""
SMALL = {  # what many of one kind share a screen with
    "live-buttons cover-picks": 28,
    "zoom-layer": 26,
}


@pytest.mark.parametrize(
    "page", [*ONE_SCREEN, "index.html", "book/start/one_file.html"]
)
def test_a_finger_meets_what_it_aims_at(visit, page):
    page = visit(page, width=390, height=844, **TOUCHED)
    page.locator(".live :is(button, input)").first.wait_for()
    found = page.evaluate(REACH)
    assert found
    least = [one for one in found if one[2] < SMALL.get(one[0], 30)]
    assert not least


# Beam search, replayed


def test_replay(visit):
    page = opened(visit, "beams", width=1280)
    text = chosen(page)
    assert text == "The girls buy them"  # of which the page tells
    wait_for_text(page, "The search stops")  # the whole of it, at first
    press(page, "Replay")
    wait_for_text(page, "Nothing is said yet")
    press(page, "Step")
    wait_for_text(page, "Step 1 of")
    page.get_by_role("button", name="Step").press("Enter")
    wait_for_text(page, "Step 2 of")
    part = page.locator("[data-live=beams]")
    height = part.bounding_box()["height"]
    page.get_by_role("slider").press("End")
    wait_for_text(page, "The search stops")
    assert part.bounding_box()["height"] == height
    rows = part.locator("table").first.locator("tbody tr")
    wanted = library_beam("little-spanish", text)
    for row, (said, _, *log_and_score) in zip(
        rows.all(), wanted, strict=False
    ):
        cells = row.locator("td").all_text_contents()
        assert cells[1] == said
        found = [number(cell) for cell in cells[3:5]]
        assert found == pytest.approx(log_and_score, abs=2e-3)
    assert rows.count() == len(wanted) + 1
    greedy = shipped("little-spanish").translate(text, beam_size=1)
    assert greedy[:45] in rows.last.text_content()
    assert "beams.step=" in page.url
    assert fits_a_phone(page)
    page.locator("summary", has_text="This step").click()
    check_tables(page, 2)
    # Of another sentence the search is made here.
    page.get_by_label("sentence", exact=True).select_option("3")
    wait_for_text(page, "The search stops")
    best = library_beam("little-spanish", chosen(page))[0][0]
    expect(rows.first.locator("td").nth(1)).to_have_text(best, timeout=30_000)


def test_the_replays_show_what_the_page_says():
    """What the text tells the reader to notice, of one sentence."""
    text, maker = "The girls buy them", shipped("little-spanish")
    greedy = maker.translate(text, beam_size=1)
    assert len(greedy) > 3 * len(maker.translate(text))


def test_an_address_that_means_nothing_and_one_of_two_parts(visit):
    """It shows what it can, and leaves what is another part's alone."""
    state = "#beams.beam=3&beams.alpha=x&beams.sentence=99&%&beams.model=no"
    page = opened(visit, "beams", state)
    wait_for_text(page, "The search stops")
    assert page.get_by_label("4, the paper's").is_checked()
    page = opened(visit, "beams", "#play.step=2&beams.step=1")
    wait_for_text(page, "Step 1 of")
    page.get_by_role("button", name="Step").click()
    kept = page.evaluate("location.hash").lstrip("#").split("&")
    assert {"play.step=2", "beams.step=2"} <= set(kept)


def test_quick_switching_shows_what_was_chosen_last(visit):
    def later(route):  # the first sentence's answer
        page.wait_for_timeout(400)
        route.continue_()

    page = opened(visit, "attention")
    page.locator(".live-word").first.wait_for()
    page.route("**/attention/1.bin", later)
    page.get_by_label("sentence", exact=True).evaluate(
        "select => { for (const value of ['1', '2']) {"
        " select.value = value;"
        " select.dispatchEvent(new Event('change')) } }"
    )
    page.wait_for_timeout(1000)
    words = page.get_by_role("group", name=PICK_A_TARGET)
    name = page.get_by_label("model", exact=True).input_value()
    said = shipped(name).attention(chosen(page)).predicted
    assert words.locator("button").count() == len(said)
    assert words.locator("button").first.text_content() == plain(said[0])


def test_what_is_lost_on_the_way_is_asked_for_again(visit):
    """By the next choice; until then one sentence says so."""
    page = opened(visit, "attention")
    page.locator(".live-word").first.wait_for()
    page.route("**/attention/1.bin", lambda route: route.abort())
    sentence = page.get_by_label("sentence", exact=True)
    note = page.locator(".live-which .live-axis")
    sentence.select_option("1")
    expect(note).to_contain_text("could not be loaded. Is there still")
    assert page.problems and not page.problems.clear()
    page.unroute("**/attention/1.bin")
    sentence.select_option("2")
    sentence.select_option("1")
    expect(note).to_be_empty()
    expect(page.locator(".live-result")).to_contain_text(" looked at ")
    # Of a model that cannot come, the sentences are not asked for either.
    model = page.get_by_label("model", exact=True)
    name, asked = model.input_value(), chosen(page)
    page.route("**/little-spanish/**", lambda route: route.abort())
    model.select_option("little-spanish")
    expect(note).to_contain_text("could not be loaded. Is there still")
    assert page.problems and not page.problems.clear()
    assert (model.input_value(), chosen(page)) == (name, asked)
    sentence.select_option("2")
    expect(note).to_be_empty()


@pytest.mark.parametrize("name", ["positions", "masks"])
def test_a_part_that_was_hidden_has_its_width_when_it_is_shown(visit, name):
    hide = "localStorage.setItem('book-shows', 'code')"
    page = visit(PAGES[name], lambda page: page.add_init_script(hide))
    canvas = page.locator(f"[data-part={name}] canvas")
    canvas.wait_for(state="attached")
    assert not canvas.is_visible()
    page.evaluate("document.documentElement.dataset.shows = 'all'")
    page.wait_for_function(
        "one => one.clientWidth && one.width === one.clientWidth",
        arg=canvas.element_handle(),
    )


# Attention explorer


def test_attention(visit):
    name = "little-spanish"
    state = f"#attention.model={name}&attention.sentence=7"
    state += "&attention.kind=decoder&attention.layer=1"
    state += "&attention.head=2&attention.word=3"
    page = opened(visit, "attention", width=1280)
    page.locator(".live-word").first.wait_for()  # on its chapter's sentence
    path = tangle.ROOT / "book" / "results" / "attention_maps.md"
    assert f":sentence: {chosen(page)}\n" in path.read_text("utf-8")
    said = page.locator(".live-result").text_content()
    assert said.startswith("wirft looked at throws 9")
    assert page.locator(".ribbons path:not(.ribbon-dim)").count() == 1
    page.get_by_role("button", name="The token before 4.4").click()
    said = page.locator(".live-result").text_content()
    assert said.startswith("a looks at throws 9")  # of the ball
    page = opened(visit, "attention", state)
    page.locator(".live-word").first.wait_for()
    found = shipped(name).attention(chosen(page))
    page.locator("summary", has_text="All weights").click()
    check_weights(page, found.maps["decoder.layers.0.self_attention"][1])
    said = page.locator(".live-result").text_content()
    assert said.startswith(f"{plain(found.predicted[3])} looked at ")
    page.get_by_label("cross", exact=True).check()
    press(page, "layer 2, average of its heads")
    check_weights(page, found.maps["decoder.layers.1.cross_attention"].mean(0))
    assert "attention.kind=cross&attention.layer=2" in page.url
    tokens = page.get_by_role("group", name=PICK_A_TARGET)
    tokens.get_by_role("button").first.press("ArrowRight")
    assert "attention.word=1" in page.url
    assert fits_a_phone(page)


def check_weights(page, weights):
    cells = page.locator(".live-weights td").all_text_contents()
    shown = np.array([int(cell) for cell in cells if cell])
    wanted = 100 * weights.numpy().flatten()
    assert np.abs(shown - wanted).max() <= 0.75  # rounded twice


def check_tables(page, count):
    """No table is wider than its place."""
    places = page.locator(".live-scroll:has(.live-table)")
    assert places.count() == count
    for place in places.all():
        wide = place.evaluate("e => e.scrollWidth - e.clientWidth")
        assert wide <= 0, place.text_content()


# Translate

LITTLE = "#translate.model=little-spanish"


def test_translate_as_a_reader(visit):
    page = opened(visit, "translate", LITTLE, width=360)
    field = page.get_by_label("A sentence in English")
    field.press("Enter")
    wait_for_text(page, "write a sentence")
    field.fill("I like trees")
    page.keyboard.press("Enter")
    wait_for_text(page, "Me gustan los árboles")
    rows = page.locator(".live-table tbody tr")
    wanted = library_beam("little-spanish", "I like trees")
    for row, (text, *_, score) in zip(rows.all(), wanted, strict=True):
        cells = row.locator("td").all_text_contents()
        assert cells[1] == text
        assert abs(number(cells[4]) - score) < 2e-3
    assert fits_a_phone(page)
    check_tables(page, 1)
    press(page, "gustan")
    wait_for_text(page, "gustan looked at")
    maker = shipped("little-spanish")
    found = maker.attention("I like trees", "Me gustan los árboles")
    place = found.predicted.index("▁gustan")
    cross = [one for path, one in found.maps.items() if "cross" in path]
    mean = torch.stack(cross).mean((0, 1))[place]
    best = found.source[int(mean.argmax())]
    said = page.locator(".live-result").last.text_content()
    assert said.startswith(f"gustan looked at {plain(best)} ")
    page.get_by_label("beam size").fill("1")
    field.fill("I like Schadenfreude")
    page.keyboard.press("Enter")
    wait_for_text(page, "Never seen in training: Schadenfreude", ".live")
    wait_for_text(page, " s for ")
    assert rows.count() == 1
    field.fill("the big red house " * 200)
    page.keyboard.press("Enter")
    wait_for_text(page, "this page takes sentences of up to")
    assert fits_a_phone(page)


def test_examples_and_sliders_translate_at_once(visit):
    page = opened(visit, "translate", LITTLE)
    page.locator(".live-main").click()
    wait_for_text(page, "write a sentence")
    example = page.get_by_role("button", name="I like trees", exact=True)
    example.click()
    wait_for_text(page, "Me gustan los árboles")
    assert not page.get_by_text("write a sentence").count()
    field = page.get_by_label("A sentence in English")
    assert field.input_value() == "I like trees"
    rows = page.locator(".live-table tbody tr")
    for width in 2, 1, 3:
        put(page.locator(".live"), "beam size", width)
        expect(rows).to_have_count(width, timeout=30_000)
    put(page.locator(".live"), "length penalty α", 0)
    page.wait_for_function(
        "() => { const cells = [...document.querySelectorAll("
        "'.live-table tbody td')].map(one => one.textContent);"
        " return cells.length && cells[3] === cells[4]; }"  # lp is 1
    )
    field.fill("I like tre")  # what was found belongs to other words
    assert not rows.first.is_visible()
    assert not page.locator(".live-result").first.text_content()


def test_a_download_that_fails_says_so(visit):
    """Lost or cut off; another try gets what the button says."""
    page, answers = opened(visit, "translate", LITTLE), []
    page.on("response", lambda answer: answers.append(answer))
    said = page.locator(".live-main").text_content()
    cut = (DATA / "little-spanish" / "model.bin").read_bytes()[:5000]
    example = page.get_by_role("button", name="I like trees", exact=True)
    for fail, words in [
        (lambda route: route.abort(), "could not be loaded. Is there still"),
        (lambda route: route.fulfill(body=cut), "was cut off"),
    ]:
        page.route("**/model.bin", fail)
        example.click()
        wait_for_text(page, words)
        page.unroute("**/model.bin")
    page.problems.clear()
    answers.clear()
    example.click()
    wait_for_text(page, "Me gustan los árboles")
    sizes = {
        one.url: int(one.headers["content-length"])
        for one in answers
        if "/live/data/" in one.url
    }
    assert len(sizes) == 3
    assert f"({sum(sizes.values()) / 1e6:.1f}\xa0MB)" in said


def test_a_paragraph_is_translated_sentence_by_sentence(visit):
    page = opened(visit, "translate")
    field = page.get_by_label("A sentence in English")
    texts = (
        "I lost my umbrella.",
        "Where is the train station?",
        "I saw Mr. Smith.",
    )
    field.fill(" ".join(texts))
    page.keyboard.press("Enter")
    found = [library_beam("tatoeba-en-de", text)[0][0] for text in texts]
    wait_for_text(page, " ".join(found))
    wait_for_text(page, "3 sentences one by one")
    part = page.locator("[data-live=translate]")
    old = part.locator(".live-result strong").element_handle()
    put(part, "beam size", 1)  # and all of them anew
    page.wait_for_function("old => !old.isConnected", arg=old)
    wait_for_text(page, "3 sentences one by one")


def test_typing_while_a_model_is_loaded(visit):
    """Leaves nothing of the loading behind."""
    page, held = opened(visit, "translate", LITTLE), []
    page.route("**/model.bin", lambda route: held.append(route))
    field = page.get_by_label("A sentence in English")
    field.fill("I like trees")
    field.press("Enter")
    wait_for_text(page, "Loading the model")
    field.fill("I like tre")
    held[0].continue_()
    button = page.locator("[data-live=translate] .live-main")
    expect(button).to_have_text("Translate", timeout=30_000)
    expect(page.locator(".live-result").first).to_be_empty()


def test_capitals_and_dates_are_told_of(visit):
    """Why they come out wrong, in one sentence."""
    page = opened(visit, "translate")
    field = page.get_by_label("A sentence in English")
    note = page.locator("[data-live=translate] .live-note")
    for text, why in [
        ("THE DOG IS TIRED", "single letters"),
        ("I was born on 12.5.2024.", "one or two digits"),
    ]:
        field.fill(text)
        page.keyboard.press("Enter")
        expect(note).to_contain_text(why, timeout=60_000)
        pieces = shipped("tatoeba-en-de").tokenizer.pieces(
            shipped("tatoeba-en-de").encode([text])[0]
        )
        odd = [one for one in pieces if re.search(r"[A-Z\d]", one)]
        assert max(len(one.lstrip("▁")) for one in odd[1:]) <= 2


def test_the_site_needs_no_rare_kinds_of_files():
    """A server that comes as it is knows how to send each of them."""
    known = {".js", ".css", ".json", ".bin", ".tsv", ".wat", ".txt"}
    files = [p for p in (SITE / "_static/live").rglob("*.*") if p.is_file()]
    # Pyodide alone, which is asked for by a press of Run, has others.
    ours = [path for path in files if "pyodide" not in path.parent.name]
    assert {path.suffix for path in ours} <= known


HOSTILE = "<img src=x onerror='window.hit = 1'> <b>trees</b> & <bos>"


def test_text_is_shown_as_text(visit):
    """From the field and from the address, in results and warnings."""
    typed = f"{LITTLE}&translate.text={quote(HOSTILE)}"
    page = opened(visit, "translate", typed)
    field = page.get_by_label("A sentence in English")
    assert field.input_value() == HOSTILE
    field.press("Enter")
    wait_for_text(page, " s for ")
    page.locator(".live-word").first.wait_for()
    said = page.locator(".live-note").first.text_content()
    assert "Never seen in training: <img" in said
    assert not page.locator(".live img, .live b").count()
    assert page.evaluate("window.hit") is None


def test_the_first_page_translates_everyday_sentences(visit):
    page = opened(visit, "translate", width=360)
    field = page.get_by_label("A sentence in English")
    text = field.input_value()  # it opens with one that is translated
    wait_for_text(page, library_beam("tatoeba-en-de", text)[0][0])
    assert not [url for url in page.asked if url.endswith(".bin")]
    for text in "Where is the train station?", "I lost my umbrella.":
        field.fill(text)
        page.keyboard.press("Enter")
        wait_for_text(page, library_beam("tatoeba-en-de", text)[0][0])
    wait_for_text(page, "Ich habe meinen Schirm verloren.")
    warned = page.locator(".live-note", has_text="Cut into")
    assert not warned.count(), "umbrella is one token behind a space"
    field.fill("I lost my Schadenfreude.")
    page.keyboard.press("Enter")
    warned.wait_for()
    assert ": Schadenfreude." in warned.text_content()
    field.fill("Wo ist der Bahnhof, bitte?")
    page.keyboard.press("Enter")
    note = page.locator(".live-note", has_text="That looks like German")
    expect(note).to_contain_text("this model reads English")
    assert fits_a_phone(page)


def some(model: dict, root: Path) -> list[str]:
    """Sentences of the model's own kind, and some of no kind."""
    source = model["languages"][0]
    if model["corpus"] == "little_spanish":
        corpus = load_corpus("little_spanish", *model["languages"], "test")
        return [*ODD, *[pair[0] for pair in corpus][:3]]
    path = root / "web" / "sentences.json"
    own = json.loads(path.read_text("utf-8"))
    own = own[f"{model['corpus']}-{source}"]
    return [own[0], own[10].lower(), *ODD[4:6]]


def test_tokens_are_the_librarys(visit, index, root):
    """Tokens in, tokens out and scores, of every shipped model; and what it
    writes where the decoder may not look at some of a source."""
    page = opened(visit, "translate")
    for model in index["models"]:
        name, texts = model["name"], some(model, root)
        found = beams_of(page, name, [[text, {}] for text in texts])
        hidden = []
        for text, (source, ids, score) in zip(texts, found, strict=True):
            _, right, _, total = library_beam(name, text)[0]
            assert source == shipped(name).encode([text])[0], text
            assert ids == right, text
            assert abs(score - total) < 1e-3, text
            places = [*range(min(len(hidden) % 3 + 1, len(source) - 1))]
            hidden.append([text, {"beamSize": 1, "covered": places}])
        found = beams_of(page, name, hidden)
        for (text, options), (_, ids, _) in zip(hidden, found, strict=True):
            assert ids == greedily(name, text, covered=options["covered"])


def test_an_idea_has_the_same_ink_here_and_in_the_figures():
    script = (tangle.ROOT / "web" / "live" / "common.js").read_text("utf-8")
    inks = dict(re.findall(r'^  (\w+): "(#\w{6})",', script, re.MULTILINE))
    assert inks.items() <= (COLOURS | SIGNED).items() and len(inks) > 8
