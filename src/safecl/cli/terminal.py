"""The terminal: its width, its encoding, and sentences on it."""

import json
import os
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from safecl.errors import SafeclError
from safecl.lines import HIDDEN, plain, print_sentence, spelt, text_for
from safecl.outputs import check_output

Force = Annotated[bool, typer.Option("--force", help="Replace any file, also a model that can learn.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing but the result.")]
KINDS = {"str": "TEXT", "text": "TEXT", "int": "NUMBER", "integer": "NUMBER", "float": "NUMBER", "path": "PATH"}
WIDTH = 120  # columns where there is no terminal and COLUMNS does not say


def explain_help(command: Any, wide: bool) -> None:
    """Let help name values in words, not by types of Python; where it is ``wide``, with a line for each example."""
    context, (text, _, examples) = command.context_class(command), (command.help or "").partition("Example:  ")
    if wide and examples:
        lines = (" ".join(example.split()) for example in examples.split("   or   "))
        command.help = "\n".join((text.strip(), "\nExamples:", *lines))
    for one in command.get_params(context):
        kind = one.display_type(context) if hasattr(one, "display_type") else one.type.name  # of older typers
        kind = kind.strip("<>").removeprefix("list[").split(" ")[0].rstrip("]").lower()
        if one.param_type_name == "argument":
            one.metavar, shown = (one.metavar or one.name.upper()).rstrip("…"), ""
        else:
            shown = "" if one.is_flag else one.metavar or KINDS.get(kind, kind)
            one.metavar = None if kind == "choice" else shown
        one.display_type_rich = lambda ctx, shown=shown: shown
    for each in getattr(command, "commands", {}).values():
        explain_help(each, wide)


def make_console() -> Console:
    """The terminal; where there is none, lines of COLUMNS, or of ``WIDTH``."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=WIDTH)


def check_page(page: Path | None, force: bool) -> None:
    """Refuse to write a page over anything else, unless ``force``, and --force without a page."""
    if page is not None:
        check_output(page, "page", force)
    elif force:
        raise SafeclError("--force has no effect without --page; omit it.")


def at_work(what: str) -> AbstractContextManager[object]:
    """Show on a terminal, until it is over, that something goes on whose steps nobody counts."""
    from safecl.engine.progress import make_progress

    return make_progress("live" if sys.stdout.isatty() else "quiet").phase(what, 0)


def say(text: str, err: bool = False) -> None:
    """Print a sentence: on a terminal in lines of whole words, elsewhere in one line."""
    stream = sys.stderr if err else sys.stdout
    if stream.isatty():
        print_sentence(Console(stderr=err, highlight=False), text)
    else:
        print_line(text, err)


def print_line(text: str, err: bool = False) -> None:
    """One line, however long: it may be read by another program."""
    stream = sys.stderr if err else sys.stdout
    print(plain(spelt(text, stream.encoding)), file=stream, flush=True)


def print_json(value: Any, indent: int | None = None) -> None:
    """With every name as it is: what should not be shown, or not in this encoding, is an escape of JSON's own."""
    text = json.dumps(value, ensure_ascii=not (sys.stdout.encoding or "utf-8").lower().startswith("utf"), indent=indent)
    print(HIDDEN.sub(lambda found: found[0] if found[0] == "\n" else json.dumps(found[0])[1:-1], text), flush=True)


def print_facts(console: Console, facts: Iterable[tuple[str, str]]) -> None:
    """Lines of a key and what there is; a line without a key continues the one before."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    for key, value in facts:
        grid.add_row(text_for(console, key, "bold"), text_for(console, value))
    console.print(grid)


def accept_any_text() -> None:
    """From now on a character that the output's encoding lacks is replaced, and never an error."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="safecl.plain")
