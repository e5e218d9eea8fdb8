"""``python -m safecl``, which is also what a launcher of several processes starts."""

from safecl.cli.main import main

if __name__ == "__main__":
    main()
