"""The live parts of the pages: their place, their scripts, their data.

`web/live` holds their scripts. `web/make_data.py` makes what they read
from the library and the shipped models, when a build begins, in
`_build/live`; both are copied into the site.

The parts `cover` and `play` ask for nothing: their data, recorded in
`web/recorded`, is written into the page, with words that say the same where
no script runs. Of `zoom` the page has the outermost level; for what is
inside the model is fetched. `beams` has the searches of one sentence in its
page, and `train` a recorded run; it fetches its sentences when a training
is asked for, and shows what was trained as `zoom` does. `editor` has the
paper in one file in its page, or an exercise: a cell tagged `editor`. Python
for the browser, Pyodide from npm, is a part of the site where npm brought
it, and is loaded when a reader presses *Run*.
"""

import html
import json
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from broken import levels, sheet
from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from run_chapters import file_digest
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "web"
MADE = ROOT / "_build" / "live"
PLACES = re.compile(r'data-live="(\w+)"')
RECORDED = WEB / "recorded"
ONE_FILE = ROOT / "transformer.py"
EDITS = ROOT / "experiments" / "one_file.py"
CHECKS = [  # what the exercises of plain Python import
    "transformer_book/exercises.py",
    "transformer_conformance/plain.py",
]
PYODIDE = MADE / "pyodide-314.0.7"  # npm's name and version
PYODIDE_SHA256 = (
    "66b7949e5a0cba2250b586d7e368bf12fb482800748d182c4618254b685ffaa0"
)
PYODIDE_FILES = [
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "pyodide-lock.json",
    "python_stdlib.zip",
]
LEARNT_FROM = ["little_spanish.tsv", "little_people.tsv"]
SITES = ("html", "dirhtml")  # no paper, no EPUB
ABSENT = (
    '<p class="live-missing">This interactive figure runs on the book\'s '
    "site, in a browser. If you are there and it does not appear, JavaScript "
    "is switched off, or the page was opened as a file: run "
    "<code>make serve</code> and open it from there.</p>"
)
WITHOUT_PYTHON = (
    '<p class="live-missing" role="status">This copy of the site was built '
    "without Python for the browser. <code>python transformer.py</code> runs "
    "the file; here it is as it stands:</p>"
)
say = logging.getLogger(__name__).info


def digest() -> str:
    """Of all that the data is made of."""
    paths = [
        WEB / "make_data.py",
        WEB / "sentences.json",
        ROOT / "transformer_book" / "where.py",
        *ROOT.glob("transformer_lib/*.py"),
        *ROOT.glob("pretrained/*/*"),
    ]
    return " ".join(file_digest(path) for path in sorted(paths))


def make_data(app):
    """The data, made again where its code or a model has changed."""
    note = MADE / "made_of"
    if app.builder.name not in SITES:
        return
    fetch_pyodide()
    app.live_data_is_new = not note.is_file() or note.read_text() != digest()
    if not app.live_data_is_new:
        return
    say("making the data of the live parts")
    shutil.rmtree(MADE / "data", ignore_errors=True)
    script = str(WEB / "make_data.py")
    subprocess.run([sys.executable, script, MADE / "data"], check=True)
    note.write_text(digest())


def fetch_pyodide() -> None:
    """Python for the browser, once; the site can be built without."""
    if PYODIDE.is_dir():
        return
    MADE.mkdir(parents=True, exist_ok=True)
    package = PYODIDE.name.replace("-", "@")
    ask = ["npm", "pack", package, "--silent", "--fetch-retries=0"]
    try:
        with tempfile.TemporaryDirectory(dir=MADE) as folder:
            subprocess.run(
                ask, cwd=folder, check=True, capture_output=True, timeout=300
            )
            (archive,) = Path(folder).glob("*.tgz")
            sha256 = file_digest(archive)
            if sha256 != PYODIDE_SHA256:
                raise ValueError(f"{package} has the sha256 {sha256}")
            shutil.unpack_archive(archive, folder, filter="data")
            Path(folder, "package").rename(PYODIDE)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        say(f"the site is built without Python for the browser: {error}")


def write_data(app, error):
    """Copy scripts and data into the site that was built."""
    if error or app.builder.name not in SITES:
        return
    live = Path(app.outdir, "_static", "live")
    shutil.rmtree(live, ignore_errors=True)
    shutil.copytree(WEB / "live", live)
    shutil.copytree(MADE / "data", live / "data")
    for name in LEARNT_FROM:
        path = ROOT / "transformer_lib" / "data" / name
        shutil.copy(path, live / "data")
    for name in CHECKS:
        (live / name).parent.mkdir()
        # as text: a server may run what ends in .py
        shutil.copy(ROOT / name, (live / name).with_suffix(".txt"))
    if PYODIDE.is_dir():
        (live / PYODIDE.name).mkdir()
        for name in PYODIDE_FILES:
            shutil.copy2(PYODIDE / name, live / PYODIDE.name)


class Live(SphinxDirective):
    """The place of a live part: its module, and which part of it.

    For `translate` and `attention` that is the model to begin with, and
    the option `sentence` the sentence.
    """

    required_arguments = 1
    optional_arguments = 1
    option_spec = {"sentence": str}

    def run(self):
        name, *part = self.arguments
        self.env.live_parts = getattr(self.env, "live_parts", set()) | {
            self.env.docname
        }
        if name == "editor":  # what its page is written from
            for path in ONE_FILE, EDITS, PYODIDE / PYODIDE_FILES[0]:
                self.env.note_dependency(path)
        if name == "cover":  # it has the room of the contents at the side
            about = self.env.metadata[self.env.docname]
            about["html_theme.sidebar_secondary.remove"] = "true"
        part = f' data-part="{part[0]}"' if part else ""
        if text := self.options.get("sentence"):
            part += f' data-sentence="{html.escape(text)}"'
        place = f'<div class="live" data-live="{name}"{part}>{ABSENT}</div>'
        return [nodes.raw("", place, format="html")]


def row(step: list, tokens: list[str]) -> str:
    """One token of a translation: what was looked at, how sure."""
    (place, share, *_), looked, *_ = step
    cells = "".join(
        f'<td style="--share: {part}%">{part}&nbsp;%</td>' for part in looked
    )
    name = html.escape(shown(tokens[place]))
    return (
        f'<tr><th scope="row">{name}</th>{cells}'
        f"<td>{share / 10:.0f}&nbsp;%</td></tr>"
    )


def shown(token: str) -> str:
    """A token as a reader knows it."""
    return token.replace("▁", "")


def told(path: Path) -> str:
    """What `play` shows, as a table; and its data, for the script."""
    text = path.read_text("utf-8")
    first = json.loads(text)[0]
    source, target = first["languages"]
    heads = "".join(
        f'<th scope="col">{html.escape(shown(token))}</th>'
        for token in first["source"]
    )
    rows = "".join(row(step, first["tokens"]) for step in first["steps"])
    return (
        '<table class="play-still"><caption>'
        f"“{html.escape(first['text'])}” becomes "
        f"“{html.escape(first['said'])}”, from top to bottom, token by "
        f"token. The columns say how much of its attention each {target} "
        f"token paid to the {source} ones; the last one, how likely the "
        f'model thought it.</caption><thead><tr><th scope="col">{target}</th>'
        f'{heads}<th scope="col">likely</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>{inlined(text)}"
    )


def covered(path: Path) -> str:
    """Two states of what `cover` opens with; and its data."""
    text = path.read_text("utf-8")
    first = json.loads(text)[0]
    word = first["opens_on"]
    whole = first["states"][0]
    changed = next(
        state
        for state in first["states"]
        if shown("".join(first["source"][at] for at in state["covered"]))
        == word
    )
    hidden = html.escape(first["text"]).replace(word, f"<b>{word}</b>", 1)
    language = f'lang="{first["codes"][1]}"'
    return (
        '<dl class="cover-still">'
        f"<dt>{html.escape(first['text'])}</dt>"
        f"<dd {language}>{html.escape(whole['said'])}</dd>"
        f"<dt>{hidden} (the decoder may not look at “{word}”)</dt>"
        f"<dd><span {language}>{html.escape(changed['said'])}</span> "
        f"In English: “{html.escape(changed['means'])}”</dd></dl>"
        f"{inlined(text)}"
    )


def inlined(text: str) -> str:
    """JSON for the script of a part, inside its place in the page."""
    data = text.replace("</", r"<\/").strip()
    return f'<script type="application/json">{data}</script>'


def kept(path: Path) -> str:
    """What a part that needs a script is given."""
    return ABSENT + inlined(path.read_text("utf-8"))


def python(name: str, **about) -> str:
    """What a script needs for running code, of that name in errors."""
    about["name"] = name
    if PYODIDE.is_dir():
        about["folder"] = PYODIDE.name
        about["files"] = {
            name: (PYODIDE / name).stat().st_size for name in PYODIDE_FILES
        }
    return inlined(json.dumps(about))


def editable() -> str:
    """The file, and its changes of a line or two."""
    edits = runpy.run_path(str(EDITS))["EDITS"]
    del edits["as it is"]
    code = highlight(
        ONE_FILE.read_text("utf-8"), PythonLexer(), HtmlFormatter()
    )
    code = code.replace("<pre>", '<pre tabindex="0">')
    words = ABSENT if PYODIDE.is_dir() else WITHOUT_PYTHON
    return words + code + python(ONE_FILE.name, edits=edits)


def make_editors(app, doctree, docname):
    """A cell tagged `editor` is one, where the site can run it; a cell
    tagged `notebook` is in the notebooks alone."""
    for cell in list(doctree.findall(nodes.container)):
        classes = cell.get("classes", [])
        if "tag_notebook" in classes:
            cell.parent.remove(cell)
        if "tag_editor" in classes and app.builder.name in SITES:
            about = python("exercise.py", checks=CHECKS)
            place = f'<div class="live" data-live="editor">{about}'
            cell.insert(0, nodes.raw("", place, format="html"))
            cell += nodes.raw("", "</div>", format="html")


def broken() -> str:
    """The sheet of "Which line is broken?", and the same for its script."""
    return sheet() + inlined(json.dumps(levels(), ensure_ascii=False))


GIVEN = {  # what stands in a part's place before its script runs
    "beams": lambda: kept(RECORDED / "beams.json"),
    "broken": broken,
    "cover": lambda: covered(RECORDED / "cover.json"),
    "editor": editable,
    "play": lambda: told(RECORDED / "play.json"),
    "train": lambda: kept(RECORDED / "train.json"),
    "zoom": lambda: kept(MADE / "data" / "zoom.json"),
}


def add_script(app, pagename, templatename, context, doctree):
    """The live parts' own script and styles, on no other page.

    A part with a style of its own has it in `web/live/NAME.css`.

    A page that was opened as a file may not import modules.
    """
    live = "data-live=" in context.get("body", "")
    if live and app.builder.name in SITES:
        start = context["pathto"]("_static/live/start.js", resource=True)
        here = 'location.protocol !== "file:"'
        app.add_js_file(None, body=f'if ({here}) import("./{start}")')
        app.add_css_file("live/live.css")
        for name in sorted(set(PLACES.findall(context["body"]))):
            if name in GIVEN:
                place = f'<div class="live" data-live="{name}">'
                whole = place + GIVEN[name]()
                context["body"] = context["body"].replace(
                    place + ABSENT, whole
                )
            if (WEB / "live" / f"{name}.css").is_file():
                app.add_css_file(f"live/{name}.css")


def outdated(app, env, added, changed, removed):
    """Pages that hold data are written again where it has changed."""
    new = getattr(app, "live_data_is_new", False)
    return getattr(env, "live_parts", []) if new else []


def setup(app):
    app.add_directive("live", Live)
    app.connect("builder-inited", make_data)
    app.connect("env-get-outdated", outdated)
    app.connect("doctree-resolved", make_editors)
    app.connect("html-page-context", add_script)
    app.connect("build-finished", write_data)
