"""What the pages share: figures, the exercises' engine, records, where."""

import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

import transformer_lib as lib
from transformer_book import exercises
from transformer_book.exercises import check, exercise
from transformer_book.figures import (
    COLOURS,
    SIGNED,
    Sketch,
    attention_chart,
    heatmap,
    mask_chart,
    panels,
    shape_table,
    show,
    style,
)
from transformer_book.records import (
    load_run,
    markdown_table,
    recorded_runs,
)
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


def perceived(colour):
    """A colour in OKLab, where distances are those that are seen."""
    rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    light = np.where(
        rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4
    )
    cones = [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
    opponents = [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
    return opponents @ np.cbrt(cones @ light)


def test_signs_have_colours_of_their_own():
    """Told apart from each other and from every colour with a meaning."""
    signs = [perceived(colour) for colour in SIGNED.values()]
    assert np.linalg.norm(signs[0] - signs[1]) > 0.3
    for colour in COLOURS.values():
        for sign in signs:
            assert np.linalg.norm(sign - perceived(colour)) > 0.1


def line(title="a title"):
    with style():
        figure, ax = plt.subplots(figsize=(3, 2))
        ax.plot([0, 1], [1, 0])
        ax.set_title(title)
    return figure


def test_show_is_the_same_every_time_and_closes():
    before = plt.get_fignums()
    page = show(line(), 'a "line" < falling')._repr_html_()
    assert page == show(line(), 'a "line" < falling')._repr_html_()
    assert plt.get_fignums() == before
    assert page.startswith('<svg class="picture wide"')
    assert 'aria-label="a &quot;line&quot; &lt; falling"' in page
    assert re.search('<text fill="currentColor"[^>]*>a title', page)
    names = set(re.findall(r'id="([^"]+)"', page))
    other = show(line(), "another")._repr_html_()
    assert not names & set(re.findall(r'id="([^"]+)"', other))
    with pytest.raises(ValueError, match="alt is empty"):
        show("<svg></svg>", " ")


def test_a_phone_has_a_drawing_of_its_own():
    """Both as wide as their place, and with words of one size."""
    page = show(lambda narrow: panels(2, narrow)[0], "two")._repr_html_()
    wide, narrow = page.split("</svg>", 1)
    assert 'class="picture wide"' in wide
    assert 'class="picture narrow" style="display: none"' in narrow
    widths = re.findall(r'viewBox="0 0 ([\d.]+)', page)
    assert [float(width) / 72 for width in widths] == [7.5, 3.5]
    assert set(re.findall(r"font-size: ([\d.]+)px", page)) == {"9.75"}
    one = show(line(), "one")
    assert "font-family: Helvetica" in one.svg and "DejaVu" not in one.svg


def test_no_line_of_a_sketch_crosses_a_word():
    sketch = Sketch(200, 100)
    sketch.line((0, 50), (200, 50), arrow=True)
    sketch.box(100, 50, "norm & sum", "norm", width=90)
    drawn = show(sketch, "a line")
    assert 'aria-label="a line"' in drawn._repr_html_()
    lines = re.search(r'<g mask="url\(#(\S+)\)">\s*<path', drawn.svg)
    mask = re.search(rf'<mask [^>]*id="{lines[1]}".*?</mask>', drawn.svg, re.S)
    place = 'x="55.0" y="35.0" width="90" height="30" fill="black"'
    assert place in mask[0]
    assert "norm &amp; sum" in drawn.svg
    # and it is pushed sideways on a phone before words are small
    assert 'style="min-width: 169px"' in drawn._repr_html_()


def test_signed_numbers_have_the_signed_scale():
    ax = heatmap([[-2.0, 1.0]], ["a"], ["b", "c"], cmap="value").axes[0]
    image = ax.images[0]
    ends = image.to_rgba(np.array([[-2.0, 0.0, 2.0]]))[0]
    for sign, end in zip(SIGNED, ends[::2], strict=True):
        rgb = [int(SIGNED[sign][i : i + 2], 16) / 255 for i in (1, 3, 5)]
        assert np.allclose(end, [*rgb, 1], atol=0.01)
    assert ends[1, 3] < 0.01  # zero is the page
    plt.close(ax.figure)


@pytest.mark.parametrize("draw", [heatmap, attention_chart, mask_chart])
def test_labels_must_fit_the_matrix(draw):
    with pytest.raises(ValueError, match="3 column names"):
        draw(torch.eye(2), ["a", "b"], ["a", "b", "c"])


def test_heatmap_draws_the_numbers_in_order():
    rows, columns = ["I", "like", "trees"], ["Me", "gustan"]
    numbers = torch.arange(6.0, requires_grad=True).view(1, 1, 3, 2)
    ax = heatmap(numbers, rows, columns).axes[0]
    assert [t.get_text() for t in ax.get_yticklabels()] == rows
    image = ax.images[0]
    drawn = image.get_array()
    assert np.array_equal(drawn, np.arange(6).reshape(3, 2))
    assert image.to_rgba(drawn)[0, 0, 3] == 0  # zero is the page
    plt.close(ax.figure)


def test_charts_tell_repeated_words_apart():
    words = ["the", "dog", "the"]
    chart = attention_chart(torch.eye(3) / 3, words, words)
    spec = chart.to_dict()
    cells = spec["data"]["values"]
    assert len(cells) == 9 and cells[8]["weight"] == "0.333"
    expression = spec["encoding"]["y"]["axis"]["labelExpr"]
    assert expression == '["the", "dog", "the"][datum.value]'
    wide = [f"w{i}" for i in range(90)]
    chart = mask_chart(np.eye(90), wide, wide).to_dict()
    assert chart["width"] <= 440
    assert chart["data"]["values"][0]["may attend"] == "yes"


def test_shape_table_checks_the_axes():
    x = torch.zeros(2, 5)
    table = shape_table({"x": (x, "batch, source_len"), "y": x[0]})
    assert "(2, 5)" in table.to_string() and "(5,)" in str(table)
    with pytest.raises(ValueError, match="x has shape"):
        shape_table({"x": (x, "batch")})


# Exercises


@pytest.fixture
def double(monkeypatch):
    monkeypatch.setattr(exercises, "_CHECKS", {})

    @exercise("sums.double")
    def sums_double(answer):
        got = answer(int(torch.randint(3, 9, ())))
        assert got == 18, f"twice 9 is 18, you give {got}"

    def drawn():  # what a check draws first
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return int(torch.randint(3, 9, ()))

    return drawn()


def test_verdicts(double, capsys):
    def raises(x):
        assert x < 0, "my own"

    before = torch.get_rng_state()
    assert check("sums.double", lambda x: 18) is True
    assert check("sums.double", lambda x: x - double) is False
    assert check("sums.double", raises) is False
    assert check("sums.double", 6) is False
    assert torch.equal(before, torch.get_rng_state())
    said = capsys.readouterr().out
    assert "sums.double: right.\n" in said
    assert "not yet. Twice 9 is 18, you give 0" in said
    assert "Your answer raised AssertionError: my own" in said
    place = raises.__code__.co_firstlineno + 1
    assert f'line {place} of raises: assert x < 0, "my own"' in said
    assert "could not use your answer: TypeError" in said


def test_an_unknown_exercise_lists_all():
    with pytest.raises(ValueError, match="attention.multi_head"):
        check("attention.multihead", None)


# Records


def test_records_are_read():
    assert "little-spanish" in recorded_runs()
    for name, folder in recorded_runs().items():
        run = load_run(name)
        assert run.folder == folder
        if "test" not in run.report:
            continue  # a start of the weights is validated alone
        low, high = run.report["test"]["interval"]
        score = run.report["test"]["bleu"]
        # six layers never learn, and translate nothing
        learnt = score > 0
        assert low < score < high if learnt else low == high == 0
        assert run.report["test"]["signature"].startswith("nrefs:1")
        steps, losses = run.series("validation_loss")
        assert steps == sorted(set(steps)) and len(losses) > 1
        assert (losses[-1] < losses[0]) == learnt
        assert steps[-1] == run.log[-1]["step"]
        if "model.safetensors" in {p.name for p in folder.iterdir()}:
            assert len(run.translations) >= 500
    with pytest.raises(FileNotFoundError, match="little-spanish"):
        load_run("nowhere")


def test_markdown_table():
    rows = [{"a_b": 12345.6, "c": [1.23456, 2], "d": "x|y"}]
    assert markdown_table(rows) == (
        "| a b | c | d |\n| --- | --- | --- |\n"
        r"| 12,346 | 1.235 2 | x\|y |"
    )


# Where


def test_where():
    place = "book/architecture/attention.html#attention-fast"
    assert where(lib.MultiHeadAttention) == place
    assert where("MultiHeadAttention") == place
    assert where(lib.MultiHeadAttention.forward) == place
    page = "book/architecture/masks.html#masks"
    assert where("masks") == where(lib.masks) == page
    assert where("PAD").startswith("book/architecture/embeddings")
    for unknown in [print, 3, "no_such_name"]:
        with pytest.raises(LookupError):
            where(unknown)


def test_where_begins_with_the_sites_address(monkeypatch):
    monkeypatch.setenv("TRANSFORMER_LIB_BOOK", "https://book.org/")
    assert where("train").startswith("https://book.org/book/")
