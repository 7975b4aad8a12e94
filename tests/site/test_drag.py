"""Attention to drag, in a real browser, beside the library's function."""

import random
import re

import pytest
import tangle
import torch
from playwright.sync_api import expect

from transformer_lib.attention import attention

CHAPTER = "book/architecture/attention.html"
SITE = tangle.ROOT / "_build" / "html"
PART = ".live[data-live=drag]"
WORDS = ["I", "like", "trees"]
KEYS = ["k0", "k1", "k2"]
VALUES = ["v0", "v1", "v2"]


def opened(visit, state="", **settings):
    """The chapter, at the part."""
    page = visit(CHAPTER + state, **settings)
    page.wait_for_selector(f"{PART} .live-result")
    page.locator(PART).scroll_into_view_if_needed()
    return page


def points(page) -> dict[str, list[float]]:
    """Where the points are, by the numbers that can be typed."""
    found = page.locator(f"{PART} input[type=number]").evaluate_all(
        "all => all.map(input => input.valueAsNumber)"
    )
    names = ["q", *KEYS, *VALUES]
    found = [float(number) for number in found]
    pairs = zip(found[::2], found[1::2], strict=True)
    return dict(zip(names, map(list, pairs), strict=True))


def shown(page) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights and the output that the page has written."""
    weights = page.locator(f"{PART} [data-step=weight]").all_text_contents()
    sentence = page.locator(f"{PART} .drag-sum").text_content()
    output = re.search(r"= \((\S+), (\S+)\)$", sentence).groups()
    return tuple(torch.tensor([*map(float, n)]) for n in (weights, output))


def agrees(page, divide=True, mask=False) -> None:
    """What the page shows is what the library's attention computes."""
    now = points(page)
    query = torch.tensor([now["q"]])
    keys = torch.tensor([now[name] for name in KEYS])
    values = torch.tensor([now[name] for name in VALUES])
    may = torch.tensor([[True, True, not mask]])
    scale = 1 if divide else 2**0.5
    weights = attention(scale * query, keys, torch.eye(3), may)[0][0]
    output = attention(scale * query, keys, values, may)[0][0]
    seen, written = shown(page)
    assert (seen - weights).abs().max() < 1e-3
    assert (written - output).abs().max() < 1e-3
    drawn = page.locator(f"{PART} .drag-output circle")
    places = [float(drawn.get_attribute(name)) for name in ("cx", "cy")]
    at = torch.tensor([(places[0] - 130) / 40, (130 - places[1]) / 40])
    assert (at - output).abs().max() < 1e-3


def middle(page, name) -> tuple[float, float]:
    """Where on the screen the middle of a handle is."""
    box = page.locator(f"[data-point={name}] .drag-knob").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag(page, name, place) -> None:
    """Pull a handle to a place, with the mouse."""
    now, (x, y) = points(page)[name], middle(page, name)
    board = page.locator(f".drag-plane:has([data-point={name}])")
    unit = 40 * board.bounding_box()["width"] / 260  # as it is drawn
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(
        x + unit * (place[0] - now[0]), y - unit * (place[1] - now[1])
    )
    page.mouse.up()


def put(page, name, place) -> None:
    """Type a point's two numbers."""
    details = page.locator(f"{PART} .live-numbers")
    details.evaluate("details => { details.open = true }")
    inputs = details.locator("input")
    row = ["q", *KEYS, *VALUES].index(name)
    for axis, number in enumerate(place):
        inputs.nth(2 * row + axis).fill(str(number))
        inputs.nth(2 * row + axis).blur()


def switch(page, name):
    return page.get_by_role("checkbox", name=name, exact=True)


def marks(page) -> list[bool]:
    texts = page.locator(f"{PART} .drag-mark").all_text_contents()
    assert len(texts) == 3
    return [text.startswith("✓") for text in texts]


def test_dragged_by_mouse(visit):
    page, chance = opened(visit), random.Random(1)
    for _ in range(8):
        name = chance.choice(["q", *KEYS, *VALUES])
        now = points(page)
        place = [round(chance.uniform(-2, 2), 1) for _ in range(2)]
        near = [*now.values(), place]
        apart = [
            abs(a[0] - b[0]) + abs(a[1] - b[1]) > 0.3
            for i, a in enumerate(near)
            for b in near[:i]
        ]
        if not all(apart):
            continue
        drag(page, name, place)
        moved = points(page)
        assert moved[name] == pytest.approx(place, abs=0.04)
        assert {**moved, name: 0} == {**now, name: 0}
        agrees(page)


def test_moved_by_keyboard(visit):
    page = opened(visit)
    slider = page.get_by_role("slider", name="key of like")
    slider.focus()
    x, y = points(page)["k1"]
    for key, way in [
        ("ArrowRight", (0.1, 0)),
        ("Shift+ArrowUp", (0, 0.5)),
        ("ArrowLeft", (-0.1, 0)),
        ("Shift+ArrowLeft", (-0.5, 0)),
        ("ArrowDown", (0, -0.1)),
    ]:
        page.keyboard.press(key)
        x, y = x + way[0], y + way[1]
        assert points(page)["k1"] == pytest.approx([x, y], abs=1e-6)
        agrees(page)
    assert slider.get_attribute("aria-valuenow") == f"{x:.1f}"


def test_set_by_numbers_and_switches(visit):
    page, chance = opened(visit), random.Random(2)
    for turn in range(8):
        divide, mask = turn % 2 == 0, turn % 4 > 1
        switch(page, "divide by √d_k").set_checked(divide)
        switch(page, "mask trees").set_checked(mask)
        for name in ["q", *KEYS, *VALUES]:
            place = [round(chance.uniform(-2, 2), 2) for _ in range(2)]
            put(page, name, place)
            assert points(page)[name] == place
        agrees(page, divide, mask)
    page.get_by_role("button", name="Reset").click()
    agrees(page)
    assert switch(page, "divide by √d_k").is_checked()
    assert not switch(page, "mask trees").is_checked()


def test_all_moves_in_the_frame_of_the_event(visit):
    """All but what is said, which waits for half a second of rest."""
    page = opened(visit)
    before, after = page.evaluate(
        """() => {
          const place = document.querySelector('[data-live=drag]');
          const texts = () => [...place.querySelectorAll(
            '[data-step], .drag-sum, .live-result')].map(e => e.textContent);
          const before = texts();
          document.querySelector('[data-point=q]').dispatchEvent(
            new KeyboardEvent('keydown', {key: 'ArrowUp', shiftKey: true}));
          return [before, texts()];
        }"""
    )
    changed = [a != b for a, b in zip(before, after, strict=True)]
    assert changed == 13 * [True] + [False]
    said = page.locator(f"{PART} .live-result")
    expect(said).not_to_have_text(before[-1], timeout=30_000)
    assert "Weights: I " in said.text_content()


@pytest.fixture
def phone(visit):
    return opened(
        visit,
        viewport={"width": 360, "height": 740},
        has_touch=True,
        is_mobile=True,
    )


def swipe(page, start, way) -> None:
    """A finger put down, moved in ten steps and lifted."""
    client = page.context.new_cdp_session(page)
    x, y = start
    for kind, share in [
        ("touchStart", 0),
        *(("touchMove", step / 10) for step in range(1, 11)),
        ("touchEnd", 1),
    ]:
        spot = {"x": x + share * way[0], "y": y + share * way[1]}
        ends = kind == "touchEnd"
        client.send(
            "Input.dispatchTouchEvent",
            {"type": kind, "touchPoints": [] if ends else [spot]},
        )
    page.wait_for_timeout(300)


def test_a_finger_on_a_handle_moves_it_and_beside_it_the_page(phone):
    page = phone
    page.evaluate(
        "document.querySelector('.drag-plane').scrollIntoView("
        "{block: 'center', behavior: 'instant'})"
    )
    here = page.evaluate("scrollY")
    now = points(page)["k0"]
    x, y = middle(page, "k0")
    swipe(page, (x + 12, y + 12), (0, -60))  # not on its very middle
    moved = points(page)["k0"]
    assert page.evaluate("scrollY") == here
    assert moved[0] == pytest.approx(now[0], abs=0.05)
    assert moved[1] > now[1] + 0.5
    agrees(page)
    board = page.locator(f"{PART} .drag-plane").first.bounding_box()
    corner = board["x"] + 20, board["y"] + board["height"] - 20
    swipe(page, corner, (0, -120))
    assert page.evaluate("scrollY") > here + 50
    assert points(page)["k0"] == moved


def test_handles_are_as_large_as_a_finger(phone, visit):
    for page in [phone, opened(visit)]:
        for finger in page.locator(f"{PART} .drag-finger").all():
            assert finger.bounding_box()["width"] >= 44


def test_challenges_are_met_exactly_when_they_are_true(visit):
    page = opened(visit)
    assert marks(page) == [False, False, False]
    for name in KEYS:
        put(page, name, [1, 1])
    assert marks(page) == [True, False, False]
    put(page, "k0", [1.1, 1])
    assert marks(page) == [True, False, False]  # once done, always done
    page.get_by_role("button", name="Reset").click()
    put(page, "k0", [2.9, 2.9])
    put(page, "k2", [-2, -2])
    assert marks(page) == [True, True, False]


@pytest.mark.parametrize(
    "moved",
    [
        {"k0": [1.1, 1], "k1": [1, 1], "k2": [1, 1]},  # not near a third
        {"q": [1.3, 0.9], "k0": [2.9, 2.9], "k2": [-2, -2]},  # the query
    ],
)
def test_a_challenge_not_quite_met_stays_open(visit, moved):
    page = opened(visit)
    for name, place in moved.items():
        put(page, name, place)
    weights, _ = shown(page)
    assert weights[0] > 0.9 or (weights - 1 / 3).abs().max() > 0.01
    assert marks(page) == [False, False, False]


def test_nothing_runs_out_of_the_planes(visit):
    """Neither the names of points at the border nor the query's line."""
    page = opened(visit)
    for corner in [[3, 3], [-3, 3], [3, -3], [-3, -3]]:
        for name in ["k2", "v0", "v1", "v2"]:
            put(page, name, corner)
        put(page, "q", [part / 3 for part in corner])
        for board in page.locator(f"{PART} .drag-plane").all():
            frame = board.bounding_box()
            for text in board.locator("text").all():
                box = text.bounding_box()
                for at, size in ("x", "width"), ("y", "height"):
                    assert box[at] >= frame[at]
                    assert box[at] + box[size] <= frame[at] + frame[size]
    clip = page.locator(f"{PART} .drag-line").evaluate(
        "line => getComputedStyle(line.parentNode).clipPath"
    )
    assert clip.startswith("url(")


def test_the_output_never_leaves_the_triangle(visit):
    """10,000 settings; and `outside` knows what is outside."""
    page = opened(visit)
    assert page.evaluate(
        """async () => {
          const { met, outside, attend } =
            await import('/_static/live/drag.js');
          const corners = [[0, 0], [1, 0], [0, 1]];
          const knows = outside([1, 1], corners)
            && outside([-0.1, 0.5], corners)
            && !outside([0.2, 0.2], corners);
          const number = () => 6 * Math.random() - 3;
          const names = ['q', 'k0', 'k1', 'k2', 'v0', 'v1', 'v2'];
          let never = true;
          for (let turn = 0; turn < 10000; turn++) {
            const points = Object.fromEntries(
              names.map(name => [name, [number(), number()]]));
            const state = { points, divide: turn % 2 == 0,
              mask: turn % 3 == 0 };
            never = never && !met(state)[2];
          }
          return knows && never;
        }"""
    )


def test_the_address_brings_everything_back(visit):
    page = opened(visit)
    for i, name in enumerate(["q", *KEYS, *VALUES]):
        put(page, name, [round(0.3 * i - 1.05, 2), round(1.11 - 0.2 * i, 2)])
    switch(page, "divide by √d_k").uncheck()
    switch(page, "mask trees").check()
    page.wait_for_function("location.hash.includes('drag.mask=yes')")
    state = page.evaluate("location.hash")
    again = opened(visit, state)
    assert points(again) == points(page)
    agrees(again, divide=False, mask=True)
    assert all(map(torch.equal, shown(again), shown(page)))
    odd = opened(visit, "#drag.q=nonsense&drag.k0=9_-9&drag.divide=perhaps")
    now, usual = points(odd), points(opened(visit))
    assert now.pop("k0") == [3, -3]
    usual.pop("k0")
    assert now == usual
    agrees(odd)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_it_fits_and_is_accessible(visit, violations, theme, width):
    page = opened(visit, viewport={"width": width, "height": 800})
    page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
    page.locator(f"{PART} details").evaluate_all(
        "all => all.forEach(details => { details.open = true })"
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not violations(page, PART)


def test_its_picture_on_paper_has_the_same_weights(visit):
    html = (SITE / CHAPTER).read_text("utf-8")
    told = re.search(r"The bars are the weights: (.*?)\. On the", html)[1]
    weights, _ = shown(opened(visit))
    wanted = zip(WORDS, weights.tolist(), strict=True)
    assert told == ", ".join(f"{word} {one:.2f}" for word, one in wanted)
