"""The pages on data, executed where no corpus is and none can be fetched."""

import pytest
import run_chapters
from test_chapters import CHAPTERS

PAGES = "corpora", "tokenization", "batching"
SAID = {  # of the outputs that an argument rests on
    "corpora": ["already seen in training", "  23.1%", "  0.0%"],
    "tokenization": ["10,000 tokens", "▁Kinder", "35%"],
    "batching": ["116 batches", "fixed width 79%"],
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_the_same_without_corpora(name, monkeypatch, tmp_path):
    monkeypatch.setenv("TRANSFORMER_LIB_DATA", str(tmp_path))
    for proxy in "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY":
        monkeypatch.setenv(proxy, "http://127.0.0.1:9")  # nobody answers
    page = next(p for n, p in CHAPTERS.items() if n.endswith(f"/{name}"))
    result = run_chapters.run(page)
    assert result["error"] is None
    outputs = [one for cell in result["outputs"] for one in cell]
    shown = "\n".join(
        one.get("text", "") + str(one.get("data", {}).get("text/plain", ""))
        for one in outputs
    )
    assert "is not here, so nothing is counted again" in shown
    for words in SAID[name]:
        assert words in shown
    for word in "Max retries", "HTTPSConnectionPool", "ProxyError":
        assert word not in shown
