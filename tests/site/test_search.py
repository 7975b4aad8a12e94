"""The search page: hyphens do not matter, and excerpts can be read."""

import pytest


@pytest.fixture
def search(visit):
    """Titles and excerpts of what is found for a query."""

    def ask(query):
        page = visit(f"search.html?q={query}")
        page.locator("#search-results li p.context").first.wait_for()
        # a function of the library is told in a span, without an excerpt
        untold = "#search-results li:not(:has(> .context, > span))"
        page.wait_for_function(
            "untold => document.body.innerText.includes('Search finished')"
            " && !document.querySelector(untold)",
            arg=untold,
        )
        titles = page.locator("#search-results li > a").all_text_contents()
        texts = page.locator("#search-results .context").all_text_contents()
        return titles, texts

    return ask


def test_hyphens_do_not_matter(search):
    joined, excerpts = search("warmup")
    hyphened, _ = search("warm-up")
    assert set(joined) == set(hyphened)
    assert len(joined) > 4  # those with "warmup" alone are four
    assert any("warm-up" in text.lower() for text in excerpts)


def test_a_name_with_an_underscore_has_excerpts(search):
    _, excerpts = search("warmup_steps")
    assert any("warmup_steps" in text for text in excerpts)


def test_excerpts_show_no_latex(search):
    _, excerpts = search("warmup")
    assert any("ε_ls" in text for text in excerpts)  # the glossary's
    assert not any("Contents" in text for text in excerpts)
    signs = [r"\(", r"\[", r"\text", r"\cdot", "_{", "^{"]
    for text in excerpts:
        assert not any(sign in text for sign in signs), text


@pytest.mark.parametrize(
    ("query", "chapter"),
    [("label smoothing", "The loss"), ("beam search", "Beam search")],
)
def test_a_chapter_comes_before_the_appendix(search, query, chapter):
    titles, _ = search(query)
    assert titles[0].startswith(chapter)
