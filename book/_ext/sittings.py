"""What a teacher downloads: an archive for each sitting of the course.

`course.md` lists the sittings, and the chapters have everything else. An
archive has the chapter as two notebooks, for students and solved, with the
cell metadata of nbgrader; its figures as SVG and PDF; and a page for the
teacher. Of nbgrader only the format is used: it is no part of the build.

In both notebooks the exercises' solutions are where students write. What
gives them away is left out: code of the library is imported instead, and
cells tagged `solution` are gone, as are the book's checks.
"""

import ast
import base64
import copy
import difflib
import json
import posixpath
import re
import runpy
import symtable
import textwrap
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jupytext
import nbformat
import vl_convert
from buttons import first_cell, with_captions
from docutils import nodes
from finding import site_address
from notebooks import with_values
from run_chapters import kept

ROOT = Path(__file__).resolve().parents[2]
COURSE = "book/appendix/course"
FONTS = ROOT / "transformer_book" / "fonts"
SITTING = re.compile(
    r"^(\d+)\. \{ref\}`(\w+)`: \{ref\}`([^<]+) <([\w-]+)>`, (\d+) minutes "
    r"\((\d+) in class\)\. (.+)$",
    re.M,
)
# A fence that opens or closes a solution; a group has the exercise's label.
FENCE = re.compile(
    r"^```\{solution-(?:start\} ([\w-]+)|end\})\n(?:.*\n)*?```$", re.M
)
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"  # nbgrader's
REGION = re.compile(rf"^( *){BEGIN}\n(?:.*\n)*? *{END}$", re.M)
GAP = r"\1# YOUR CODE HERE\n\1raise NotImplementedError()"  # as nbgrader's
LEFT_OUT = {"check", "solution"}  # and cells that need one of these
LINK = re.compile(r"\{ref\}`([^`<]+?)(?: <[\w-]+>)?`")
CAN = re.compile(r"\*You can now ([^*]+)\*")  # near a chapter's end
SVG = re.compile(r'<svg class="picture".*?</svg>', re.S)


@dataclass
class Sitting:
    """A row of the course's list, and where its chapter is."""

    number: int
    page: Path
    title: str
    exercise: str
    label: str
    minutes: int
    in_class: int
    opening: str
    can: str

    @property
    def name(self) -> str:
        return f"sitting-{self.number:02}"


def sittings() -> list[Sitting]:
    """The twelve, as the page of the course lists them."""
    found, met = [], set()
    text = (ROOT / f"{COURSE}.md").read_text("utf-8")
    for row in SITTING.findall(text):
        number, chapter, exercise, label, minutes, in_class, opening = row
        [page] = ROOT.glob(f"book/*/{chapter}.md")
        title = re.search(r"^# (.+)$", page.read_text("utf-8"), re.M)[1]
        cans = objective(page).rstrip(".").split(". You can ")
        can = cans[chapter in met and -1]  # a chapter may have two sittings
        met.add(chapter)
        times = int(minutes), int(in_class)
        found.append(
            Sitting(
                int(number), page, title, exercise, label, *times, opening, can
            )
        )
    return found


def objective(page: str | Path) -> str:
    """What one can do after a chapter, as words after "you can"."""
    found = CAN.search(Path(page).read_text("utf-8"))
    return found[1] if found else ""


# The notebooks


def code(source: str, **about) -> nbformat.NotebookNode:
    """A cell of code; `about` is what nbgrader is to know of it."""
    cell = nbformat.v4.new_code_cell(source)
    if about:
        plain = {"grade": False, "solution": False, "locked": False}
        plain |= {"schema_version": 3, "task": False}
        cell.metadata["nbgrader"] = plain | about
    return cell


def pieces(notebook) -> list:
    """Its cells; in place of a solution, the exercise's label and cells."""
    found, inside = [], None
    for cell in notebook.cells:
        if cell.cell_type == "code":
            (found if inside is None else inside).append(cell)
            continue
        text, *rest = FENCE.split(cell.source)
        parts = [("", text), *zip(rest[::2], rest[1::2], strict=True)]
        for number, (label, text) in enumerate(parts):
            if number:
                inside = [] if label else None
            if label:
                found.append((label, inside))
            if text.strip():
                said = nbformat.v4.new_markdown_cell(text.strip())
                (found if inside is None else inside).append(said)
    return found


def functions(source: str) -> dict[str, ast.FunctionDef]:
    """What code defines, methods too, by its name."""
    nodes = ast.walk(ast.parse(source))
    return {n.name: n for n in nodes if isinstance(n, ast.FunctionDef)}


def lines_of(source: str, first: ast.stmt, last: ast.stmt) -> str:
    """Whole lines, from one statement to another."""
    lines = source.splitlines()
    return "\n".join(lines[first.lineno - 1 : last.end_lineno])


def filled(stub: str, answer: str) -> str:
    """A stub whose gaps hold the answer, between nbgrader's marks."""
    answers, lines = functions(answer), stub.splitlines()
    for name, node in reversed(functions(stub).items()):
        gaps = [s for s in node.body if is_gap(s)]
        kept_ones = {ast.dump(s) for s in node.body if s not in gaps}
        indent = " " * node.body[0].col_offset
        told = [lines_of(stub, s, s).strip() for s in gaps]
        told = [f"{indent}# {one}" for one in told if one != "..."]
        body = answers[name].body
        missing = [s for s in body if ast.dump(s) not in kept_ones]
        wanted = lines_of(answer, missing[0], missing[-1])
        first, last = gaps[0].lineno - 1, gaps[-1].end_lineno
        region = [indent + BEGIN, wanted, indent + END]
        lines[first:last] = [*told, *region]
        marks = answers[name].decorator_list
        marks = [f"@{ast.unparse(mark)}" for mark in marks]
        lines[node.lineno - 1 : node.lineno - 1] = marks
    return "\n".join(lines)


def is_gap(statement: ast.stmt) -> bool:
    """Whether a statement of a stub waits for a reader."""
    value = getattr(statement, "value", None)
    return isinstance(value, ast.Constant) and value.value is ...


def exercise(label: str, solution: list, stub, points: int) -> list:
    """The cells of an exercise, solved; points where it is graded."""
    graded = {"solution": True, "grade_id": label}
    *_, answer = [c.source for c in solution if c.cell_type == "code"]
    said = [c.source for c in solution if c.cell_type != "code"]
    if stub is None:
        lines = [answer, *(textwrap.indent(fill(t), "# ") for t in said)]
        return [code("\n".join([BEGIN, *lines, END]), **graded)]
    answer, _, check = answer.rpartition("\n\n")
    asks = "from transformer_book.exercises import check\n"
    source, _, _ = stub.source.rpartition("\n\n")
    source = source.replace(asks, "").strip()
    about = {"grade": True, "locked": True, "points": points}
    about |= {"grade_id": f"{label}-check"}
    return [
        code(filled(source, answer), **graded),
        code(f"{asks}\n{check}", **about if points else {}),
    ]


def fill(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 76)


def names_in(source: str) -> tuple[set[str], set[str]]:
    """What code defines for the cells below it, and what it asks of others."""
    top = symtable.symtable(source, "", "exec")
    defined, asked, tables = set(), set(), [top]
    for table in tables:
        tables += table.get_children()
        for one in table.get_symbols():
            if table is top and (one.is_assigned() or one.is_imported()):
                defined.add(one.get_name())
            elif one.is_referenced() and one.is_global():
                asked.add(one.get_name())
    return defined, asked - defined


def imports(source: str, chapter: str = "") -> str:
    """Code's imports; its own names too, from the module of a chapter."""
    found = [
        ast.unparse(node)
        for node in ast.parse(source).body
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    if chapter:
        own = names_in(source)[0] - names_in("\n".join(found))[0]
        module = f"from transformer_lib.{chapter} import"
        found += [f"{module} {name}" for name in sorted(own)]
    return "\n".join(found)


def solved(sitting: Sitting, values) -> nbformat.NotebookNode:
    """A chapter for the teacher, its solutions between nbgrader's marks."""
    notebook = with_values(jupytext.read(sitting.page), values)
    cells, gone, known = [], set(), set()
    for piece in pieces(notebook):
        if isinstance(piece, tuple):
            label, solution = piece
            at = [i for i, c in enumerate(cells) if is_stub(c)]
            # the last is for tensors, where one is in plain Python, too
            stub = [cells.pop(i) for i in reversed(at)][0] if at else None
            points = sitting.minutes if label == sitting.label else 0
            made = exercise(label, solution, stub, points)
            place = at[0] if at else len(cells)
            cells[place:place] = made
            continue
        tags = {*piece.metadata.get("tags", [])}
        if "remove-cell" in tags:
            continue
        if "export" in tags:
            piece = code(imports(piece.source, sitting.page.stem))
        if piece.cell_type == "code":
            defined, asked = names_in(piece.source)
            if LEFT_OUT & tags or asked & gone:
                piece = code(imports(piece.source))
                gone |= defined - known
                defined, _ = names_in(piece.source)
            known |= defined
            gone -= defined
        if piece.source:
            cells.append(piece)
    about = (
        f"**Sitting {sitting.number}: {sitting.exercise}.** Afterwards you "
        f"can {sitting.can}. Where a cell says `YOUR CODE HERE`, write your "
        "own; the cell below it tells you what is right or wrong with it."
    )
    notebook.cells = [
        nbformat.v4.new_markdown_cell(about),
        code(first_cell()),
        *with_captions(cells),
    ]
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
    return notebook


def is_stub(cell) -> bool:
    """Whether a cell is an exercise's that nobody has taken up yet."""
    called = re.search(r'^check\("[\w.]+", \w+\);\Z', cell.source, re.M)
    return cell.cell_type == "code" and called is not None


def for_students(notebook) -> nbformat.NotebookNode:
    """A copy in which every solution is still to be written."""
    notebook = copy.deepcopy(notebook)
    for cell in notebook.cells:
        cell.source = REGION.sub(GAP, cell.source)
    return notebook


# The figures


def faces(svg: str) -> str:
    """The book's letters, in the picture itself."""
    wanted = [400, 700] if re.search(r"bold|700", svg) else [400]
    folder = ROOT / "book/_static/fonts"
    rules = []
    for weight in wanted:
        font = (folder / f"book-sans-{weight}.woff2").read_bytes()
        rules.append(
            f"@font-face{{font-family:'Book Sans';font-weight:{weight};"
            "src:url(data:font/woff2;base64,"
            f"{base64.b64encode(font).decode()})}}"
        )
    return f"<style>{''.join(rules)}</style>"


def figures(page: Path, outputs: list) -> dict[str, bytes]:
    """Each figure of a chapter, as SVG and as PDF."""
    vl_convert.register_font_directory(str(FONTS))
    found = {}
    notebook = jupytext.read(page)
    cells = [c for c in notebook.cells if c.cell_type == "code"]
    for cell, shown in zip(cells, outputs, strict=True):
        name = cell.metadata.get("mystnb", {}).get("figure", {}).get("name")
        text = "".join(o.get("data", {}).get("text/html", "") for o in shown)
        drawn = SVG.findall(text)
        for number, svg in enumerate(drawn if name else []):
            part = f"{name}-{chr(97 + number)}" if len(drawn) > 1 else name
            svg = alone(svg)
            found[f"{part}.pdf"] = vl_convert.svg_to_pdf(svg)
            start, _, rest = svg.partition(">")
            whole = f"{start}>{faces(svg)}{rest}"
            found[f"{part}.svg"] = whole.encode()
    return found


def alone(svg: str) -> str:
    """A picture of a page as a file of its own, on white."""
    start, _, rest = svg.partition(">")
    start = re.sub(r' style="[^"]*"', "", start)
    if "xmlns=" not in start:
        start += ' xmlns="http://www.w3.org/2000/svg"'
    if "xmlns:xlink" not in start:
        start += ' xmlns:xlink="http://www.w3.org/1999/xlink"'
    start += ' font-family="\'Book Sans\', sans-serif" color="#000"'
    svg = f"{start}>{rest}"
    return re.sub(r"var\(--[\w-]+, ?(?:Canvas|white)\)", "#fff", svg)


# The teacher's page


@cache
def planted() -> dict:
    """The names of the script that plants the course's mistakes."""
    return runpy.run_path(str(ROOT / "experiments/mistakes.py"))


def changed(changes: tuple) -> list[str]:
    """The lines that a mistake takes away and puts in, as a diff."""
    before, after = (planted()["whole"](each) for each in ((), changes))
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line for line in lines if line[:2] in ("- ", "+ ")]


def loss(value: float | None) -> str:
    """As few figures as one needs: 7.54, 524, nan."""
    if value is None:
        return "nan"
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def how_it_shows(row: dict) -> str:
    """What a planted mistake did."""
    if "error" in row:
        return f"It stops: `{row['error']}`."
    said = row["trees"].strip()
    said = f"“{said[:40] + '…' * (len(said) > 40)}”" if said else "nothing"
    return (
        f"Loss {loss(row['first'])} at the first step, {loss(row['last'])} "
        f"at the end; {row['right']} of {row['of']} right. “I like trees” "
        f"becomes {said}."
    )


def teachers_page(sitting: Sitting, names: list[str]) -> str:
    """Objective, times, what is discussed, and how to hand it out."""
    rows = json.loads((ROOT / "runs/mistakes.json").read_text())["rows"]
    rows = {row["mistake"]: row for row in rows}
    mistakes = [
        f"- **{mistake}.** {how_it_shows(rows[mistake])}\n\n"
        + textwrap.indent(
            "\n".join(["```diff", *changed(tuple(changes)), "```"]), "  "
        )
        for number, mistake, *changes in planted()["MISTAKES"]
        if number == sitting.number
    ]
    address = site_address() + sitting.page.relative_to(ROOT).as_posix()
    opening = LINK.sub(r"\1", sitting.opening)
    total = 120 if sitting.number == 12 else 60
    first = 0 if sitting.in_class > 30 and total == 60 else 10
    left = total - 20 - first - sitting.in_class
    pictures = "\n".join(f"- `{n}`" for n in names if n.endswith(".svg"))
    chapter = sitting.page.stem
    return TEACHERS.format(
        **vars(sitting),
        name=sitting.name,
        chapter=chapter,
        address=address.replace(".md", ".html"),
        first=first or "none",
        said=opening,
        left=left,
        total=total,
        mistakes="\n".join(mistakes),
        pictures=pictures,
    )


TEACHERS = """\
# Sitting {number}: {title}, {exercise}

**Afterwards** everybody can {can}.

Before the hour the class reads the chapter, {address}.

| minutes | what happens |
|---:|---|
| {first} | The opening task: {said} |
| {in_class} | The exercise, *{exercise}*, in pairs. |
| 15 | *How would it show?* One of the mistakes below for each pair. |
| {left} | What the chapter has to try, or an exercise that no sitting has. |
| 5 | Everybody writes down, without looking, what they can do now. |

## What is discussed: how would it show?

Each pair gets one of these changes, writes down what it expects, plants it in
the folded cell of the course's page (as a notebook, by the button above that
page), trains for half a minute, and looks. The losses are those that the
mistaken code reports.

{mistakes}

## The files

- `{chapter}.ipynb` is the students' notebook. Its exercises raise
  `NotImplementedError` until they are written.
- `{chapter}-solved.ipynb` is the same with the solutions. The text of both is
  MyST, which JupyterLab shows as it is meant after `pip install
  jupyterlab-myst`.
- `figures` has the chapter's figures, as SVG and PDF, under CC BY 4.0 (see
  `LICENSE-TEXT`):

{pictures}

## Grading with nbgrader

The exercise is worth {minutes} points. Others in the notebook have none: the
check of one that isn't written fails, and costs nothing. The book's package
has to be installed where the notebooks run, by `pip install '.[book]'` in a
checkout of the book. In a course that `nbgrader quickstart` has made, put the
solved notebook into `source/{name}/`, named `{chapter}.ipynb`:

    nbgrader generate_assignment {name}
    (hand out release/{name}, collect submitted/NAME/{name})
    nbgrader autograde {name} --ExecutePreprocessor.timeout=300
    nbgrader generate_feedback {name}
    nbgrader export

A solution of the book is easily found, in the book. So grade what can't be
copied, too: a mistake in working code, and how one finds it.
"""


# Building


def write_archives(app, error):
    """An archive for each sitting, in the site's downloads."""
    if error or app.builder.format != "html":
        return
    folder = Path(app.outdir, "downloads")
    folder.mkdir(parents=True, exist_ok=True)
    drawn: dict[Path, dict[str, bytes]] = {}
    for sitting in sittings():
        page = sitting.page
        result = kept(app, app.env.path2doc(str(page)))
        if page not in drawn:  # two sittings may have one chapter
            drawn[page] = figures(page, result["outputs"])
        files = archive(sitting, result["values"], drawn[page])
        target = folder / f"{sitting.name}.zip"
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as made:
            for name, data in files.items():
                # the same files make the same archive
                info = zipfile.ZipInfo(f"{sitting.name}/{name}")
                info.compress_type = zipfile.ZIP_DEFLATED
                made.writestr(info, data)


def archive(
    sitting: Sitting, values, pictures: dict[str, bytes]
) -> dict[str, str | bytes]:
    """The files of a sitting, by their names."""
    whole = solved(sitting, values)
    stem = sitting.page.stem
    found = {
        "teacher.md": teachers_page(sitting, [*pictures]),
        f"{stem}.ipynb": nbformat.writes(for_students(whole)) + "\n",
        f"{stem}-solved.ipynb": nbformat.writes(whole) + "\n",
    }
    found |= {f"figures/{name}": data for name, data in pictures.items()}
    licence = (ROOT / "LICENSE-TEXT").read_bytes()
    fonts = (ROOT / "book/_static/fonts/LICENSE").read_bytes()
    return found | {
        "figures/LICENSE-TEXT": licence,
        "figures/LICENSE-FONTS": fonts,
    }


def list_archives(app, doctree, docname):
    """The course's list says what one can do afterwards, and links."""
    if docname != COURSE or app.builder.format != "html":
        return
    [made] = [
        one
        for one in doctree.findall(nodes.enumerated_list)
        if len(one) == len(sittings())
    ]
    up = posixpath.relpath("downloads", posixpath.dirname(docname))
    for item, sitting in zip(made, sittings(), strict=True):
        words = sitting.can[0].upper() + sitting.can[1:] + "."
        link = (
            f' <a href="{up}/{sitting.name}.zip" download>'
            f"Archive {sitting.number}</a>"
        )
        item[-1] += [
            nodes.Text(" "),
            nodes.emphasis("", words),
            nodes.raw("", link, format="html"),
        ]


def setup(app):
    app.connect("doctree-resolved", list_archives)
    app.connect("build-finished", write_archives)
