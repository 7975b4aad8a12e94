"""The pages as notebooks: read, executed, and with values in their text.

A page's text, and a figure's caption, may hold MyST's own inline
evaluation, such as {eval}`f"{score:.1f}"`. `execute` evaluates it behind the
cells before it, and that of a text once more at the end, as JupyterLab does
when it runs all cells: both must say the same.
"""

import ast
import copy
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

EVAL = re.compile(r"\{eval\}(`+)(.+?)(?<!`)\1(?!`)", re.DOTALL)
SECONDS = 1200  # that a cell may take: after these it hangs


def is_notebook(path: str | Path) -> bool:
    """Whether a page computes."""
    path = Path(path)
    if path.suffix != ".md" or not path.exists():
        return False
    text = path.read_text("utf-8")
    return "format_name: myst" in text[:300] and "{code-cell}" in text


def code_cells(notebook) -> list:
    return [c for c in notebook.cells if c.cell_type == "code"]


def prose(cell) -> str:
    """A cell's text: of code, the caption of its figure."""
    if cell.cell_type != "code":
        return cell.source
    figure = cell.metadata.get("mystnb", {}).get("figure", {})
    return figure.get("caption", "")


def expressions(cell) -> list[str]:
    """What a cell's text asks for, in order."""
    return [named(found[2]) for found in EVAL.finditer(prose(cell))]


def named(expression: str) -> str:
    """An expression as it is looked up, on however many lines it is."""
    return " ".join(expression.split())


def execute(
    notebook,
    folder: Path,
    env: Mapping[str, str] | None = None,
    kernel: Any = None,
    allow_errors: bool = False,
) -> list[tuple[str, dict]]:
    """Run a notebook in place; each of its expressions with what it gave.

    Raises:
        CellExecutionError: if a cell or an expression raises.
        ValueError: if an expression gives nothing to show, or something
            else when all cells have run.
    """
    cells, asked, again = [], [], []
    for cell in notebook.cells:
        cells.append(cell)
        for expression in expressions(cell):
            asked.append(nbformat.v4.new_code_cell(expression))
            cells.append(asked[-1])
            if cell.cell_type == "markdown":
                at_end = nbformat.v4.new_code_cell(expression)
                again.append((asked[-1], at_end))
    cells += [at_end for _, at_end in again]
    whole = nbformat.v4.new_notebook(cells=cells, metadata=notebook.metadata)
    client = NotebookClient(
        whole,
        km=kernel,
        timeout=SECONDS,
        kernel_name="python3",
        allow_errors=allow_errors,
        resources={"metadata": {"path": str(folder)}},
        shutdown_kernel="immediate",
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
    )
    client.execute(env=dict(os.environ if env is None else env))
    notebook.metadata = whole.metadata
    for where_it_is, at_end in again:
        told, later = (shown(result_of(x)) for x in (where_it_is, at_end))
        if told != later:
            raise ValueError(
                f"{{eval}}`{at_end.source}` is {told}, but {later} when all "
                "cells have run: a later cell gives a name in it anew"
            )
    return [(cell.source, result_of(cell)) for cell in asked]


def result_of(cell) -> dict:
    """What an expression gave."""
    for output in cell.outputs:
        if output.output_type == "execute_result":
            return output
    if cell.outputs and cell.outputs[0].output_type == "error":
        return cell.outputs[0]
    raise ValueError(f"{{eval}}`{cell.source}` gives nothing to show")


def shown(result: Mapping) -> str:
    """A result as words: a string without its quotes."""
    if "data" not in result:
        return f"{result['ename']}: {result['evalue']}"
    text = result["data"]["text/plain"]
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
    return value if isinstance(value, str) else text


def with_values(notebook, values: list[tuple[str, dict]]):
    """A copy in whose text values stand where expressions were."""
    left = iter(values)
    notebook = copy.deepcopy(notebook)

    def fill(text: str) -> str:
        return EVAL.sub(lambda _: shown(next(left)[1]), text)

    for cell in notebook.cells:
        filled = fill(prose(cell))
        if cell.cell_type != "code":
            cell.source = filled
        elif filled:
            cell.metadata.mystnb.figure.caption = filled
    return notebook
