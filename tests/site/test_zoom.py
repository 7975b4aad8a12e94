"""From the model to one number, in a real browser, beside the library.

The part shows the shipped model in the page "One sentence", and the model
that the reader has trained in "One sitting". That its numbers are the
library's for any model is asked of its scripts in `test_readers_model.py`;
here it is asked of what is seen.
"""

import copy
import math
import random
import re

import make_data
import pytest
import torch
from parts import (
    given,
    greedily,
    number,
    numbers,
    plain,
    press,
    run_of,
    shipped,
)

CHAPTER = "book/start/sentence.html"
OWN_CHAPTER = "book/start/learning.html"
PART = ".live[data-live=zoom]"
LOOK_INSIDE = "Look inside your model"
OF_EACH_KIND = [
    "model",
    "encoder.2.feed_forward",
    "decoder.1.feed_forward.3",
    "encoder.2.feed_forward.2.i7",
    "decoder.2.cross_attention",
    "decoder.1.self_attention.2.1.3",  # masked
    "decoder.2.cross_attention.1.3.3.q7",
    "encoder.1.self_attention.1.2.values.o5.3",
]


class Library:
    """The shipped model's run of the page's sentence."""

    def __init__(self):
        name, text = make_data.ZOOMED
        translator = shipped(name)
        source = torch.tensor(translator.encode([text]))
        self.source = translator.tokenizer.pieces(source[0].tolist())
        self.model = copy.deepcopy(translator.model).double()
        self.model.requires_grad_(False)
        ids = greedily(name, text)
        self.given, self.maps, _ = run_of(self.model, source, ids)

    def head(self, path, kind, head):
        """What a head's queries, keys or values come from, and its matrix."""
        part = self.model.get_submodule(path)
        layer = {"q": part.w_q, "k": part.w_k, "v": part.w_v}[kind]
        x = self.given[path][0 if kind == "q" else 1][0]
        return x, layer.weight.unflatten(0, (part.h, -1))[head]


@pytest.fixture(scope="module")
def library():
    return Library()


# What is seen


def opened(visit, state="", **settings):
    """The chapter, with the level of an address open."""
    where = f"#zoom={state}" if state else ""
    page = visit(CHAPTER + where, wait="commit", **settings)
    page.wait_for_selector(f"{PART} .zoom-stage")
    if state:
        is_open(page, state)
    return page


def is_open(page, address: str) -> None:
    """Wait until the level of an address is drawn."""
    page.wait_for_function(
        f"level => document.querySelector('{PART}').dataset.level === level",
        arg=address,
    )


def go(page, address: str) -> None:
    """Type another address over the one that is there."""
    page.evaluate("state => { location.hash = `zoom=${state}` }", address)
    is_open(page, address)
    page.wait_for_function(
        f"() => !document.querySelector('{PART}')"
        ".getAnimations({ subtree: true }).length"
    )


def table(page) -> list[list[str]]:
    """The rows of "In numbers"."""
    return page.locator(f"{PART} .live-numbers tbody tr").evaluate_all(
        "all => all.map(row => "
        "[...row.children].map(cell => cell.textContent))"
    )


def crumbs(page) -> list[str]:
    return page.locator(f"{PART} .zoom-crumbs li").all_text_contents()


def products_agree(page, x, y) -> None:
    """The table multiplies x by y, and adds the products up."""
    rows = table(page)
    shown = torch.stack([numbers(row[1:]) for row in rows[: len(x)]])
    assert (shown - torch.stack([x, y, x * y], 1)).abs().max() < 1e-3
    assert abs(number(rows[len(x)][-1]) - x @ y) < 1e-3


def some_cell(chance, library):
    """An address of a cell, and where it is: path, head, row, column."""
    path = chance.choice([*library.maps])
    head, row, column = map(chance.randrange, library.maps[path].shape)
    stack, _, layer, sub = path.split(".")
    steps = [stack, int(layer) + 1, sub, head + 1, row + 1, column + 1]
    return ".".join(map(str, steps)), path, head, row, column


def a_cell_is_the_librarys(page, library, chance) -> None:
    """Its products, score and weight; and what its query comes from."""
    address, path, head, row, column = some_cell(chance, library)
    x, w_q = library.head(path, "q", head)
    memory, w_k = library.head(path, "k", head)
    query, key = w_q @ x[row], w_k @ memory[column]
    go(page, address)
    products_agree(page, query, key)
    score = query @ key / math.sqrt(len(query))
    assert abs(number(table(page)[-1][-1]) - score) < 1e-3
    equation = page.locator(f"{PART} .zoom-equation").text_content()
    found = re.search(r"weight ([\d.]*\d)", equation)
    weight = library.maps[path][head, row, column]
    assert abs(float(found[1]) - weight) < 0.006
    i = chance.randrange(len(query))
    go(page, f"{address}.q{i + 1}")
    products_agree(page, x[row], w_q[i])


def an_output_is_the_librarys(page, library, chance) -> None:
    """Values mixed by weights, down to the product with a row of W_V."""
    address, path, head, row, column = some_cell(chance, library)
    memory, w_v = library.head(path, "v", head)
    output = library.maps[path][head, row] @ memory @ w_v.T
    top = f"{address.rpartition('.')[0]}.values"
    go(page, top)
    shown = numbers([line[-1] for line in table(page)])
    assert (shown - output).abs().max() < 1e-3
    i = chance.randrange(len(output))
    go(page, f"{top}.o{i + 1}.{column + 1}")
    products_agree(page, memory[column], w_v[i])


def a_network_is_the_librarys(page, library, chance) -> None:
    """x W_1 + b_1, the ReLU, and one number of each matrix product."""
    stack = chance.choice(["encoder", "decoder"])
    layer = chance.randrange(library.model.config.N)
    path = f"{stack}.layers.{layer}.feed_forward"
    network = library.model.get_submodule(path)
    place = chance.randrange(library.given[path][0].size(1))
    x = library.given[path][0][0, place]
    before = network.w_1(x)
    inner = before.relu()
    address = f"{stack}.{layer + 1}.feed_forward.{place + 1}"
    go(page, address)
    shown = torch.stack([numbers(row[1:]) for row in table(page)])
    assert (shown - torch.stack([before, inner], 1)).abs().max() < 1e-3
    row = chance.randrange(len(inner))
    go(page, f"{address}.i{row + 1}")
    products_agree(page, x, network.w_1.weight[row])
    row = chance.randrange(len(x))
    go(page, f"{address}.y{row + 1}")
    products_agree(page, inner, network.w_2.weight[row])
    assert abs(number(table(page)[-1][-1]) - network(x)[row]) < 1e-3


def test_random_numbers_are_the_librarys(visit, library):
    page, chance = opened(visit, "model"), random.Random(5)
    for _ in range(3):
        a_cell_is_the_librarys(page, library, chance)
        an_output_is_the_librarys(page, library, chance)
        a_network_is_the_librarys(page, library, chance)
    # rows sum to one, and masked cells say so
    go(page, "decoder.1.self_attention.2")
    weights = library.maps["decoder.layers.0.self_attention"][1]
    lines = page.locator(f"{PART} .zoom-map button").all()
    assert len(lines) == len(weights)
    for row, line in enumerate(lines):
        texts = line.locator(".zoom-cell").all_text_contents()
        assert texts[row + 1 :] == ["masked"] * (len(texts) - row - 1)
        shares = numbers(texts[: row + 1])
        assert (shares - weights[row, : row + 1]).abs().max() < 0.006
        assert number(table(page)[row][-1]) == 1


def focused(page) -> str | None:
    return page.evaluate("document.activeElement.dataset.part ?? null")


def test_by_keyboard_to_a_number_and_back(visit):
    page = opened(visit)
    box = "[data-part='decoder.1.self_attention']"
    page.locator(f"{PART} {box}").focus()
    page.keyboard.press("ArrowLeft")
    left = []
    for key in ["", "ArrowRight", "ArrowDown", "ArrowDown", ""]:
        if key:
            page.keyboard.press(key)
        left.append(focused(page))
        page.keyboard.press("Enter")
        is_open(page, ".".join(left))
    assert left == ["decoder.1.cross_attention", "2", "2", "2", "q1"]
    assert page.evaluate("location.hash") == f"#zoom={'.'.join(left)}"
    while left:
        page.keyboard.press("Escape")
        is_open(page, ".".join(left[:-1]) or "model")
        assert focused(page) == left.pop()
        style = "getComputedStyle(document.activeElement).outlineStyle"
        assert page.evaluate(style) == "solid"
    assert page.evaluate("location.hash") == "#zoom=model"
    page.keyboard.press("Tab")  # one stop for all boxes of the model
    assert focused(page) is None


def test_out_of_a_number_that_has_no_tile(visit):
    """Of the six largest there are; ‹ and › lead to all others."""
    place = "decoder.1.feed_forward.3"
    page = opened(visit, place)
    boxes = page.locator(f"{PART} .zoom-stage [data-part]")
    tiles = boxes.evaluate_all("all => all.map(one => one.dataset.part)")
    other = next(f"i{i}" for i in range(1, 9) if f"i{i}" not in tiles)
    go(page, f"{place}.{other}")
    page.locator(f"{PART} .zoom-crumbs button").last.focus()
    page.keyboard.press("Escape")
    is_open(page, place)
    assert focused(page) == tiles[0]
    words = page.locator(f"{PART} .zoom-words").text_content()
    assert words.startswith("The vector of")


def test_every_address_opens_its_level(visit, library, fits):
    """And fits a phone, is accessible, and never moves the text below."""
    page = opened(visit, OF_EACH_KIND[-1], width=360)
    assert not page.locator(".tag_still").count(), "the picture gave way"
    heights = set()
    for address in OF_EACH_KIND:
        go(page, address)
        # the stack, the layer and the sub-layer are one step
        depth = 0 if address == "model" else address.count(".") - 1
        assert len(crumbs(page)) == depth + 1
        assert len(table(page)) > 1
        heights.add(round(page.locator(PART).bounding_box()["height"]))
    assert len(heights) == 1, heights
    name = plain(library.source[1])
    assert crumbs(page)[3:] == [name, "values", "o₅", "trees"]
    page.locator(f"{PART} summary").first.click()
    go(page, OF_EACH_KIND[6])
    fits(page, PART)
    page.evaluate("location.hash = 'zoom=encoder.1'")
    is_open(page, "model")


def test_the_tour_is_true_and_leads_to_one_product_and_back(visit, library):
    translator = shipped(make_data.ZOOMED[0])
    told = make_data.told_of_plurals(translator.model, translator.tokenizer)
    reading = library.maps["encoder.layers.0.self_attention"][1]
    assert min(reading[0, 2], reading[3, 2]) > 0.99
    assert library.maps["decoder.layers.1.cross_attention"][1, 1, 2] > 0.99
    assert told["courier"] > 30 * told["gusta"]
    others = [share for place, share in enumerate(told["alone"]) if place != 2]
    assert told["alone"][2] > 0.1 > 0.002 > max(others)
    gusta, gustan = told["memory"]
    assert abs(gusta - gustan) < 0.1

    for width, height in (1280, 800), (390, 844):
        page = opened(visit, width=width, height=height)
        follow(page, told)


def follow(page, told) -> None:
    """Through the tour, whose picture stands still and in view."""
    press(page, "Follow the plural of “trees”, in 8 steps")
    words = page.locator(f"{PART} .zoom-words")
    places, stood = [], set()
    for step in range(1, 9):
        page.get_by_text(f"{step} of 8").wait_for()
        places.append(page.locator(PART).get_attribute("data-level"))
        assert "NaN" not in words.text_content()
        box = page.locator(f"{PART} .zoom-body").bounding_box()
        stood.add((box["y"], box["height"]))
        assert words.evaluate("one => one.scrollHeight <= one.clientHeight")
        if step == 4:  # a look at the neighbour doesn't end it
            press(page, "next: head 2")
            press(page, "Back to step 4")
            page.locator(f"{PART} .zoom-tour").get_by_role(
                "button", name="Next"
            ).focus()
        if step < 8:  # the focus stays on the button
            page.keyboard.press("Enter")
    [(top, high)] = stood
    assert 0 < top and top + high <= page.viewport_size["height"]
    assert places[0] == "model"
    one = r"decoder\.2\.cross_attention\.2\.2\.3\.q\d+"
    assert re.fullmatch(one, places[6])
    times = round(told["courier"] / told["gusta"])
    assert f"{times} times likelier" in words.text_content()
    press(page, "End the tour")
    is_open(page, "model")


def test_what_is_fetched_and_what_is_missing(visit):
    """Nothing before it is opened; and a missing file is named."""
    page = opened(visit)
    page.locator(PART).scroll_into_view_if_needed()
    page.wait_for_timeout(500)

    def fetched():
        data = [url for url in page.asked if "/live/data/" in url]
        return [url.rpartition("/")[2] for url in data]

    assert not fetched()
    page.route("**/model.bin", lambda route: route.fulfill(status=404))
    page.locator(f"{PART} [data-part='decoder.1.self_attention']").click()
    page.locator(f"{PART} .zoom-words", has_text="missing").wait_for()
    assert crumbs(page) == ["model"]
    assert len(page.problems) == 1 and "404" in page.problems.pop()
    press(page, "Follow the plural of “trees”, in 8 steps")
    page.get_by_text("1 of 8").wait_for()
    press(page, "Next")  # which cannot come, and is not counted
    page.locator(f"{PART} .zoom-words", has_text="missing").wait_for()
    assert page.get_by_text("1 of 8").is_visible()
    assert len(page.problems) == 1 and "404" in page.problems.pop()
    press(page, "End the tour")
    page.unroute("**/model.bin")  # and it can be tried again
    page.locator(f"{PART} [data-part='decoder.1.self_attention']").click()
    is_open(page, "decoder.1.self_attention")
    go(page, "decoder.1.self_attention.1.1.1.q1")
    assert fetched().count("model.bin") == 3


def test_every_level_shows_lines_of_the_library():
    listed = given(CHAPTER, "zoom")["lines"]
    assert listed.keys() == make_data.LINES.keys() and all(listed.values())


def test_without_a_script_there_is_a_picture(visit):
    """On paper too: a row of the encoder, of the page's own sentence."""
    page = visit(CHAPTER, java_script_enabled=False)
    still = page.locator(".tag_still")
    assert still.count() == 1 and still.locator("svg:visible").count() > 0


def test_the_readers_model_is_looked_into_again(visit):
    """At the same place, with the numbers of more training."""
    page = visit(OWN_CHAPTER, wait="commit")
    page.set_default_timeout(60_000)
    page.wait_for_selector(".train-facts")

    def look_after(step):
        press(page, "One step")
        page.get_by_text(f"{step} of 800", exact=True).wait_for()
        press(page, LOOK_INSIDE)
        told = f"Your model, seed 0, after {step} step"
        page.get_by_text(told).wait_for()

    look_after(1)
    held = page.evaluate("document.activeElement.textContent")
    assert held.startswith("Your model")
    go(page, "decoder.2.feed_forward.3")
    before = table(page)
    look_after(2)
    assert crumbs(page)[-2:] == ["decoder 2, feed-forward", "gustan"]
    assert table(page) != before
    assert page.locator(PART).count() == 1
