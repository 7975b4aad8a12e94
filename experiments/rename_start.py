"""Rename a key of the records: "start" of a model is "init" now.

Values stay as they are. Made once, for the commit that renamed
`TransformerConfig.start`; kept because it says what was done.
"""

import json
from pathlib import Path

RUNS = Path(__file__).resolve().parent.parent / "runs"


def renamed(value):
    """The same content, with the key "init" in the place of "start"."""
    if isinstance(value, dict):
        return {
            "init" if key == "start" else key: renamed(held)
            for key, held in value.items()
        }
    return value


def main() -> None:
    for path in sorted(RUNS.rglob("*.json")):
        if path.name == "tokenizer.json":
            continue
        text = path.read_text("utf-8")
        content = json.loads(text)
        if renamed(content) == content:
            continue
        # The record's own layout: no other byte changes.
        new = text.replace('"start":', '"init":')
        assert json.loads(new) == renamed(content), path
        path.write_text(new, "utf-8")
        print(path.relative_to(RUNS))


if __name__ == "__main__":
    main()
