"""Numbers in tables: at the right, on one line, with a true minus sign.

pandas and Markdown write a number into a cell as any other text. A cell
that holds a number, nan, or an interval such as "-0.18 to -0.11", gets the
class `number`, which `page.css` aligns. A table of pandas' own looks like
all others.
"""

import re

AMOUNT = r"[-+\u2212]?\d[\d,]*(?:\.\d+)?(?: ?%)?"
NUMBER = re.compile(rf"nan|{AMOUNT}(?:(?: to | ± | / ){AMOUNT})*")
PANDAS = '<table border="1" class="dataframe">'
LIKE_ALL = '<table class="dataframe table">'
CELL = re.compile(r"<td([^>]*)>((?:<p>)?)([^<>]*)((?:</p>\s*)?)</td>")


def _cell(found: re.Match) -> str:
    attributes, before, text, after = found.groups()
    if not NUMBER.fullmatch(text.strip()):
        return found[0]
    text = re.sub(r"(?<!\w)-(?=\d)", "\u2212", text)
    if 'class="' in attributes:
        attributes = attributes.replace('class="', 'class="number ', 1)
    else:
        attributes += ' class="number"'
    return f"<td{attributes}>{before}{text}{after}</td>"


def align_numbers(app, pagename, templatename, context, doctree):
    if "body" in context:
        body = context["body"].replace(PANDAS, LIKE_ALL)
        context["body"] = CELL.sub(_cell, body)


def setup(app):
    app.connect("html-page-context", align_numbers)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
