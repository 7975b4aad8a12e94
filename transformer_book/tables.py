"""Tables that the chapters print, as Markdown."""

import re
from typing import Any


def markdown_table(rows: list[dict[str, Any]]) -> str:
    """Rows of like keys as a Markdown table, figures short, at the right."""
    names = list(rows[0])
    told = [[_short(row.get(name, "")) for name in names] for row in rows]
    lines = [
        [name.replace("_", " ") for name in names],
        [_side(column) for column in zip(*told, strict=True)],
        *told,
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _side(column: tuple[str, ...]) -> str:
    """Numbers have digits and no words; half of a column are enough."""
    numbers = [
        bool(re.search(r"\d", text)) and not re.search(r"[A-Za-z]{3}", text)
        for text in column
    ]
    return "---:" if 2 * sum(numbers) >= len(numbers) else "---"


def clock(seconds: float) -> str:
    """A duration in minutes, or in hours and minutes."""
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


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
