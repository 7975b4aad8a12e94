"""Where the buttons of a published site lead, without publishing one."""

import builtins
from importlib import import_module
from types import SimpleNamespace

import pytest
import tangle

HOME = "https://github.com/someone/thebook"
CHAPTER = "book/architecture/masks"


@pytest.fixture
def published(monkeypatch):
    """The extension, in a copy whose repository is known."""
    monkeypatch.syspath_prepend(str(tangle.ROOT / "book" / "_ext"))
    monkeypatch.setenv("BOOK_REPOSITORY", HOME)
    monkeypatch.delenv("BOOK_URL", raising=False)
    monkeypatch.setenv("GITHUB_REPOSITORY", "Someone/thebook")
    return import_module("buttons"), import_module("finding")


def test_buttons_lead_to_the_notebook(published):
    """To the one that the site was published with, not to its source."""
    book, _ = published
    colab = "https://colab.research.google.com/github/someone/thebook"
    edit = f"{HOME}/edit/main/{CHAPTER}.md"
    buttons = [
        {"url": f"{colab}/blob/main/{CHAPTER}.md"},
        {"url": edit},
        {"url": f"../../_sources/{CHAPTER}.md"},
    ]
    app = SimpleNamespace(srcdir=tangle.ROOT)
    context = {"header_buttons": [{"buttons": buttons}]}
    book.lead_to_notebook(app, CHAPTER, "page.html", context, None)
    notebook = f"_sources/{CHAPTER}.ipynb"
    assert [button["url"] for button in buttons] == [
        f"{colab}/blob/gh-pages/{notebook}",
        edit,
        f"../../{notebook}",
    ]


def test_a_notebook_begins_by_what_installs_the_package(
    published, monkeypatch
):
    """From where the site was published; no copy names its builder."""
    book, _ = published
    ours = f"executable-transformer[book] @ git+{HOME}"
    assert f'%pip install -q "{ours}"' in book.first_cell()
    monkeypatch.delenv("BOOK_REPOSITORY")
    monkeypatch.delenv("GITHUB_REPOSITORY")
    assert str(tangle.ROOT) not in book.first_cell()
    with pytest.raises(ImportError, match=r"pip install '\.\[book\]'"):
        exec(book.first_cell(), {"__builtins__": without_the_package()})


def without_the_package():
    """Python's names, with an import that does not find the package."""

    def find(name, *rest):
        raise ModuleNotFoundError(f"No module named {name!r}")

    return {**vars(builtins), "__import__": find}


def test_address_of_the_site(published, monkeypatch):
    _, finding = published
    assert finding.site_address() == "https://someone.github.io/thebook/"
    monkeypatch.setenv("BOOK_URL", "https://book.example")
    assert finding.site_address() == "https://book.example/"
