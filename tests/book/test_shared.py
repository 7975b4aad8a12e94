"""What the pages share: figures, the exercises' engine, records, where."""

import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
import tangle
import torch

import transformer_lib as lib
from transformer_book.drawings.attention_maps import prices
from transformer_book.exercises import check
from transformer_book.figures import (
    COLOURS,
    DARK,
    SIGNED,
    Sketch,
    chart,
    fading,
    panels,
    shape_table,
    show,
    width_of,
)
from transformer_book.records import (
    load_counts,
    load_run,
    recorded_runs,
)
from transformer_book.tables import markdown_table
from transformer_book.where import where

# Figures


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (
        p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4
        for p in parts
    )
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("page", ["#ffffff", "#121212"])
@pytest.mark.parametrize("name", [*COLOURS, *SIGNED])
def test_colours_stand_out_on_both_pages(name, page):
    colour = {**COLOURS, **SIGNED}[name]
    pair = sorted([luminance(colour), luminance(page)])
    assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 3


@pytest.mark.parametrize("name", DARK)
def test_dark_inks_can_be_read_as_words(name):
    assert (luminance(DARK[name]) + 0.05) / (luminance("#121212") + 0.05) > 6


def test_the_table_of_inks_is_the_pictures():
    text = (tangle.ROOT / "CONTRIBUTING.md").read_text("utf-8")
    rows = re.findall(r"\| (\w+).* \| `(#\w+)` \| `(#\w+)` \|", text)
    assert len(rows) == 7
    for name, light, dark in rows:
        assert (light, dark) == (COLOURS[name], DARK[name])


def line(title="a title"):
    figure, ax = chart(200)
    ax.plot([0, 1], [1, 0])
    ax.set_title(title)
    return figure


def test_words_and_black_dots_have_the_pages_colour():
    figure = line()
    figure.axes[0].plot(0.5, 0.5, "o", color="black")
    start, _, inside = show(figure, "dot")._repr_html_().partition(">")
    assert ' fill="currentColor"' in start
    assert "a title" in inside and "000000" not in inside


def test_show_is_the_same_every_time_and_closes():
    before = plt.get_fignums()
    page = show(line(), 'a "line" < falling')._repr_html_()
    assert page == show(line(), 'a "line" < falling')._repr_html_()
    assert plt.get_fignums() == before
    assert 'aria-label="a &quot;line&quot; &lt; falling"' in page
    names = set(re.findall(r'id="([^"]+)"', page))
    other = show(line(), "another")._repr_html_()
    assert not names & set(re.findall(r'id="([^"]+)"', other))
    with pytest.raises(ValueError, match="alt is empty"):
        show(Sketch(9, 9), " ")


def test_pieces_lie_side_by_side_where_there_is_room():
    """Each says how wide it is, may be and must be; words are of one size."""
    page = show(panels(2, 200)[0], "two")._repr_html_()
    assert page.startswith('<div class="pictures" style="display: flex')
    assert page.count('aria-label="two"') == 1
    looks = re.findall(r"flex: 1 1 (\d+)px.*?min-width: (\d+)px", page)
    assert looks == [("332", "273")] * 2
    assert set(re.findall(r"font-size: ([\d.]+)px", page)) == {"10.5"}
    one = show(line(), "one")._repr_html_()
    assert one.startswith("<svg") and "min-width: 353px" in one


def test_pictures_are_drawn_with_the_letters_that_ship():
    page = show(line(), "one")._repr_html_()
    assert set(re.findall(r"font-family: '([\w ]+)'", page)) == {"Book Sans"}
    figure = line("a title of some length")
    figure.draw_without_rendering()
    drawn = figure.axes[0].title.get_window_extent().width
    drawn *= 96 / figure.dpi
    assert abs(drawn - width_of("a title of some length")) < 3
    plt.close(figure)
    css = (tangle.ROOT / "book/_static/page.css").read_text("utf-8")
    for weight in (400, 700):
        assert f'"fonts/book-sans-{weight}.woff2"' in css


def test_no_line_of_a_sketch_crosses_a_word():
    sketch = Sketch(200, 100)
    sketch.line((0, 50), (200, 50), arrow=True)
    sketch.box(100, 50, "norm & sum", "norm", width=90)
    drawn = show(sketch, "a line")
    assert 'aria-label="a line"' in drawn._repr_html_()
    [svg] = drawn.pieces
    lines = re.search(r'<g mask="url\(#(\S+)\)">\s*<path', svg)
    mask = re.search(rf'<mask [^>]*id="{lines[1]}".*?</mask>', svg, re.S)
    place = 'x="55.0" y="35.0" width="90" height="30" fill="black"'
    assert place in mask[0]
    assert "norm &amp; sum" in svg


def test_signed_numbers_have_the_signed_scale():
    ends = fading("value", signed=True)(np.array([0.0, 0.5, 1.0]))
    for sign, end in zip(SIGNED, ends[::2], strict=True):
        rgb = [int(SIGNED[sign][i : i + 2], 16) / 255 for i in (1, 3, 5)]
        assert np.allclose(end, [*rgb, 1], atol=0.01)
    assert ends[1, 3] < 0.01  # zero is the page


def test_each_head_is_a_bar_to_point_at():
    """A chart of altair's, whose bars say in words which head each is."""
    page = prices(load_counts("heads")["prices"])._repr_html_()
    bars = re.findall(r'aria-label="([^"]*)" role="graphics-symbol"', page)
    heads = [words for words in bars if "BLEU points without it" in words]
    assert len(set(heads)) == 48
    assert heads[0].startswith("1.4 where am I?, decoder, on the source: +0.")


def test_shape_table_checks_the_axes():
    x = torch.zeros(2, 5)
    table = shape_table({"x": (x, "batch, source_len")})
    assert "(2, 5)" in table.to_string()
    with pytest.raises(ValueError, match="x has shape"):
        shape_table({"x": (x, "batch")})


# Exercises


def rate(step, d_model, warmup_steps):
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def test_verdicts(capsys):
    def raises(*_):
        torch.rand(3)
        raise AssertionError("my own")

    def always_low(step, *rest):
        return rate(step, *rest) if step < 400 else 1.0

    name, before = "schedule.learning_rate", torch.get_rng_state()
    assert check(name, rate) is True
    for wrong in always_low, 6:
        assert check(name, wrong) is False
    with pytest.raises(AssertionError, match="my own"):
        check(name, raises)  # in plain Python the error itself is shown
    torch.set_rng_state(before)
    for wrong in raises, lambda step: step:
        assert check("attention.multi_head", wrong) is False
    assert torch.equal(before, torch.get_rng_state())
    said = capsys.readouterr().out
    assert f"{name}: right.\n" in said
    assert f"{name}: not yet.\nAt step" in said
    assert "Your code raised AssertionError: my own" in said
    place = raises.__code__.co_firstlineno + 2
    assert f'line {place} of raises: raise AssertionError("my own")' in said
    assert "multi_head(step) is called with other arguments" in said.lower()
    assert "int is no function" in said


def test_an_unknown_exercise_lists_all():
    with pytest.raises(ValueError, match="attention.multi_head"):
        check("attention.multihead", None)


# Records


def test_records_are_read():
    assert "little-spanish" in recorded_runs()
    for name in recorded_runs():
        run = load_run(name)
        if "test" not in run.report:
            continue  # only validated
        low, high = run.report["test"]["interval"]
        score = run.report["test"]["bleu"]
        # six layers never learn, and translate nothing
        learnt = score > 0
        assert low < score < high if learnt else low == high == 0
        assert run.report["test"]["signature"].startswith("nrefs:1")
        steps, losses = run.series("validation_loss")
        if len(losses) > 1:  # not a run that was only timed
            assert (losses[-1] < losses[0]) == learnt
        assert steps[-1] == run.log[-1]["step"]
    assert len(load_run("little-spanish").translations) == 500
    with pytest.raises(FileNotFoundError, match="little-spanish"):
        load_run("nowhere")


def test_markdown_table():
    rows = [{"a_b": 12345.6, "c": [1.23456, 2], "d": "x|y"}]
    assert markdown_table(rows) == (
        "| a b | c | d |\n| ---: | ---: | --- |\n"
        r"| 12,346 | 1.235 2 | x\|y |"
    )


# Where


def test_where():
    place = "book/architecture/attention.html#attention-class"
    assert where(lib.MultiHeadAttention) == place
    assert where("MultiHeadAttention") == place
    assert where(lib.MultiHeadAttention.forward) == place
    page = "book/architecture/masks.html#masks"
    assert where("masks") == where(lib.masks) == page
    for unknown in [print, 3, "no_such_name"]:
        with pytest.raises(LookupError):
            where(unknown)


def test_where_begins_with_the_sites_address(monkeypatch):
    monkeypatch.setenv("TRANSFORMER_LIB_BOOK", "https://book.org/")
    assert where("train").startswith("https://book.org/book/")
