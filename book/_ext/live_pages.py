"""The live pages: their script, their data, and the browser's runtime.

`tools/live.py` makes the data from the library and the shipped models.
onnxruntime-web comes from npm, pinned in `package-lock.json`. Neither is
committed: both are made in `_build/live` and copied into the site. What
is missing is written into the data's `index.json`, and the page that
needs it says so; the book is built all the same.
"""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

from docutils import nodes
from executable_book import modules_of, with_imports
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.fileutil import copy_asset

ROOT = Path(__file__).resolve().parents[2]
MADE = ROOT / "_build" / "live"
RUNTIME = [
    "ort.wasm.min.mjs",
    "ort-wasm-simd-threaded.mjs",
    "ort-wasm-simd-threaded.wasm",
]
SITES = ("html", "dirhtml")  # no paper, no EPUB
ABSENT = (
    '<p class="live-missing">This part runs on the book\'s site, in a '
    "browser. If you are there and it does not appear, JavaScript is "
    "switched off, or the page was opened as a file: run "
    "<code>make serve</code> and open it from there.</p>"
)
say = logging.getLogger(__name__).info


def key(*patterns: str) -> str:
    """A hash of the files that something is made from."""
    parts = hashlib.sha256()
    for pattern in patterns:
        for path in sorted(ROOT.glob(pattern)):
            parts.update(path.relative_to(ROOT).as_posix().encode())
            parts.update(path.read_bytes())
    return parts.hexdigest()


def make_data(folder: Path) -> None:
    """The data, made again where its code or a model has changed."""
    script = (ROOT / "tools" / "live.py").read_text("utf-8")
    modules = with_imports(modules_of(script))
    made_of = key(
        *(f"transformer_lib/{name}.py" for name in sorted(modules)),
        "tools/live*",
        "runs/*/config.json",
        "runs/*/model.safetensors",
        "runs/*/tokenizer.json",
    )
    note = folder.with_suffix(".key")
    if note.exists() and note.read_text() == made_of:
        return
    say("making the data of the live pages")
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, str(ROOT / "tools" / "live.py")]
    done = subprocess.run(
        [*command, str(folder)], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"tools/live.py failed: {done.stderr}")
    note.write_text(made_of)


def fetch_runtime(folder: Path) -> str:
    """onnxruntime-web from npm; returns what is missing, or ""."""
    made_of = key("package.json", "package-lock.json")
    note = folder.with_suffix(".key")
    if note.exists() and note.read_text() == made_of:
        return ""
    npm = shutil.which("npm") or shutil.which(
        "npm", path=str(Path(sys.executable).parent)
    )
    if not npm:
        return "npm was not there when the site was built"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ["package.json", "package-lock.json"]:
        shutil.copy(ROOT / name, folder)
    command = [
        npm,
        "ci",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--fetch-retries=1",  # what is missing is said soon
    ]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=300,
        )
    except subprocess.TimeoutExpired:
        return "npm did not answer when the site was built"
    if done.returncode:
        say(done.stderr[-2000:])
        return "npm could not fetch onnxruntime-web for this build"
    note.write_text(made_of)
    return ""


def write_data(app, error):
    """Copy data and runtime into the site that was built."""
    if error or app.builder.name not in SITES:
        return
    if not any(
        n.startswith("book/live/") for n in app.env.found_docs
    ):
        return
    make_data(MADE / "data")
    missing = fetch_runtime(MADE / "npm")
    if missing:
        say(f"the page that translates will not run: {missing}")
    target = Path(app.outdir, "_static", "live", "data")
    shutil.rmtree(target, ignore_errors=True)
    copy_asset(str(MADE / "data"), str(target))
    index = target / "index.json"
    found = json.loads(index.read_text("utf-8"))
    found |= {"missing": missing, "runtime": 0}
    if not missing:
        dist = (
            MADE / "npm" / "node_modules" / "onnxruntime-web" / "dist"
        )
        (target / "ort").mkdir()
        for name in RUNTIME:
            shutil.copy(dist / name, target / "ort")
        found["runtime"] = (dist / RUNTIME[-1]).stat().st_size
    index.write_text(json.dumps(found, ensure_ascii=False), "utf-8")


class Live(SphinxDirective):
    """The place of a live part: its module, and which part of it.

    For `translate` that is the corpus of the model to begin with.
    """

    required_arguments = 1
    optional_arguments = 1

    def run(self):
        name, *part = self.arguments
        part = f' data-part="{part[0]}"' if part else ""
        place = f'<div class="live" data-live="{name}"{part}>{ABSENT}</div>'
        return [nodes.raw("", place, format="html")]


def add_script(app, pagename, templatename, context, doctree):
    """The live pages' own script and style, on no other page.

    A page that was opened as a file may not import modules.
    """
    live = "data-live=" in context.get("body", "")
    if live and app.builder.name in SITES:
        start = context["pathto"](
            "_static/live/start.js", resource=True
        )
        here = 'location.protocol !== "file:"'
        app.add_js_file(None, body=f'if ({here}) import("./{start}")')
        app.add_css_file("live/live.css")


def setup(app):
    app.add_directive("live", Live)
    app.connect("html-page-context", add_script)
    app.connect("build-finished", write_data)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
