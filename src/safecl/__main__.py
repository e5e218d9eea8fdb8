"""``safecl`` and ``python -m safecl``, which is also what a launcher of several processes
starts.
"""

import sys


def main() -> None:
    """Run a command, if what it imports is installed."""
    try:
        from safecl.cli.main import main as run

        run()
    except ModuleNotFoundError as error:
        from safecl.errors import not_installed

        print(f"safecl: {not_installed(error)}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:  # while it is imported
        print("safecl: stopped.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
