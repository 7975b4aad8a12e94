"""Pictures: labels that fit, words for all, the same bytes each time."""

import re
import subprocess
import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from transformer_lib import figures
from transformer_lib.figures import (
    COLOURS,
    attention_chart,
    heatmap,
    mask_chart,
    shape_table,
    show,
    style,
)


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (
        p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4
        for p in parts
    )
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("name", COLOURS)
@pytest.mark.parametrize("page", ["#ffffff", "#121212"])
def test_colours_stand_out_on_both_pages(name, page):
    pair = sorted([luminance(COLOURS[name]), luminance(page)])
    assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 3


def test_colours_are_all_different():
    assert len(set(COLOURS.values())) == len(COLOURS)


def line(title="a title"):
    with style():
        fig, ax = plt.subplots(figsize=(3, 2))
        ax.plot([0, 1], [1, 0])
        ax.set_title(title)
        ax.set_xlabel("x")
    return fig


def test_show_writes_text_in_the_pages_colour_and_closes():
    before = plt.get_fignums()
    page = show(line(), "a falling line")._repr_html_()
    assert plt.get_fignums() == before
    assert page.startswith("<svg") and page.endswith("</svg>")
    assert 'role="img"' in page
    assert 'aria-label="a falling line"' in page
    assert "max-width: 100%" in page
    assert re.search('<text fill="currentColor"[^>]*>a title', page)
    assert "#000000" not in page
    assert "<dc:date>" not in page and "<metadata>" not in page


def test_show_is_the_same_every_time():
    first = show(line(), "a falling line")
    assert first == show(line(), "a falling line")
    assert first.svg == show(line(), "a falling line").svg


def test_two_pictures_share_no_name():
    def names(alt):
        return set(re.findall(r'id="([^"]+)"', show(line(), alt).svg))

    assert names("one") and not names("one") & names("another")


def test_show_takes_svg_and_escapes_words():
    drawing = '<svg viewBox="0 0 1 1"><path d="M0 0"/></svg>'
    page = show(drawing, 'a "dot" < a line')._repr_html_()
    assert "a &quot;dot&quot; &lt; a line" in page
    assert page.count("<svg") == 1


@pytest.mark.parametrize("alt", ["", "  \n"])
def test_a_picture_needs_words(alt):
    with pytest.raises(ValueError, match="alt is empty"):
        show("<svg></svg>", alt)


def test_style_leaves_no_trace():
    before = dict(plt.rcParams)
    with style():
        pass
    assert dict(plt.rcParams) == before


@pytest.mark.parametrize(
    "draw", [heatmap, attention_chart, mask_chart]
)
def test_labels_must_fit_the_matrix(draw):
    with pytest.raises(ValueError, match="3 column names"):
        draw(torch.eye(2), ["a", "b"], ["a", "b", "c"])


def test_heatmap_labels_come_in_order():
    rows, columns = ["I", "like", "trees"], ["Me", "gustan"]
    numbers = torch.arange(6.0).view(1, 1, 3, 2)
    figure = heatmap(numbers.requires_grad_(), rows, columns, "t")
    ax = figure.axes[0]
    assert [t.get_text() for t in ax.get_yticklabels()] == rows
    assert [t.get_text() for t in ax.get_xticklabels()] == columns
    drawn = ax.images[0].get_array()
    assert np.array_equal(drawn, np.arange(6).reshape(3, 2))
    plt.close(figure)


def test_heatmap_zero_is_the_page():
    for numbers in ([[-1.0, 0.0, 2.0]], [[0.0, 1.0, 2.0]]):
        figure = heatmap(numbers, ["r"], ["a", "b", "c"])
        image = figure.axes[0].images[0]
        painted = image.to_rgba(image.get_array())[0]
        alpha = painted[numbers[0].index(0.0), 3]
        assert alpha < 0.01 and painted[2, 3] == 1
        plt.close(figure)


def test_chart_knows_repeated_words_apart():
    words = ["the", "dog", "the"]
    weights = torch.tensor(
        [[0.5, 0.25, 0.25], [0, 1, 0], [1 / 3] * 3],
        dtype=torch.bfloat16,
    )
    chart = attention_chart(weights, words, words, "t", "told")
    spec = chart.to_dict()
    cells = spec["data"]["values"]
    assert len(cells) == 9
    assert spec["description"] == "told"
    assert spec["width"] <= 440
    last = next(c for c in cells if (c["i"], c["j"]) == (2, 0))
    assert last["query"] == last["key"] == "the"
    assert last["weight"] == "0.334"
    expression = spec["encoding"]["y"]["axis"]["labelExpr"]
    assert expression == '["the", "dog", "the"][datum.value]'


def test_mask_chart_says_yes_and_no():
    chart = mask_chart(torch.eye(2).bool(), ["a", "b"], ["a", "b"])
    told = [
        c["may attend"] for c in chart.to_dict()["data"]["values"]
    ]
    assert told == ["yes", "no", "no", "yes"]


def test_wide_chart_stays_narrow():
    words = [f"w{i}" for i in range(90)]
    chart = attention_chart(np.eye(90), words, words)
    assert chart.to_dict()["width"] <= 440


def test_shape_table_checks_the_axes():
    x = torch.zeros(2, 5)
    table = shape_table({"x": (x, "batch, source_len"), "y": x[0]})
    page = table._repr_html_()
    assert "(2, 5)" in page and "(batch, source_len)" in page
    assert "(5,)" in page
    with pytest.raises(ValueError, match="x has shape"):
        shape_table({"x": (x, "batch")})


def test_drawing_packages_are_imported_late():
    code = (
        "import sys, transformer_lib.figures;"
        "print({'matplotlib', 'altair', 'pandas', 'numpy'}"
        " & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True
    )
    assert done.stdout.strip() == "set()", done.stderr


def test_public_names():
    assert {"COLOURS", "style", "show"} <= set(figures.__all__)
