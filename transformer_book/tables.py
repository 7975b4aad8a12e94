"""Tables that the chapters print, as Markdown."""

import re
from typing import Any


def markdown_table(rows: list[dict[str, Any]]) -> str:
    """Rows of like keys as a Markdown table, figures made short."""
    names = list(rows[0]) if rows else []
    lines = [
        [name.replace("_", " ") for name in names],
        ["---"] * len(names),
        *([_short(row.get(name, "")) for name in names] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_powers(text: str) -> str:
    """1.0e20 as 1.0·10²⁰, for readers who are no programs."""
    raised = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    return re.sub(
        r"(?<=\d)e([-+]?\d+)\b",
        lambda power: f"·10{str(int(power[1])).translate(raised)}",
        text,
    )


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return " ".join(map(_short, value))
    return str(value).replace("|", r"\|")
