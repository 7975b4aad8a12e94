"""Pages with results are right, and whole, where no corpus can be had."""

import jupytext
import pytest
import tangle
from nbclient import NotebookClient

# Every page that shows results of a corpus that does not ship.
PAGES = [
    "book/results/attention_maps",
    "book/results/full_run",
    "book/results/variations",
    "book/appendix/rivals",
    "book/architecture/why_attention",
]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_without_a_corpus(name, tmp_path, monkeypatch):
    """With an empty folder of data and no network, every cell runs.

    A cell tries no download, and none says that something is missing.
    """
    monkeypatch.setenv("TRANSFORMER_LIB_DATA", str(tmp_path))
    for variable in "http_proxy", "https_proxy":
        monkeypatch.setenv(variable, "http://127.0.0.1:9")  # nobody listens
    page = tangle.ROOT / f"{name}.md"
    book = jupytext.read(page)
    NotebookClient(
        book,
        timeout=600,
        kernel_name="python3",
        resources={"metadata": {"path": str(page.parent)}},
    ).execute()
    assert not any(tmp_path.iterdir())
    for cell in book.cells:
        for output in cell.get("outputs", []):
            said = str(output.get("text", output.get("data", "")))
            assert "not here" not in said
            assert "have not been made" not in said
