# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""`python -m transformer_lib`: the command line of the chapter `cli`."""

from transformer_lib.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
