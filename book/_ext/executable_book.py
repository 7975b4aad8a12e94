"""What the book asks of Sphinx beyond Jupyter Book.

- A chapter runs again when its code, the library behind it, the data or a
  recorded run that it reads has changed, and after it failed; several
  chapters run at once.
- Formulas and charts are drawn from the site itself, without a network.
- Each chapter is offered as a notebook, and the launch buttons lead to it.
- `_build/chapters.json` says how each chapter ran; the tests read it.

`reading`, `finding` and `icons`, beside this file, do the rest.
"""

import ast
import hashlib
import importlib.metadata
import json
import os
import platform
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from threading import Lock

import jupytext
import nbformat
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.executors.utils import single_nb_execution
from myst_nb.core.read import create_nb_reader
from myst_nb.sphinx_ import NbMetadataCollector
from sphinx.util.display import status_iterator
from sphinx.util.fileutil import copy_asset

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "transformer_lib"
CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```", re.M | re.S)
PAGES = "gh-pages"  # the branch that holds the published site


# What a chapter's result depends on


@cache
def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def homes() -> dict[str, str]:
    """The module of each public name."""
    tree = ast.parse((LIBRARY / "__init__.py").read_text("utf-8"))
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and node.targets[0].id == "_HOME"
        ):
            table = ast.literal_eval(node.value)
            return {n: home.split()[0] for n, home in table.items()}
    return {}


def modules_of(code: str) -> set[str]:
    """The library's modules that some Python text imports."""
    found = set()
    imports = (
        r"^ *from transformer_lib(?:\.(\w+))? import (\([^)]*\)|.*)"
    )
    for module, names in re.findall(imports, code, re.M):
        home = homes()
        found |= (
            {module}
            if module
            else {
                home.get(name, name)
                for name in re.findall(r"\w+", names)
            }
        )
    if "-m transformer_lib" in code:
        found.add("cli")
    return {n for n in found if (LIBRARY / f"{n}.py").exists()}


def with_imports(modules: set[str]) -> set[str]:
    """Modules and all that they import of the library."""
    found, open_ones = set(), set(modules)
    while open_ones:
        found |= open_ones
        texts = [
            (LIBRARY / f"{module}.py").read_text("utf-8")
            for module in open_ones
        ]
        open_ones = set().union(*map(modules_of, texts)) - found
    return found


def dependencies(text: str) -> str:
    """A hash of all that a chapter's cells depend on beside themselves."""
    code = "\n".join(CELL.findall(text))
    modules = with_imports(modules_of(code))
    files = [LIBRARY / f"{module}.py" for module in sorted(modules)]
    if "check(" in code:
        files += sorted(LIBRARY.glob("checks_*.py"))
    if re.search(r"from_pretrained|load_run|runs", code):
        runs = sorted((ROOT / "runs").rglob("*"))
        files += [path for path in runs if path.is_file()]
    if "fidelity.yml" in code:
        files.append(ROOT / "book" / "fidelity.yml")
    parts = [f"{path.name} {digest(path)}" for path in files]
    if re.search(r"multi30k|tatoeba", code):
        data = Path(
            os.environ.get("TRANSFORMER_LIB_DATA", "/nowhere")
        )
        parts += [
            f"{path.parent.name}/{path.name} {path.stat().st_size}"
            for path in sorted(data.glob("*/*"))
        ]
    if parts:
        parts.append(importlib.metadata.version("torch"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def is_notebook(text: str) -> bool:
    return "format_name: myst" in text[:300]


def key_of(env, docname: str) -> str:
    path = Path(env.doc2path(docname))
    text = path.read_text("utf-8") if path.suffix == ".md" else ""
    return dependencies(text) if is_notebook(text) else ""


def add_key(app, docname, source):
    """Make the key part of what the execution cache looks up."""
    if is_notebook(source[0]):
        key = dependencies(source[0])
        source[0] = source[0].replace(
            "kernelspec:\n",
            f"kernelspec:\n  depends_on: '{key}'\n",
            1,
        )
        app.env.metadata[docname]["depends_on"] = key


def stale(app, env, added, changed, removed):
    """Chapters whose dependencies changed, or that failed last time."""
    again = []
    for docname in env.found_docs - added - changed:
        failed = execution(env, docname).get("succeeded") is False
        old = env.metadata[docname].get("depends_on", "")
        if failed or old != key_of(env, docname):
            again.append(docname)
    return again


def execution(env, docname: str) -> dict:
    """How a chapter ran: runtime, succeeded, traceback, mtime."""
    return NbMetadataCollector.get_doc_data(env)[docname].get(
        "exec_data", {}
    )


# Several chapters at once


def measures_time(text: str) -> bool:
    """Whether a chapter times something, so that it must run alone."""
    return any(
        re.search(r"perf_counter|process_time", cell)
        for cell in CELL.findall(text)
        if "export" not in cell.partition("\n")[0]
    )


def execute_ahead(app, env, docnames):
    """Run chapters side by side and put them into the execution cache.

    Sphinx reads one chapter after the other and finds these there. What
    measures time is left to it, and what failed, so that it reports it.
    The chapters share the processor's threads.
    """
    config = env.mystnb_config
    store, lock = get_cache(config.execution_cache_path), Lock()

    def run(chapter):
        docname, path, notebook = chapter
        result = single_nb_execution(
            notebook,
            cwd=str(path.parent),
            timeout=config.execution_timeout,
            allow_errors=config.execution_allow_errors,
        )
        if result.err is None:
            spent = {"execution_seconds": result.time}
            bundle = CacheBundleIn(notebook, str(path), data=spent)
            with lock:
                store.cache_notebook_bundle(
                    bundle, check_validity=False, overwrite=True
                )
        return docname

    waiting = []
    for docname in docnames:
        path = Path(env.doc2path(docname))
        text = path.read_text("utf-8")
        if not is_notebook(text) or measures_time(text):
            continue
        source = [text]
        add_key(app, docname, source)
        reader = create_nb_reader(
            path, env.myst_config, config, source[0]
        )
        notebook = reader.read(source[0])
        try:
            store.match_cache_notebook(notebook)
        except KeyError:
            waiting.append((docname, path, notebook))
    workers = min(4, os.cpu_count())
    given = "OMP_NUM_THREADS" in os.environ
    if not given:
        os.environ["OMP_NUM_THREADS"] = str(os.cpu_count() // workers)
    with ThreadPoolExecutor(workers) as pool:
        for _ in status_iterator(
            pool.map(run, waiting),
            "executing chapters... ",
            length=len(waiting),
        ):
            pass
    if not given:
        del os.environ["OMP_NUM_THREADS"]


# Formulas and charts without a network


def copy_mathjax(app):
    """Serve MathJax and its fonts, and no more, from the site."""
    files = importlib.metadata.files("sphinx-mathjax-offline")
    start = next(f for f in files if f.name == "tex-mml-chtml.js")
    source = Path(start.locate()).parent
    target = Path(app.outdir, "_static", "mathjax")
    for part in [
        "tex-mml-chtml.js",
        "input/tex/extensions",
        "output/chtml/fonts",
    ]:
        copy_asset(
            str(source / part),
            str((target / part).parent)
            if part.endswith(".js")
            else str(target / part),
        )


CHARTS = """(function () {
  var module, exports, define;
  %s
  var embed = window.vegaEmbed;
  window.vegaEmbed = function (element, spec, options) {
    return embed(element, spec, Object.assign({}, options, {
      renderer: "svg",
      actions: false,
      config: {background: null, view: {stroke: null}},
    }));
  };
  window.VEGA_DEBUG = %s;
})();
"""


def write_charts(app):
    """Vega, Vega-Lite and Vega-Embed as one script of the site.

    It names the versions that altair asks for, so that altair's own
    loader finds all it needs and asks no other host.
    """
    target = Path(app.outdir, "_static", "charts.js")
    if target.exists():
        return
    import altair
    import vl_convert

    versions = {
        "vega_version": altair.VEGA_VERSION,
        "vegalite_version": altair.VEGALITE_VERSION,
        "vegaembed_version": altair.VEGAEMBED_VERSION,
    }
    bundle = vl_convert.javascript_bundle()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(
        CHARTS % (bundle, json.dumps(versions)), "utf-8"
    )


def prepare(app):
    if app.builder.format == "html":
        copy_mathjax(app)
        write_charts(app)


def choose_scripts(app, pagename, templatename, context, doctree):
    """Charts where a page has one; no Thebe, which asks another host."""
    if "altair-viz-" in context.get("body", ""):
        app.add_js_file("charts.js", priority=100)
    kept = {}
    for script in context.get("script_files", []):
        body = getattr(script, "attributes", {}).get("body") or ""
        name = f"{getattr(script, 'filename', script)} {body}"
        if "thebe" not in name.lower():
            kept.setdefault(name, script)
    context["script_files"] = list(kept.values())


# Notebooks and the buttons that lead to them

INSTALL = """\
# Where the library is missing, as on Colab and Binder, this installs it.
try:
    import transformer_lib
except ImportError:
    %pip install -q "transformer_lib[all] @ {source}"
"""


def repository() -> str:
    """The repository that publishes this site, from the environment."""
    name = os.environ.get("GITHUB_REPOSITORY", "")
    server = os.environ.get("GITHUB_SERVER_URL", "https://github.com")
    return os.environ.get("BOOK_REPOSITORY") or (
        f"{server}/{name}" if name else ""
    )


def package() -> str:
    """Where pip finds the library: the repository, else this checkout."""
    address = repository()
    return f"git+{address}" if address else ROOT.as_uri()


def set_repository(app, config):
    """Point every button at the repository that builds the site."""
    config.html_context.setdefault("default_mode", "auto")
    options = config.html_theme_options
    if address := repository():
        options["repository_url"] = address
        options["repository_branch"] = "main"
        for name in ["repository", "issues", "edit_page"]:
            options[f"use_{name}_button"] = True
        options["launch_buttons"] = {
            "colab_url": "https://colab.research.google.com",
            "binderhub_url": "https://mybinder.org",
            "notebook_interface": "jupyterlab",
        }


def write_notebooks(app, error):
    """Offer each chapter as a notebook, without outputs."""
    if error or app.builder.format != "html":
        return
    for docname in sorted(app.env.found_docs):
        path = Path(app.env.doc2path(docname))
        if path.suffix != ".md" or not is_notebook(
            path.read_text("utf-8")
        ):
            continue
        notebook = jupytext.read(path)
        code = INSTALL.format(source=package())
        notebook.cells.insert(0, nbformat.v4.new_code_cell(code))
        for number, cell in enumerate(notebook.cells):
            cell["id"] = f"cell-{number}"
        target = Path(app.outdir, "_sources", f"{docname}.ipynb")
        target.parent.mkdir(parents=True, exist_ok=True)
        jupytext.write(notebook, target, fmt="ipynb")


def lead_to_notebook(app, pagename, templatename, context, doctree):
    """Launch buttons and downloads take the built notebook."""
    source = Path(app.srcdir, f"{pagename}.md")
    if not source.exists() or not is_notebook(
        source.read_text("utf-8")
    ):
        return

    def rewrite(entry):
        for button in entry.get("buttons", []):
            rewrite(button)
        url = entry.get("url", "")
        if "colab.research" in url or "mybinder" in url:
            url = re.sub(
                r"/blob/main/", f"/blob/{PAGES}/_sources/", url
            )
            url = re.sub(r"/main\?", f"/{PAGES}?", url)
            url = url.replace("lab/tree/", "lab/tree/_sources/")
            entry["url"] = url.replace(".md", ".ipynb")
        elif (
            url.endswith(f"{Path(pagename).name}.md")
            and "_sources" in url
        ):
            entry["url"] = url[:-3] + ".ipynb"
            entry["text"] = ".ipynb"

    for entry in context.get("header_buttons", []):
        rewrite(entry)


# How each chapter ran


def machine() -> dict[str, str]:
    """What the build ran on."""
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores",
        "torch": importlib.metadata.version("torch"),
    }


def write_record(app, error):
    """Say in `_build/chapters.json` how each chapter ran."""
    chapters = {}
    for docname in sorted(app.env.found_docs):
        if run := execution(app.env, docname):
            when = datetime.fromtimestamp(run["mtime"], UTC)
            chapters[docname] = {
                "succeeded": run["succeeded"],
                "seconds": run["runtime"],
                "executed": when.isoformat(timespec="seconds"),
                "traceback": run["traceback"],
            }
    record = {**machine(), "chapters": chapters}
    target = Path(app.outdir).parent / "chapters.json"
    target.write_text(json.dumps(record, indent=1), "utf-8")


def setup(app):
    app.setup_extension("reading")
    app.setup_extension("finding")
    app.setup_extension("icons")
    app.config.mathjax_path = "mathjax/tex-mml-chtml.js"
    app.connect("config-inited", set_repository, priority=400)
    app.connect("builder-inited", prepare)
    app.connect("env-get-outdated", stale)
    app.connect("env-before-read-docs", execute_ahead)
    app.connect("source-read", add_key)
    app.connect("html-page-context", choose_scripts, priority=900)
    app.connect("html-page-context", lead_to_notebook, priority=900)
    app.connect("build-finished", write_notebooks)
    app.connect("build-finished", write_record)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
