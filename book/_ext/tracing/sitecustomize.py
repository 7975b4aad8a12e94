"""Notes what a chapter reads and imports, in its kernel and what it starts.

`run_chapters.py` puts this folder on the kernel's path, so that every Python
process imports it first. Each path, and each package as "import NAME", is
written when it is first seen.
"""

import os
import sys

if "BOOK_TRACE" in os.environ:
    _trace = os.open(
        os.environ["BOOK_TRACE"],
        os.O_WRONLY | os.O_APPEND | os.O_CREAT,
    )
    _roots = tuple(os.environ["BOOK_ROOTS"].split(os.pathsep))
    _seen = set()

    def _note(event, arguments):
        if event == "import":
            package = arguments[0].partition(".")[0]
            if package not in _seen:
                _seen.add(package)
                os.write(_trace, f"import {package}\n".encode())
        if event not in ("open", "os.listdir", "os.scandir"):
            return
        path = arguments[0]
        if isinstance(path, str | os.PathLike) and path not in _seen:
            _seen.add(path)
            whole = os.path.realpath(path)
            if whole.startswith(_roots):
                os.write(_trace, f"{whole}\n".encode())

    sys.addaudithook(_note)
