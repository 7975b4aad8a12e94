"""The live parts of the pages: their place, their scripts, their data.

`web/live` holds their scripts. `web/make_data.py` makes what they read
from the library and the shipped models, when a build begins, in
`_build/live`; both are copied into the site.

The parts `cover` and `play` ask for nothing: their data, recorded in
`web/recorded`, is written into the page, with words that say the same where
no script runs. Of `zoom` the page has the outermost level; for what is
inside the model is fetched. `beams` has the searches of one sentence in its
page, and `train` a recorded run; it fetches its sentences when a training
is asked for, and shows what was trained as `zoom` does.
"""

import hashlib
import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "web"
MADE = ROOT / "_build" / "live"
PLACES = re.compile(r'data-live="(\w+)"')
RECORDED = WEB / "recorded"
LEARNT_FROM = ["little_spanish.tsv", "little_people.tsv"]
SITES = ("html", "dirhtml")  # no paper, no EPUB
ABSENT = (
    '<p class="live-missing">This interactive figure runs on the book\'s '
    "site, in a browser. If you are there and it does not appear, JavaScript "
    "is switched off, or the page was opened as a file: run "
    "<code>make serve</code> and open it from there.</p>"
)
say = logging.getLogger(__name__).info


def digest() -> str:
    """The sha256 of all that the data is made of."""
    found = hashlib.sha256()
    for path in sorted(
        [
            WEB / "make_data.py",
            WEB / "sentences.json",
            *ROOT.glob("transformer_lib/*.py"),
            *ROOT.glob("pretrained/*/*"),
        ]
    ):
        found.update(path.read_bytes())
    return found.hexdigest()


def make_data(app):
    """The data, made again where its code or a model has changed."""
    note = MADE / "made_of"
    if app.builder.name not in SITES:
        return
    app.live_data_is_new = not note.is_file() or note.read_text() != digest()
    if not app.live_data_is_new:
        return
    say("making the data of the live parts")
    shutil.rmtree(MADE, ignore_errors=True)
    script = str(WEB / "make_data.py")
    subprocess.run([sys.executable, script, MADE / "data"], check=True)
    note.write_text(digest())


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
    return token.replace("▁", "").replace("<eos>", "end")


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


GIVEN = {  # what stands in a part's place before its script runs
    "beams": lambda: kept(RECORDED / "beams.json"),
    "cover": lambda: covered(RECORDED / "cover.json"),
    "play": lambda: told(RECORDED / "play.json"),
    "train": lambda: kept(RECORDED / "train.json"),
    "zoom": lambda: kept(MADE / "data" / "zoom.json"),
}


def merge(app, env, names, other):
    """Collect what processes that read side by side have met."""
    env.live_parts = getattr(env, "live_parts", set()) | getattr(
        other, "live_parts", set()
    )


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
    app.connect("env-merge-info", merge)
    app.connect("html-page-context", add_script)
    app.connect("build-finished", write_data)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
