"""Attention to drag, in a real browser, beside the library's function."""

import random
import re

import pytest
import torch
from parts import numbers, press

from transformer_lib.attention import scaled_dot_product_attention

CHAPTER = "book/architecture/attention.html"
PART = ".live[data-live=drag]"
WORDS = ["I", "like", "trees"]
KEYS = ["k0", "k1", "k2"]
VALUES = ["v0", "v1", "v2"]
NAMES = ["q", *KEYS, *VALUES]


def opened(visit, state="", **settings):
    """The chapter, at the part."""
    page = visit(CHAPTER + state, **settings)
    page.wait_for_selector(f"{PART} .drag-sum")
    page.locator(PART).scroll_into_view_if_needed()
    return page


def points(page) -> dict[str, list[float]]:
    """Where the points are, by the numbers that can be typed."""
    found = page.locator(f"{PART} input[type=number]").evaluate_all(
        "all => all.map(input => input.valueAsNumber)"
    )
    pairs = zip(found[::2], found[1::2], strict=True)
    return dict(zip(NAMES, map(list, pairs), strict=True))


def shown(page) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights and the output that the page has written."""
    weights = page.locator(f"{PART} [data-step=weight]").all_text_contents()
    sentence = page.locator(f"{PART} .drag-sum").text_content()
    output = re.search(r"= \((\S+), (\S+)\)$", sentence).groups()
    return numbers(weights), numbers(output)


def agrees(page, divide=True, mask=False) -> None:
    """What the page shows is what the library's attention computes."""
    now = points(page)
    query = torch.tensor([now["q"]])
    keys = torch.tensor([now[name] for name in KEYS])
    values = torch.tensor([now[name] for name in VALUES])
    may = torch.tensor([[True, True, not mask]])
    query *= 1 if divide else 2**0.5
    output, weights = scaled_dot_product_attention(query, keys, values, may)
    seen, written = shown(page)
    assert (seen - weights[0]).abs().max() < 1e-3
    assert (written - output[0]).abs().max() < 1e-3
    drawn = page.locator(f"{PART} .drag-output circle")
    x, y = (float(drawn.get_attribute(name)) for name in ("cx", "cy"))
    at = torch.tensor([(x - 130) / 40, (130 - y) / 40])
    assert (at - output[0]).abs().max() < 1e-3


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
    row = NAMES.index(name)
    for axis, number in enumerate(place):
        inputs.nth(2 * row + axis).fill(str(number))
        inputs.nth(2 * row + axis).blur()


def switch(page, name):
    return page.get_by_role("checkbox", name=name, exact=True)


def marks(page) -> list[bool]:
    texts = page.locator(f"{PART} .drag-mark").all_text_contents()
    assert len(texts) == 3
    return [text.startswith("✓") for text in texts]


def test_moved_by_mouse_keyboard_numbers_and_switches(visit):
    """And the address brings everything back."""
    page = opened(visit)
    now = points(page)
    drag(page, "q", [-0.7, 1.4])
    moved = points(page)
    assert moved["q"] == pytest.approx([-0.7, 1.4], abs=0.04)
    assert {**moved, "q": 0} == {**now, "q": 0}
    agrees(page)
    slider = page.get_by_role("slider", name="key of like")
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowUp")
    x, y = now["k1"]
    wanted = pytest.approx([x + 0.1, y + 0.5], abs=1e-6)
    assert points(page)["k1"] == wanted
    now = float(slider.get_attribute("aria-valuenow"))
    assert now == pytest.approx(x + 0.1)
    agrees(page)

    chance = random.Random(2)
    for divide, mask in [(True, False), (False, True)]:
        switch(page, "divide by √d_k").set_checked(divide)
        switch(page, "mask trees").set_checked(mask)
        for name in NAMES:
            place = [round(chance.uniform(-2, 2), 2) for _ in range(2)]
            put(page, name, place)
            assert points(page)[name] == place
        agrees(page, divide, mask)
    last = "_".join(f"{number:g}" for number in points(page)["v2"])
    page.wait_for_function(
        "last => location.hash.includes(last)", arg=f"drag.v2={last}"
    )
    again = opened(visit, page.evaluate("location.hash"))
    assert points(again) == points(page)
    agrees(again, divide=False, mask=True)
    assert all(map(torch.equal, shown(again), shown(page)))
    odd = opened(visit, "#drag.q=nonsense&drag.k0=9_-9&drag.divide=perhaps")
    assert points(odd)["k0"] == [3, -3]
    agrees(odd)


def test_a_term_and_its_part_light_up_together(visit):
    """By the mouse in either, and by the keyboard at a handle."""
    page = opened(visit, width=1280)
    given = page.locator("#equation-eq-1")
    given.scroll_into_view_if_needed()
    given.locator("mjx-msqrt").wait_for()

    def lit(place):
        found = place.locator(".drag-lit")
        return {name for one in found.all() for name in terms(one)}

    def terms(one):
        return one.get_attribute("data-term").split()

    part = page.locator(PART)
    for name in ("Q", "K", "V", "root", "softmax"):
        part.locator(f".drag-sum [data-term={name}]").hover()
        assert name in lit(part.locator(".drag-parts"))
        assert lit(part.locator(".drag-sum")) == lit(given) == {name}
        given.locator(f"[data-term={name}]").last.hover()
        assert lit(part.locator(".drag-sum")) == {name}
    part.locator(".drag-bars svg").first.hover()  # the scores
    assert lit(given) == {"Q", "K"}
    page.get_by_role("heading", name="Equation 1").hover()
    assert not lit(page)
    part.get_by_role("slider", name="value of I").press("ArrowUp")
    assert lit(given) == {"V"}


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


def test_a_finger_on_a_handle_moves_it_and_beside_it_the_page(visit, fits):
    page = opened(visit, width=360, has_touch=True, is_mobile=True)
    for finger in page.locator(f"{PART} .drag-finger").all():
        assert finger.bounding_box()["width"] >= 44
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
    page.locator(f"{PART} details").evaluate_all(
        "all => all.forEach(details => { details.open = true })"
    )
    fits(page, PART)


def test_challenges_are_met_exactly_when_they_are_true(visit):
    page = opened(visit)
    assert marks(page) == [False, False, False]
    put(page, "q", [1.3, 0.9])  # 0.9 for I, but the query was moved
    put(page, "k0", [2.9, 2.9])
    put(page, "k2", [-2, -2])
    assert shown(page)[0][0] > 0.9
    assert marks(page) == [False, False, False]
    press(page.locator(PART), "Reset")
    put(page, "k0", [2.9, 2.9])
    put(page, "k2", [-2, -2])
    assert marks(page) == [False, True, False]
    for name, place in zip(KEYS, [[1.1, 1], [1, 1], [1, 1]], strict=True):
        put(page, name, place)
    assert marks(page) == [False, True, False]  # not near a third
    put(page, "k0", [1, 1])
    assert marks(page) == [True, True, False]
    put(page, "k0", [1.1, 1])
    assert marks(page) == [True, True, False]  # once done, always done
    # The third cannot be met: the output never leaves the triangle. In
    # 10,000 settings; and `outside` knows what is outside.
    assert page.evaluate(
        """async () => {
          const { met, outside } = await import('/_static/live/drag.js');
          const corners = [[0, 0], [1, 0], [0, 1]];
          const knows = outside([1, 1], corners)
            && outside([-0.1, 0.5], corners)
            && !outside([0.2, 0.2], corners);
          const number = () => 6 * Math.random() - 3;
          const names = ['q', 'k0', 'k1', 'k2', 'v0', 'v1', 'v2'];
          const never = Array.from({ length: 10000 }, (_, turn) => {
            const points = Object.fromEntries(
              names.map(name => [name, [number(), number()]]));
            return { points, divide: turn % 2 == 0, mask: turn % 3 == 0 };
          }).every(state => !met(state)[2]);
          return knows && never;
        }"""
    )
