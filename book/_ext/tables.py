"""Numbers in tables: at the right, on one line, with a true minus sign.

pandas and Markdown write a number into a cell as any other text. A cell
that holds a number, nan, or an interval such as "-0.18 to -0.11", gets the
class `number`, which `page.css` aligns, if most of its column are numbers;
so does the column's title. A table of pandas' own looks like all others.
"""

import re

POWER = r"(?:e-?\d+|(?:·10)?[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?"
AMOUNT = rf"[-+\u2212]?\d[\d,]*(?:\.\d+)?{POWER}(?: ?%)?"
NUMBER = re.compile(rf"nan|{AMOUNT}(?:(?: to | ± | / |, ){AMOUNT})*")
PANDAS = '<table border="1" class="dataframe">'
LIKE_ALL = '<table class="dataframe table">'
SHORT = 16  # letters of a word among numbers, such as "none"
NAME = 24  # letters of a row's name that stay on one line
TABLE = re.compile(r"<table.*?</table>", re.DOTALL)
ROW = re.compile(r"<tr.*?</tr>", re.DOTALL)
CELL = re.compile(r"<(t[dh])([^>]*)>(.*?)</t[dh]>", re.DOTALL)
INSIDE = re.compile(r"((?:<p>)?)([^<>]*)((?:</p>)?\s*)")


def _number(kind: str, inside: str) -> bool:
    text = INSIDE.fullmatch(inside)
    return kind == "td" and bool(text and NUMBER.fullmatch(text[2].strip()))


def _columns(table: str) -> set[int]:
    """The columns, counted from the right, that are numbers by half.

    From the right, because pandas writes the name of several rows once,
    on their left.
    """
    found: dict[int, list[bool]] = {}
    for row in ROW.findall(table):
        cells = CELL.findall(row)
        for place, (kind, _, inside) in enumerate(cells):
            if kind == "td" and inside.strip():
                kinds = found.setdefault(len(cells) - place, [])
                kinds.append(_number(kind, inside))
    return {
        place for place, kinds in found.items() if 2 * sum(kinds) >= len(kinds)
    }


def _with_class(attributes: str, name: str) -> str:
    if 'class="' in attributes:
        return attributes.replace('class="', f'class="{name} ', 1)
    return f'{attributes} class="{name}"'


def _align(table: re.Match) -> str:
    columns = _columns(table[0])

    def row(found: re.Match) -> str:
        places = iter(range(len(CELL.findall(found[0])), 0, -1))

        def cell(match: re.Match) -> str:
            place = next(places)
            kind, attributes, inside = match.groups()
            words = INSIDE.fullmatch(inside)
            if _number(kind, inside):
                inside = re.sub(r"(?<!\w)-(?=\d)", "\u2212", inside)
            short = bool(words) and len(words[2].strip()) <= SHORT
            if place in columns and (kind == "th" or short):
                attributes = _with_class(attributes, "number")
            elif kind == "th" and words and len(words[2].strip()) <= NAME:
                attributes = _with_class(attributes, "name")
            return f"<{kind}{attributes}>{inside}</{kind}>"

        return CELL.sub(cell, found[0])

    return ROW.sub(row, table[0])


def align_numbers(app, pagename, templatename, context, doctree):
    if "body" in context:
        body = context["body"].replace(PANDAS, LIKE_ALL)
        context["body"] = TABLE.sub(_align, body)


def setup(app):
    app.connect("html-page-context", align_numbers)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
