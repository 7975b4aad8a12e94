"""From the model to one number, in a real browser, beside the library.

The part shows the shipped model in the page "One sentence", and the model
that the reader has trained in "One sitting". What is said of numbers is
asked of both.
"""

import functools
import importlib
import json
import math
import random
import re
import sys

import pytest
import tangle
import torch
from torch import Tensor, nn

from transformer_lib import (
    Transformer,
    TransformerConfig,
    Translator,
    record_attention,
)
from transformer_lib.decoding import evaluating, greedy_decode
from transformer_lib.embeddings import BOS

CHAPTER = "book/start/sentence.html"
OWN_CHAPTER = "book/start/one_sitting.html"
OWN_STEPS = 5  # of training, before the reader's model is looked into
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
SITE = tangle.ROOT / "_build" / "html"
sys.path.insert(0, str(tangle.ROOT / "web"))
make_data = importlib.import_module("make_data")
sys.path.pop(0)
PART = ".live[data-live=zoom]"
OF_EACH_KIND = [
    "model",
    "encoder",
    "decoder.1",
    "encoder.1.feed_forward",
    "decoder.1.feed_forward.3",
    "encoder.2.feed_forward.2.i7",
    "decoder.2.feed_forward.1.y64",
    "decoder.2.cross_attention",
    "decoder.1.self_attention.2",
    "decoder.1.self_attention.2.2",
    "decoder.2.cross_attention.1.3.3",
    "decoder.1.self_attention.2.1.3",  # masked
    "decoder.2.cross_attention.1.3.3.q7",
    "encoder.1.self_attention.1.2.4.k1",
    "decoder.2.cross_attention.1.3.values",
    "decoder.1.self_attention.2.2.values.o32",
    "encoder.1.self_attention.1.2.values.o5.3",
]


# What was recorded, beside the library


class Computed:
    """A sentence's run through a model of the library, kept in pieces."""

    def __init__(
        self, model: nn.Module, source: Tensor, target: Tensor, pieces
    ):
        self.model = model.double()
        self.pieces = {
            "encoder": pieces(source[0].tolist()),
            "decoder": pieces(target[0].tolist()),
        }
        self.given = {}
        hooks = [
            part.register_forward_pre_hook(
                lambda _, arguments, path=path: self.given.update(
                    {path: arguments}
                )
            )
            for path, part in self.model.named_modules()
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
    run = tangle.ROOT / "pretrained" / name
    translator = Translator.from_pretrained(run, "cpu")
    model = translator.model.double()
    source = torch.tensor(translator.encode([text]))
    ids = greedy_decode(model, source).ids[0][0]
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
    for name, numbers in found["weights"].items():
        if name == "table":
            name, numbers = (
                "source_embedding.weight",
                numbers[: len(vocabulary) * config.d_model],
            )
        name = re.sub(r"^(\w+)\.(\d)", r"\1.layers.\2", name)
        name = re.sub(
            r"norm_(\d)",
            lambda place: f"residuals.{int(place[1]) - 1}.norm",
            name,
        )
        weight = named.pop(name)
        with torch.no_grad():
            weight.copy_(torch.tensor(numbers).view_as(weight))
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


def given_to_the_page() -> dict:
    html = (SITE / CHAPTER).read_text("utf-8")
    part = html[html.index('data-live="zoom"') :]
    found = re.search(
        r'<script type="application/json">(.*?)</script>', part, re.S
    )
    return json.loads(found[1])


# What is seen


def opened(visit, state="", **settings):
    """The chapter, with the level of an address open."""
    where = f"#zoom={state}" if state else ""
    page = visit(CHAPTER + where, wait_until="commit", **settings)
    if settings.get("java_script_enabled", True):
        page.wait_for_selector(f"{PART} .zoom-stage")
        if state:
            is_open(page, state)
    return page


def opened_on_own(visit, **settings):
    """The chapter that trains, with its model open after some steps."""
    page = visit(OWN_CHAPTER, wait_until="commit", **settings)
    page.set_default_timeout(60_000)
    page.wait_for_selector(".train-facts")
    for step in range(OWN_STEPS):
        one_step(page, step + 1)
    look_inside(page)
    page.wait_for_selector(f"{PART} .zoom-stage")
    return page


def one_step(page, number: int) -> None:
    page.get_by_role("button", name="One step").click()
    page.get_by_text(f"{number} of 800", exact=True).wait_for()


def look_inside(page) -> None:
    page.get_by_role("button", name="Look inside your model").click()


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


def parsed(text: str) -> float:
    return float(text.replace("−", "-"))


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


def plain(piece: str) -> str:
    names = {"<bos>": "start", "<eos>": "end"}
    return names.get(piece, piece.replace("▁", ""))


def products_agree(page, x, y, total) -> None:
    """The table multiplies x by y; the products add up to the total."""
    rows = table(page)
    shown = torch.tensor(
        [[parsed(one) for one in row[1:]] for row in rows[: len(x)]],
        dtype=torch.float64,
    )
    assert shown.shape == (len(x), 3)
    assert (shown[:, 0] - x).abs().max() < 1e-3
    assert (shown[:, 1] - y).abs().max() < 1e-3
    assert (shown[:, 2] - x * y).abs().max() < 1e-3
    assert abs(parsed(rows[len(x)][-1]) - total) < 1e-3
    assert abs(shown[:, 2].sum() - total) < 1e-3


def test_fifty_random_numbers_are_the_librarys(zoomed):
    """Cells: q, k, products, score, weight; and what they come from."""
    page, library = zoomed
    chance = random.Random(5)
    for turn in range(50):
        address, path, head, row, column = chosen(chance, library)
        query = library.vectors(path, "q", head)[row]
        key = library.vectors(path, "k", head)[column]
        if turn % 2:
            go(page, address)
            total = query @ key
            score = total / math.sqrt(len(query))
            products_agree(page, query, key, total)
            assert abs(parsed(table(page)[-1][-1]) - score) < 1e-3
            weight = library.maps[path][head, row, column]
            found = re.search(r"weight(?: is)? ([\d.]*\d)", said(page))
            assert abs(float(found[1]) - weight) < 0.006
        else:
            kind = chance.choice("qk")
            number = chance.randrange(len(query))
            go(page, f"{address}.{kind}{number + 1}")
            place = row if kind == "q" else column
            x = library.x(path, kind)[place]
            w = library.weight(path, kind, head)[number]
            products_agree(page, x, w, x @ w)


def test_outputs_are_the_values_mixed_by_the_weights(zoomed):
    """Down to the product of a vector with a row of W_V."""
    page, library = zoomed
    chance = random.Random(7)
    for _ in range(12):
        address, path, head, row, column = chosen(chance, library)
        values = library.vectors(path, "v", head)
        weights = library.maps[path][head, row]
        output = weights @ values
        top = f"{address.rpartition('.')[0]}.values"
        go(page, top)
        shown = torch.tensor([parsed(line[-1]) for line in table(page)])
        assert shown.shape == output.shape
        assert (shown - output).abs().max() < 1e-3
        drawn = page.locator(f"{PART} .zoom-operand").all_text_contents()
        drawn = torch.tensor([parsed(one) for one in drawn])
        assert (drawn - output).abs().max() < 0.006
        i = chance.randrange(len(output))
        go(page, f"{top}.o{i + 1}")
        products_agree(page, weights, values[:, i], output[i])
        go(page, f"{top}.o{i + 1}.{column + 1}")
        x = library.x(path, "v")[column]
        w = library.weight(path, "v", head)[i]
        products_agree(page, x, w, values[column, i])


def test_a_network_is_shown_to_its_products(zoomed):
    """x, x W_1 + b_1, the ReLU, W_2 and b_2, as the library has them."""
    page, library = zoomed
    chance = random.Random(8)
    for _ in range(6):
        stack = chance.choice(["encoder", "decoder"])
        layer = chance.randrange(library.model.config.N)
        path = f"{stack}.layers.{layer}.feed_forward"
        network = library.model.get_submodule(path)
        place = chance.randrange(len(library.pieces[stack]))
        x = library.given[path][0][0, place]
        with torch.no_grad():
            before = network.w_1(x)
            inner, out = before.relu(), network(x)
        address = f"{stack}.{layer + 1}.feed_forward.{place + 1}"
        go(page, address)
        shown = [[parsed(one) for one in row[1:]] for row in table(page)]
        both = torch.stack([before, inner], 1)
        assert (torch.tensor(shown) - both).abs().max() < 1e-3
        zero = re.search(r"(\d+) of the (\d+) inner", said(page)).groups()
        assert abs(int(zero[0]) - int((inner == 0).sum())) <= 1
        assert int(zero[1]) == len(inner)
        for kind, numbers in ("i", inner), ("y", out):
            tiles = page.locator(f"{PART} [data-part^={kind}]")
            names = tiles.evaluate_all("all => all.map(o => o.dataset.part)")
            texts = tiles.evaluate_all(
                "all => all.map(one => one.lastChild.textContent)"
            )
            assert len(texts) == 12
            for name, text in zip(names, texts, strict=True):
                exact = numbers[int(name[1:]) - 1]
                assert abs(parsed(text) - exact) < 0.006
            least = min(abs(parsed(text)) for text in texts)
            others = numbers.abs().sort().values[:-12]
            assert others.max() < least + 0.006
        row = chance.randrange(len(inner))
        go(page, f"{address}.i{row + 1}")
        weight = network.w_1.weight.detach()[row]
        products_agree(page, x, weight, x @ weight)
        ends = [parsed(line[-1]) for line in table(page)[len(x) :]]
        bias = network.w_1.bias.detach()[row]
        wanted = [x @ weight, bias, before[row], inner[row]]
        assert (torch.tensor(ends) - torch.stack(wanted)).abs().max() < 1e-3
        row = chance.randrange(len(out))
        go(page, f"{address}.y{row + 1}")
        weight = network.w_2.weight.detach()[row]
        products_agree(page, inner, weight, inner @ weight)
        assert abs(parsed(table(page)[-1][-1]) - out[row]) < 1e-3


def test_the_picture_shows_the_tables_numbers(zoomed):
    page, library = zoomed
    chance = random.Random(6)
    for _ in range(4):
        go(page, chosen(chance, library)[0])
        rows = table(page)
        operands = page.locator(f"{PART} .zoom-operand").all_text_contents()
        count = len(operands) // 2
        products = page.locator(f"{PART} .zoom-product").all_text_contents()
        for i, row in enumerate(rows[:count]):
            drawn = [*operands[2 * i : 2 * i + 2], products[i]]
            for one, exact in zip(drawn, row[1:], strict=True):
                off = 0.0051 if abs(parsed(exact)) < 9.99 else 0.051
                assert abs(parsed(one) - parsed(exact)) < off
        equation = page.locator(f"{PART} .zoom-equation").text_content()
        total, root, score, weight = map(
            parsed, re.findall(r"−?\d+\.?\d*", equation)
        )
        assert root == count
        assert abs(total / math.sqrt(root) - score) < 0.01
        assert 0 <= weight <= 1


def test_rows_sum_to_one_and_masked_cells_say_so(zoomed):
    page, library = zoomed
    for path, maps in library.maps.items():
        stack, _, layer, sub = path.split(".")
        head = len(path) % len(maps)
        top = f"{stack}.{int(layer) + 1}.{sub}.{head + 1}"
        go(page, top)
        lines = page.locator(f"{PART} .zoom-map button").all()
        assert len(lines) == len(maps[head])
        causal = path.startswith("decoder") and sub == "self_attention"
        for row, line in enumerate(lines):
            texts = line.locator(".zoom-cell").all_text_contents()
            masked = [text == "masked" for text in texts]
            wanted = [causal and i > row for i in range(len(texts))]
            assert masked == wanted
            shares = [float(one) for one in texts if one != "masked"]
            assert abs(sum(shares) - 1) < 0.0051 * len(texts)
            assert parsed(table(page)[row][-1]) == 1
            seen = maps[head, row][: len(shares)]
            assert (torch.tensor(shares) - seen).abs().max() < 0.006
        go(page, f"{top}.1")
        rows = table(page)
        weights = [float(row[-1]) for row in rows[:-1]]
        assert abs(sum(weights) - 1) < 1e-4 and rows[-1][-1] == "1.00000"
        assert [row[1] == "masked" for row in rows[:-1]] == [
            causal and i > 0 for i in range(len(weights))
        ]
        grown = [float(row[2]) for row in rows[:-1]]
        for share, one in zip(weights, grown, strict=True):
            assert abs(one / sum(grown) - share) < 1e-4


def test_every_line_is_the_librarys(visit, monkeypatch):
    """Shown as it is, with its chapter; another one stops the build."""
    shown = given_to_the_page()["lines"]
    assert shown == make_data.lines()
    page = opened(visit, "model")
    for address in OF_EACH_KIND:
        go(page, address)
        text = page.locator(f"{PART} .zoom-code pre").all_text_contents()
        links = page.locator(f"{PART} .zoom-code a").evaluate_all(
            "all => all.map(link => link.pathname + link.hash)"
        )
        flat = "\n".join(text).split("\n")
        assert flat in [
            [one["line"] for one in each] for each in shown.values()
        ]
        for link in links:
            file, _, label = link.lstrip("/").partition("#")
            assert f'id="{label}"' in (SITE / file).read_text("utf-8")
    function, line = make_data.LINES["cell"][0]
    monkeypatch.setitem(
        make_data.LINES, "cell", [(function, line.replace("@", "*"))]
    )
    with pytest.raises(RuntimeError, match="attention has no line"):
        make_data.lines()


def test_it_is_not_made_of_numbers_that_lead_elsewhere():
    """Scores that do not lead to the recorded weights stop the build."""
    library = computed()
    path = "decoder.layers.0.self_attention"
    part = library.model.get_submodule(path)
    weights = library.maps[path][None]
    with torch.no_grad():
        given = *library.given[path], True  # causal
        make_data.looked_into(part, given, weights)
        with pytest.raises(RuntimeError, match="do not lead"):
            make_data.looked_into(part, given, weights.flip(1))


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


def test_by_pointer_and_by_the_path_above(visit):
    page = opened(visit)
    part = page.locator(PART)
    for name in ["encoder", "1", "self_attention", "1", "2", "3", "k5"]:
        part.locator(f"[data-part={json.dumps(name)}]").click()
        page.wait_for_function(f"location.hash.endsWith('{name}')")
    part.get_by_role("button", name="next: k₆").click()
    page.wait_for_function("location.hash.endsWith('.k6')")
    part.get_by_role("button", name="next: k₇").press("Enter")
    page.wait_for_function("location.hash.endsWith('.k7')")
    part.get_by_role("button", name="head 1", exact=True).click()
    is_open(page, "encoder.1.self_attention.1")
    assert focused(page) == "2"  # the row that one was in
    part.get_by_role("button", name="model", exact=True).click()
    is_open(page, "model")
    assert focused(page) == "encoder"


def test_an_output_lights_its_inputs(visit):
    page = opened(visit, "encoder.1.self_attention.1.2.3")
    part = page.locator(PART)
    lit = f"{PART} .zoom-lit"
    part.locator(".zoom-product").nth(4).hover()
    found = page.locator(lit).evaluate_all(
        "all => all.map(one => one.dataset.part)"
    )
    assert found == ["q5", "k5"]
    part.locator(".zoom-equation span").first.hover()
    assert page.locator(lit).count() == part.locator(".zoom-tile").count()
    page.mouse.move(0, 0)
    assert page.locator(lit).count() == 0


def test_a_frame_is_explained_and_whole_and_does_not_stick(visit):
    page = opened(visit, "decoder.1.self_attention.1", has_touch=True)
    part, lit = page.locator(PART), page.locator(f"{PART} .zoom-lit")
    assert "frame" in part.locator(".zoom-words").text_content()
    part.locator(".zoom-map button").first.hover()
    place = part.locator(".zoom-stage .live-scroll").bounding_box()
    assert lit.bounding_box()["y"] - place["y"] >= 3  # 2 wide, 1 off
    page.mouse.move(0, 0)
    for _ in range(2):  # a finger goes in, twice
        part.locator("[data-part]").first.tap()
        page.wait_for_timeout(600)
        assert lit.count() == 0


def test_the_largest_product_is_marked_and_said(visit):
    page = opened(visit, "encoder.1.self_attention.1.2.3.q5")
    read = page.locator(f"{PART} .zoom-read").text_content()
    number = int(re.search(r"number (\d+) of 128, the largest", read)[1])
    rows = [parsed(row[-1]) for row in table(page)[:128]]
    assert abs(rows[number - 1]) == max(map(abs, rows))
    marked = page.locator(f"{PART} rect.zoom-lit").evaluate_all(
        "all => all.map(one => one.dataset.number)"
    )
    assert marked == [str(number - 1)] * 3


@pytest.mark.parametrize("sub", ["self_attention", "cross_attention"])
def test_masked_cells_are_spoken_of_where_there_are_any(visit, sub):
    page = opened(visit, f"decoder.1.{sub}")
    words = page.locator(f"{PART} .zoom-words").text_content()
    masked = page.locator(f"{PART} .zoom-masked").count() > 0
    assert ("masked" in words) == masked == (sub == "self_attention")


def test_colours_have_a_legend_with_sign_and_size(visit):
    page = opened(visit, "decoder.1")
    legend = page.locator(f"{PART} .zoom-legend").text_content()
    assert "negative" in legend and "positive" in legend
    sizes = page.locator(f"{PART} .zoom-strip figcaption")
    for size in sizes.all_text_contents():
        assert re.search(r"±\d+\.\d+$", size)


def shows(page, address: str) -> None:
    """The level of an address is there, under its name."""
    steps = [] if address == "model" else address.split(".")
    names = crumbs(page)
    assert len(names) == len(steps) + 1
    if "feed_forward" in steps:
        rows = [plain(piece) for piece in computed().pieces[steps[0]]]
        assert names[4:5] == [rows[int(i) - 1] for i in steps[3:4]]
    elif len(steps) > 5 and steps[5] == "values":
        rows = computed().pieces[steps[0]]
        assert names[5:7] == [plain(rows[int(steps[4]) - 1]), "values"]
    elif len(steps) > 5:
        rows = computed().pieces[steps[0]]
        cross = steps[2] == "cross_attention"
        columns = computed().pieces["encoder" if cross else steps[0]]
        wanted = [rows[int(steps[4]) - 1], columns[int(steps[5]) - 1]]
        assert names[5:7] == [plain(piece) for piece in wanted]
    assert len(table(page)) > 1 and said(page)


def test_every_address_opens_its_level(visit):
    page = opened(visit, OF_EACH_KIND[-1])
    shows(page, OF_EACH_KIND[-1])
    for address in OF_EACH_KIND:
        go(page, address)
        shows(page, address)
    page.evaluate("location.hash = 'play.step=2&zoom=encoder'")
    is_open(page, "encoder")
    page.locator(f"{PART} [data-part='2']").click()
    is_open(page, "encoder.2")
    state = page.evaluate("location.hash")
    assert state == "#play.step=2&zoom=encoder.2"  # others' state stays


def test_nonsense_opens_the_model(visit):
    page = opened(visit)
    config = computed().model.config
    for odd in [
        "nonsense",
        "encoder.0",
        f"decoder.{config.N + 1}",
        "encoder.1.cross_attention",
        "encoder.1.feed_forward.99",
        "encoder.1.feed_forward.1.q1",
        f"encoder.1.feed_forward.1.i{config.d_ff + 1}",
        f"encoder.1.feed_forward.1.y{config.d_model + 1}",
        "encoder.1.feed_forward.1.i1.1",
        f"decoder.1.self_attention.{config.h + 1}",
        "decoder.1.self_attention.1.1.1.x1",
        "decoder.1.self_attention.1.1.1.q0",
        "decoder.1.self_attention.1.1.1.q1.1",
        "decoder.1.self_attention.1.1.1.o1",
        "decoder.1.self_attention.1.1.values.q1",
        "decoder.1.self_attention.1.1.values.o1.99",
        "decoder.1.self_attention.1.1.values.o1.values",
        "encoder..",
        "1",
        "__proto__",
    ]:
        go(page, "encoder.1")
        page.evaluate("odd => { location.hash = `zoom=${odd}` }", odd)
        is_open(page, "model")
        assert crumbs(page) == ["model"]


def test_nothing_is_fetched_before_it_is_opened(visit):
    page = opened(visit)
    page.locator(PART).scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    data = [url for url in page.asked if "/live/data/" in url]
    assert not data
    page.locator(f"{PART} [data-part=decoder]").click()
    is_open(page, "decoder")
    go(page, "decoder.1.self_attention.1.1.1")
    data = [url for url in page.asked if "/live/data/" in url]
    assert [url.rsplit("/", 1)[1] for url in data] == ["numbers.bin"]
    go(page, "decoder.1.self_attention.1.1.1.q1")
    go(page, "decoder.1.self_attention.1.1.1.k2")
    data = [url for url in page.asked if "/live/data/" in url]
    assert len(data) == 2 and data[1].endswith("0.self_attention.0.bin")


def test_what_is_fetched_is_small():
    folder = SITE / "_static" / "live" / "data" / "zoom"
    sizes = given_to_the_page()["sizes"]
    assert (folder / "numbers.bin").stat().st_size < 170_000
    head = 3 * sizes["d_k"] * sizes["d_model"] * 4
    found = [path.stat().st_size for path in folder.glob("*attention*.bin")]
    assert found == [head] * (3 * sizes["N"] * sizes["h"])
    d_model, d_ff = sizes["d_model"], sizes["d_ff"]
    network = 4 * (2 * d_model * d_ff + d_model + d_ff)
    found = [path.stat().st_size for path in folder.glob("*forward.bin")]
    assert found == [network] * (2 * sizes["N"])
    assert network < 300_000


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


@pytest.mark.parametrize("width", [360, 768, 1200])
def test_the_text_below_never_moves(visit, width):
    settings = {"viewport": {"width": width, "height": 900}}
    page = opened(visit, "model", **settings)
    nothing = {"body": "", "content_type": "text/javascript"}
    page.route("**/live/start.js", lambda route: route.fulfill(**nothing))
    page.goto(page.url.partition("#")[0], wait_until="commit")
    page.wait_for_selector(f"{PART} .live-missing")  # the first paint
    heights = {round(page.locator(PART).bounding_box()["height"])}
    page.unroute("**/live/start.js")
    page.reload(wait_until="commit")
    page.wait_for_selector(f"{PART} .zoom-stage")
    for address in OF_EACH_KIND:
        go(page, address)
        heights.add(round(page.locator(PART).bounding_box()["height"]))
        cut = page.locator(
            f"{PART} :is(.zoom-head, .zoom-words, .live-result, .zoom-sizes)"
        ).evaluate_all(
            "all => all.filter(one => one.scrollHeight"
            " > one.clientHeight + 1).map(one => one.className)"
        )
        assert not cut, address
    assert len(heights) == 1, heights


def test_a_box_grows_but_not_under_reduced_motion(visit):
    moving = (
        f"document.querySelector('{PART}')"
        ".getAnimations({ subtree: true }).length"
    )
    for calm, count in [("reduce", 0), ("no-preference", 1)]:
        page = opened(visit, reduced_motion=calm)
        page.evaluate(
            f"""() => {{
              window.moved = 0;
              const stage = document.querySelector('{PART} .zoom-stage');
              new MutationObserver(() => requestAnimationFrame(
                () => {{ window.moved += {moving}; }}
              )).observe(stage, {{ childList: true }});
            }}"""
        )
        page.locator(f"{PART} [data-part=decoder]").click()
        is_open(page, "decoder")
        page.wait_for_timeout(500)
        assert page.evaluate("moved") == count
        assert page.evaluate(moving) == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_it_fits_and_is_accessible(visit, violations, theme, width):
    page = opened(visit, "model", viewport={"width": width, "height": 900})
    page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
    page.locator(f"{PART} summary").click()
    for address in OF_EACH_KIND:
        go(page, address)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width
        assert not violations(page, PART), address


def test_boxes_are_as_large_as_a_finger_needs(visit):
    page = opened(visit, "model", viewport={"width": 360, "height": 740})
    for address in OF_EACH_KIND:
        go(page, address)
        # At one moment: boxes may be drawn anew at any other.
        sizes = page.locator(f"{PART} button:visible").evaluate_all(
            "all => all.map(one => one.getBoundingClientRect())"
            ".map(size => Math.min(size.width, size.height))"
        )
        assert sizes and min(sizes) >= 24, address


def test_without_a_script_a_picture_has_the_same_numbers(visit):
    """On paper too: the page's own run, one cell of the encoder."""
    html = (SITE / CHAPTER).read_text("utf-8")
    head, row = map(
        int,
        re.search(
            r"head, row = (\d+), (\d+)", re.sub("<.*?>", "", html)
        ).groups(),
    )
    told = re.search(
        r"The (\d+) products of the query of (\w+) and the key of (\w+) sum "
        r"to (−?[\d.]+); divided by the root of \d+ that is the score "
        r"(−?[\d.]+)\. Weights of the row: (.*?)\.\"",
        html,
    )
    count, word, key, total, score, weights = told.groups()
    names = [plain(one) for one in computed().pieces["encoder"]]
    place = names.index(key) + 1
    where = f"encoder.1.self_attention.{head + 1}.{row + 1}"
    page = opened(visit, f"{where}.{place}")
    assert crumbs(page)[-2:] == [word, key]
    assert said(page).startswith(f"Score {score} = {total} ÷ √{count};")
    go(page, where)
    shown = [float(cells[-1]) for cells in table(page)[:-1]]
    drawn = [float(one.rsplit(" ", 1)[1]) for one in weights.split(", ")]
    assert drawn == pytest.approx(shown, abs=0.0051)
    plainly = opened(visit, java_script_enabled=False)
    plainly.wait_for_load_state()
    picture = plainly.locator(".tag_still svg:visible")
    assert picture.count() == 1
    assert page.locator(".tag_still").count() == 0


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
    look_inside(page)
    page.get_by_text(told.format(OWN_STEPS + 1)).wait_for()
    assert crumbs(page)[-2:] == ["feed-forward network", "gustan"]
    assert table(page) != before
    assert page.locator(PART).count() == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_readers_model_fits_a_phone(visit, violations, theme):
    calm = "reduce" if theme == "dark" else "no-preference"
    page = opened_on_own(
        visit, viewport={"width": 360, "height": 740}, reduced_motion=calm
    )
    page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
    for address in ["model", "decoder.1.feed_forward.2", OF_EACH_KIND[-1]]:
        go(page, address)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert not violations(page, PART), address
