# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""`python -m transformer_lib`: the command line of the chapter `cli`."""


def main() -> int:
    """Run a command, and stop quietly while torch is being loaded."""
    try:
        from transformer_lib import cli
    except KeyboardInterrupt:
        return 130
    return cli.main()


if __name__ == "__main__":
    raise SystemExit(main())
