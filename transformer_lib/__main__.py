# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""`python -m transformer_lib`: the command line of the chapter `cli`."""

if __name__ == "__main__":
    try:
        from transformer_lib.cli import main
    except KeyboardInterrupt:  # while torch is being loaded
        raise SystemExit(130) from None
    raise SystemExit(main())
