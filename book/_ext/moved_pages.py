"""Old addresses lead to the pages where their content is now."""

import os
from pathlib import Path

MOVED = {
    "book/appendix/runs": "book/appendix/running",
    "book/architecture/layer_types": "book/architecture/why_attention",
    "book/results/cost": "book/architecture/why_attention",
    "book/results/rivals": "book/appendix/rivals",
    "book/results/first_translation": "book/training/experiment",
}

PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>This page has moved</title>
<meta name="robots" content="noindex">
<meta http-equiv="refresh" content="0; url={address}">
</head>
<body>
<h1>This page has moved</h1>
<p><a href="{address}">Its content is here now.</a></p>
</body>
</html>
"""


def write_pages(app, exception):
    """A page at each old address, when the site is built."""
    if exception or app.builder.format != "html":
        return
    for old, new in MOVED.items():
        path = Path(app.outdir, f"{old}.html")
        target = Path(app.outdir, f"{new}.html")
        address = os.path.relpath(target, path.parent).replace(os.sep, "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PAGE.format(address=address), "utf-8")


def setup(app):
    """Let Sphinx know."""
    app.connect("build-finished", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
