"""Is it a Transformer? The paper's statements, tried on anybody's code.

    python -m transformer_conformance --template > my_adapter.py
    python -m transformer_conformance my_adapter.py

An adapter is a file of functions that the probes call; all of them are
optional, and work on PyTorch's tensors or NumPy's arrays. Each probe
tries one statement of the paper, a row of the book's ledger, and its
verdict is "paper", a named "deviation", a "fault" with a diagnosis, or
"not tried".
"""

# The probes, in the order in which they run.
from . import positions, attention, layers, training  # noqa: F401, I001
from . import model, inside, decoding  # noqa: F401
from .core import PROBES, Adapter, Probe, Result, Verdict, run
from .report import as_html, as_json, as_text, summary, template

__all__ = [
    "PROBES",
    "Adapter",
    "Probe",
    "Result",
    "Verdict",
    "as_html",
    "as_json",
    "as_text",
    "run",
    "summary",
    "template",
]
