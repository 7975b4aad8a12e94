"""From the model to one number, in a real browser, beside the library.

The part shows the shipped model in the page "One sentence", and the model
that the reader has trained in "One sitting". What is said of numbers is
asked of both.
"""

import copy
import functools
import json
import math
import random
import re

import make_data
import pytest
import torch
from parts import (
    DATA,
    html,
    number,
    numbers,
    plain,
    press,
    shipped,
)
from torch import Tensor, nn

from transformer_lib import Transformer, TransformerConfig, record_attention
from transformer_lib.decoding import evaluating, greedy_decode
from transformer_lib.embeddings import BOS

CHAPTER = "book/start/sentence.html"
OWN_CHAPTER = "book/start/learning.html"
OWN_STEPS = 2  # of training, before the reader's model is looked into
TRAIN_IT = """async steps => {
  const read = async (name, kind) =>
    (await fetch(`/_static/live/${name}`))[kind]();
  const { Learner } = await import("/_static/live/learner.js");
  const names = ["data/little_spanish.tsv", "data/little_people.tsv"];
  const texts = await Promise.all(names.map(name => read(name, "text")));
  const learner = new Learner(await read("mm.wasm", "arrayBuffer"), texts);
  learner.start(0);
  for (let step = 0; step < steps; step++) learner.step();
  const { vocabulary, asked, model } = learner;
  const weights = Object.entries(model.weights).map(
    ([name, { data }]) => [name, Array.from(data)]);
  return { vocabulary, asked, weights: Object.fromEntries(weights) };
}"""
PART = ".live[data-live=zoom]"
LOOK_INSIDE = "Look inside your model"
OF_EACH_KIND = [
    "model",
    "encoder",
    "decoder.1",
    "decoder.1.feed_forward.3",
    "encoder.2.feed_forward.2.i7",
    "decoder.2.cross_attention",
    "decoder.1.self_attention.2.1.3",  # masked
    "decoder.2.cross_attention.1.3.3.q7",
    "encoder.1.self_attention.1.2.values.o5.3",
]


# What was recorded, beside the library


class Computed:
    """A sentence's run through a model of the library, kept in tokens."""

    def __init__(
        self, model: nn.Module, source: Tensor, target: Tensor, tokens
    ):
        self.model = model.double()
        self.tokens = {
            "encoder": tokens(source[0].tolist()),
            "decoder": tokens(target[0].tolist()),
        }
        self.given = {}
        paths = {part: path for path, part in model.named_modules()}

        def note(part, arguments):
            self.given[paths[part]] = arguments

        hooks = [
            part.register_forward_pre_hook(note)
            for part, path in paths.items()
            if path.endswith(("attention", "feed_forward"))
        ]
        with evaluating(self.model), record_attention(self.model) as maps:
            self.model(source, target)
        for hook in hooks:
            hook.remove()
        self.maps = {path: one[0] for path, one in maps.items()}

    def x(self, path: str, kind: str) -> torch.Tensor:
        """What queries ("q"), keys or values of an attention come from."""
        return self.given[path][0 if kind == "q" else 1][0]

    def weight(self, path: str, kind: str, head: int) -> torch.Tensor:
        """W_Q, W_K or W_V of a head, (d_k, d_model)."""
        part = self.model.get_submodule(path)
        layer = {"q": part.w_q, "k": part.w_k, "v": part.w_v}[kind]
        return layer.weight.detach().unflatten(0, (part.h, -1))[head]

    def vectors(self, path: str, kind: str, head: int) -> torch.Tensor:
        """A head's queries, keys or values, (len, d_k)."""
        return self.x(path, kind) @ self.weight(path, kind, head).mT


@functools.cache
def computed() -> Computed:
    """The shipped model."""
    name, text = make_data.ZOOMED
    translator = shipped(name)
    model = copy.deepcopy(translator.model).double()
    source = torch.tensor(translator.encode([text]))
    ids = greedy_decode(model, source)[0][0].ids
    target = torch.tensor([[BOS, *ids[:-1]]])
    return Computed(model, source, target, translator.tokenizer.pieces)


@pytest.fixture(scope="module")
def trained(browser, address) -> Computed:
    """What some steps in this browser make of the page's model."""
    page = browser.new_page()
    page.goto(f"{address}/404.html")
    found = page.evaluate(TRAIN_IT, OWN_STEPS)
    page.close()
    vocabulary = found["vocabulary"]
    config = TransformerConfig(
        len(vocabulary), N=2, d_model=64, d_ff=256, h=4, dropout=0.0
    )
    model = Transformer(config)
    named = dict(model.named_parameters())
    for name, values in found["weights"].items():
        name = name.replace("table", "source_embedding.weight")
        name = re.sub(r"^(\w+)\.(\d)", r"\1.layers.\2", name)
        for place in 1, 2, 3:
            name = name.replace(f"norm_{place}", f"residuals.{place - 1}.norm")
        weight = named.pop(name)
        values = torch.tensor(values[: weight.numel()])
        weight.data.copy_(values.view_as(weight))
    assert not named  # the other two tables are the same one
    source, right = found["asked"]
    return Computed(
        model,
        torch.tensor([source]),
        torch.tensor([[BOS, *right[:-1]]]),
        lambda ids: [vocabulary[i] for i in ids],
    )


@pytest.fixture(params=["shipped", "own"])
def zoomed(request, visit):
    """The part, open on a model, and the same model in the library."""
    if request.param == "shipped":
        return opened(visit, "model"), computed()
    return opened_on_own(visit), request.getfixturevalue("trained")


def chosen(
    chance: random.Random, library: Computed
) -> tuple[str, str, int, int, int]:
    """An address of a cell, and where it is: path, head, row, column."""
    path = chance.choice([*library.maps])
    head, row, column = map(chance.randrange, library.maps[path].shape)
    stack, _, layer, sub = path.split(".")
    steps = [stack, int(layer) + 1, sub, head + 1, row + 1, column + 1]
    return ".".join(map(str, steps)), path, head, row, column


# What is seen


def opened(visit, state="", **settings):
    """The chapter, with the level of an address open."""
    where = f"#zoom={state}" if state else ""
    page = visit(CHAPTER + where, wait="commit", **settings)
    if settings.get("java_script_enabled", True):
        page.wait_for_selector(f"{PART} .zoom-stage")
        if state:
            is_open(page, state)
    return page


def opened_on_own(visit, **settings):
    """The chapter that trains, with its model open after some steps."""
    page = visit(OWN_CHAPTER, wait="commit", **settings)
    page.set_default_timeout(60_000)
    page.wait_for_selector(".train-facts")
    for step in range(OWN_STEPS):
        one_step(page, step + 1)
    press(page, LOOK_INSIDE)
    page.wait_for_selector(f"{PART} .zoom-stage")
    return page


def one_step(page, number: int) -> None:
    press(page, "One step")
    page.get_by_text(f"{number} of 800", exact=True).wait_for()


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


def said(page) -> str:
    return page.locator(f"{PART} .live-result").text_content()


def products_agree(page, x, y, total) -> None:
    """The table multiplies x by y; the products add up to the total."""
    rows = table(page)
    shown = torch.stack([numbers(row[1:]) for row in rows[: len(x)]])
    wanted = torch.stack([x, y, x * y], 1)
    assert (shown - wanted).abs().max() < 1e-3
    assert abs(number(rows[len(x)][-1]) - total) < 1e-3
    assert abs(shown[:, 2].sum() - total) < 1e-3


def cells_are_the_librarys(page, library, chance) -> None:
    """A cell's products, score and weight; and what its query comes from."""
    address, path, head, row, column = chosen(chance, library)
    query = library.vectors(path, "q", head)[row]
    key = library.vectors(path, "k", head)[column]
    go(page, address)
    total = query @ key
    products_agree(page, query, key, total)
    score = total / math.sqrt(len(query))
    assert abs(number(table(page)[-1][-1]) - score) < 1e-3
    weight = library.maps[path][head, row, column]
    found = re.search(r"weight(?: is)? ([\d.]*\d)", said(page))
    assert abs(float(found[1]) - weight) < 0.006
    i = chance.randrange(len(query))
    go(page, f"{address}.q{i + 1}")
    x, w = library.x(path, "q")[row], library.weight(path, "q", head)[i]
    products_agree(page, x, w, x @ w)


def outputs_are_the_librarys(page, library, chance) -> None:
    """Values mixed by weights, down to the product with a row of W_V."""
    address, path, head, row, column = chosen(chance, library)
    values = library.vectors(path, "v", head)
    weights = library.maps[path][head, row]
    output = weights @ values
    top = f"{address.rpartition('.')[0]}.values"
    go(page, top)
    shown = numbers([line[-1] for line in table(page)])
    assert (shown - output).abs().max() < 1e-3
    i = chance.randrange(len(output))
    go(page, f"{top}.o{i + 1}.{column + 1}")
    x, w = library.x(path, "v")[column], library.weight(path, "v", head)[i]
    products_agree(page, x, w, values[column, i])


def networks_are_the_librarys(page, library, chance) -> None:
    """x, x W_1 + b_1, the ReLU, and one number of each matrix product."""
    stack = chance.choice(["encoder", "decoder"])
    layer = chance.randrange(library.model.config.N)
    path = f"{stack}.layers.{layer}.feed_forward"
    network = library.model.get_submodule(path).requires_grad_(False)
    place = chance.randrange(len(library.tokens[stack]))
    x = library.given[path][0][0, place]
    before = network.w_1(x)
    inner, out = before.relu(), network(x)
    address = f"{stack}.{layer + 1}.feed_forward.{place + 1}"
    go(page, address)
    shown = torch.stack([numbers(row[1:]) for row in table(page)])
    assert (shown - torch.stack([before, inner], 1)).abs().max() < 1e-3
    row = chance.randrange(len(inner))
    go(page, f"{address}.i{row + 1}")
    weight = network.w_1.weight[row]
    products_agree(page, x, weight, x @ weight)
    row = chance.randrange(len(out))
    go(page, f"{address}.y{row + 1}")
    weight = network.w_2.weight[row]
    products_agree(page, inner, weight, inner @ weight)
    assert abs(number(table(page)[-1][-1]) - out[row]) < 1e-3


def test_random_numbers_are_the_librarys(zoomed):
    page, library = zoomed
    chance = random.Random(5)
    for _ in range(3):
        cells_are_the_librarys(page, library, chance)
        outputs_are_the_librarys(page, library, chance)
        networks_are_the_librarys(page, library, chance)


def test_rows_sum_to_one_and_masked_cells_say_so(visit):
    page = opened(visit, "decoder.1.self_attention.2")
    weights = computed().maps["decoder.layers.0.self_attention"][1]
    lines = page.locator(f"{PART} .zoom-map button").all()
    assert len(lines) == len(weights)
    for row, line in enumerate(lines):
        texts = line.locator(".zoom-cell").all_text_contents()
        assert texts[row + 1 :] == ["masked"] * (len(texts) - row - 1)
        shares = numbers(texts[: row + 1])
        assert (shares - weights[row, : row + 1]).abs().max() < 0.006
        assert number(table(page)[row][-1]) == 1


def brought_to_me(text: str) -> dict[tuple[str, int], Tensor]:
    """What each head of the decoder brings to *Me*."""
    translator = shipped(make_data.ZOOMED[0])
    model = translator.model
    source = torch.tensor(translator.encode([text]))
    begun = torch.tensor([[BOS, *translator.tokenizer.encode("Me")]])
    heads = {}

    def note(path, part):
        def keep(_, arguments):
            for head, vector in enumerate(arguments[0][0, 1].chunk(part.h)):
                heads[path, head] = vector

        return part.w_o.register_forward_pre_hook(keep)

    hooks = [
        note(path, part)
        for path, part in model.named_modules()
        if path.startswith("decoder") and path.endswith("attention")
    ]
    with evaluating(model):
        model(source, begun)
    for hook in hooks:
        hook.remove()
    return heads


def test_what_the_tour_says_is_true():
    many, one = brought_to_me("I like trees"), brought_to_me("I like tree")
    change = {head: (many[head] - one[head]).norm() for head in many}
    courier = "decoder.layers.1.cross_attention", 1
    assert max(change, key=change.get) == courier
    maps = computed().maps
    assert maps[courier[0]][1, 1, 2] > 0.99
    reading = maps["encoder.layers.0.self_attention"][1]
    assert min(reading[0, 2], reading[3, 2]) > 0.99
    said = json.loads((DATA / "zoom" / "index.json").read_text("utf-8"))
    assert said["next"][1] == "▁gustan"
    told = said["tour"]
    assert told["courier"] > 30 * told["gusta"]
    gusta, gustan = told["memory"]
    assert abs(gusta - gustan) < 0.1


def test_the_tour_leads_to_one_product_and_back(visit):
    page = opened(visit)
    press(page, "Follow the plural of “trees”, in 8 steps")
    guide = page.locator(f"{PART} .zoom-tour")
    places = []
    for step in range(1, 9):
        guide.get_by_text(f"{step} of 8").wait_for()
        places.append(page.locator(PART).get_attribute("data-level"))
        assert "NaN" not in page.locator(f"{PART} .zoom-words").text_content()
        if step < 8:  # the focus stays on the button
            page.keyboard.press("Enter")
    assert places[0] == "model"
    number = r"decoder\.2\.cross_attention\.2\.2\.3\.q\d+"
    assert re.fullmatch(number, places[6])
    words = page.locator(f"{PART} .zoom-words").text_content()
    assert "63 times likelier" in words
    press(page, "Open any other number")
    page.wait_for_function(
        f"() => document.querySelector('{PART}')"
        ".dataset.level.split('.').length === 7"
    )
    press(page, "Follow the plural of “trees”, in 8 steps")


def focused(page) -> str | None:
    return page.evaluate("document.activeElement.dataset.part ?? null")


def test_by_keyboard_to_a_number_and_back(visit):
    page = opened(visit)
    page.locator(f"{PART} [data-part=encoder]").focus()
    page.keyboard.press("ArrowRight")
    left = []
    for key in ["", "", "ArrowUp", "ArrowRight", "ArrowDown", "ArrowDown", ""]:
        if key:
            page.keyboard.press(key)
        left.append(focused(page))
        page.keyboard.press("Enter")
        is_open(page, ".".join(map(str, left)))
    assert left == ["decoder", "1", "cross_attention", "2", "2", "2", "q1"]
    assert page.evaluate("location.hash") == f"#zoom={'.'.join(left)}"
    page.keyboard.press("ArrowRight")  # a neighbour of what has no boxes
    page.wait_for_function("location.hash.endsWith('.q2')")
    assert crumbs(page)[-1] == "q₂"
    left[-1] = "q2"
    while left:
        page.keyboard.press("Escape")
        is_open(page, ".".join(left[:-1]) or "model")
        assert focused(page) == left.pop()
        style = "getComputedStyle(document.activeElement).outlineStyle"
        assert page.evaluate(style) == "solid"
    assert page.evaluate("location.hash") == "#zoom=model"
    page.keyboard.press("Tab")  # one stop for all boxes of a level
    assert focused(page) is None


def test_every_address_opens_its_level(visit, fits):
    """And fits a phone, is accessible, and never moves the text below."""
    page = opened(visit, OF_EACH_KIND[-1], width=360)
    heights = set()
    for address in OF_EACH_KIND:
        go(page, address)
        depth = 0 if address == "model" else len(address.split("."))
        assert len(crumbs(page)) == depth + 1
        assert len(table(page)) > 1 and said(page)
        heights.add(round(page.locator(PART).bounding_box()["height"]))
    assert len(heights) == 1, heights
    tokens = computed().tokens["encoder"]
    assert crumbs(page)[5:] == [plain(tokens[1]), "values", "o₅", "trees"]
    page.locator(f"{PART} summary").click()
    for address in OF_EACH_KIND[3], OF_EACH_KIND[6]:
        go(page, address)
        fits(page, PART)
    page.evaluate("location.hash = 'zoom=encoder.nonsense'")
    is_open(page, "model")


def test_nothing_is_fetched_before_it_is_opened(visit):
    page = opened(visit)
    page.locator(PART).scroll_into_view_if_needed()
    page.wait_for_timeout(500)

    def fetched():
        data = [url for url in page.asked if "/live/data/" in url]
        return [url.rpartition("/")[2] for url in data]

    assert not fetched()
    page.locator(f"{PART} [data-part=decoder]").click()
    is_open(page, "decoder")
    go(page, "decoder.1.self_attention.1.1.1")
    assert fetched() == ["numbers.bin"]
    go(page, "decoder.1.self_attention.1.1.1.q1")
    go(page, "decoder.1.self_attention.1.1.1.k2")
    _, weights = fetched()
    assert weights.endswith("0.self_attention.0.bin")


def test_a_file_that_is_missing_is_named(visit):
    page = opened(visit)
    page.route("**/numbers.bin", lambda route: route.fulfill(status=404))
    page.locator(f"{PART} [data-part=decoder]").click()
    page.locator(f"{PART} .live-result", has_text="missing").wait_for()
    assert crumbs(page) == ["model"]
    assert len(page.problems) == 1 and "404" in page.problems.pop()
    page.unroute("**/numbers.bin")  # and it can be tried again
    page.locator(f"{PART} [data-part=decoder]").click()
    is_open(page, "decoder")


def test_without_a_script_a_picture_has_the_librarys_numbers(visit):
    """On paper too: a row of the encoder, of the page's own sentence."""
    code = re.sub("<.*?>", "", html(CHAPTER)).replace("&quot;", '"')
    head, row = map(int, re.search(r"head, row = (\d+), (\d+)", code).groups())
    text = re.search(r'tokenizer.encode\("(I like [^"]*)"\), EOS', code)[1]
    found = re.search(
        r"The \d+ products of the query of (\w+) and the key of (\w+) sum "
        r".*? Weights of the row: (.*?)\.\"",
        html(CHAPTER),
    )
    word, key, weights = found.groups()
    shown = shipped(make_data.ZOOMED[0]).attention(text)
    names = [plain(one) for one in shown.source]
    right = shown.maps["encoder.layers.0.self_attention"][head, row]
    assert (word, key) == (names[row], names[int(right.argmax())])
    drawn = [float(one.rsplit(" ", 1)[1]) for one in weights.split(", ")]
    assert drawn == pytest.approx(right.tolist(), abs=0.0051)
    page = opened(visit, "encoder.1.self_attention.1")
    assert page.locator(".tag_still").count() == 0
    plainly = opened(visit, java_script_enabled=False)
    plainly.wait_for_load_state()
    picture = plainly.locator(".tag_still svg:visible")
    assert picture.count() == 1


def test_the_readers_model_is_looked_into_again(visit):
    """At the same place, with the numbers of more training."""
    page = opened_on_own(visit)
    told = "Your model, seed 0, after {} steps."
    page.get_by_text(told.format(OWN_STEPS)).wait_for()
    held = page.evaluate("document.activeElement.textContent")
    assert held.startswith("Your model")
    go(page, "decoder.2.feed_forward.3")
    before = table(page)
    one_step(page, OWN_STEPS + 1)
    press(page, LOOK_INSIDE)
    page.get_by_text(told.format(OWN_STEPS + 1)).wait_for()
    assert crumbs(page)[-2:] == ["feed-forward network", "gustan"]
    assert table(page) != before
    assert page.locator(PART).count() == 1
