"""Notes which files a chapter reads, in its kernel and what that starts.

`run_chapters.py` puts this folder on the kernel's path, so that every Python
process imports it first. Each path is written when it is first seen.
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
        if event not in ("open", "os.listdir", "os.scandir"):
            return
        path = arguments[0]
        if isinstance(path, str | os.PathLike) and path not in _seen:
            _seen.add(path)
            whole = os.path.realpath(path)
            if whole.startswith(_roots):
                os.write(_trace, f"{whole}\n".encode())

    sys.addaudithook(_note)
