"""The terminal: its width, its encoding, and sentences on it."""

import json
import os
import select
import sys
import traceback
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from safecl.errors import SafeclError
from safecl.lines import HIDDEN, as_json, plain, print_sentence, spelt, text_for
from safecl.outputs import check_output

Force = Annotated[
    bool, typer.Option("--force", help="Replace any file, also a model that can learn.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing but the result.")]
KINDS = {
    "str": "TEXT",
    "text": "TEXT",
    "int": "NUMBER",
    "integer": "NUMBER",
    "float": "NUMBER",
    "path": "PATH",
}
# the exit code where whoever reads the output has closed it, as of a program that SIGPIPE ends
UNHEARD = 141
WIDTH = 120  # columns where there is no terminal and COLUMNS does not say


def explain_help(command: Any, wide: bool, words: Collection[str]) -> None:
    """Let help name values in words, not by types of Python; where it is ``wide``, with a line for
    each example. ``words``: of the command line, among them the names of commands that it asks.
    """
    context, (text, _, examples) = (
        command.context_class(command),
        (command.help or "").partition("Example:  "),
    )
    if wide and examples:
        lines = (" ".join(example.split()) for example in examples.split("   or   "))
        command.help = "\n".join((text.strip(), "\nExamples:", *lines))
    for one in command.get_params(context):
        # of older typers
        kind = one.display_type(context) if hasattr(one, "display_type") else one.type.name
        kind = kind.strip("<>").removeprefix("list[").split(" ")[0].rstrip("]").lower()
        if one.param_type_name == "argument":
            one.metavar = (one.metavar or one.name.upper()).rstrip("…")
            shown = ""
        else:
            shown = "" if one.is_flag else one.metavar or KINDS.get(kind, kind)
            one.metavar = None if kind == "choice" else shown
        one.display_type_rich = lambda ctx, shown=shown: shown
    for name, each in getattr(command, "commands", {}).items():
        if name in words:
            explain_help(each, wide, words)


def make_console() -> Console:
    """The terminal; where there is none, lines of COLUMNS, or of ``WIDTH``."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=WIDTH)


def check_page(page: Path | None, force: bool) -> None:
    """Refuse to write a page over anything else, unless ``force``, and --force without a page."""
    if page is not None:
        check_output(page, "page", force)
    elif force:
        raise SafeclError("command.page.force-idle")


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


def is_unheard(stop: SystemExit) -> bool:
    """Whether a command was stopped because whoever read the output, or the errors, has closed
    it.
    """
    *_, (frame, _) = traceback.walk_tb(stop.__traceback__)
    # rich has looked; Windows
    if frame.f_code.co_name == "on_broken_pipe" or not hasattr(select, "poll"):
        return True
    looking = select.poll()
    for descriptor in (1, 2):
        looking.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in looking.poll(0))


def tell(text: str) -> None:
    """Print the last sentence of a command, whose exit code stays the same if nobody can hear
    it.
    """
    try:
        say(text, err=True)
    except OSError:
        # what waits in its buffer would fail once more at the end, and be the exit code then
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (it stays)


def print_line(text: str, err: bool = False) -> None:
    """One line, however long: it may be read by another program."""
    stream = sys.stderr if err else sys.stdout
    print(plain(spelt(text, stream.encoding)), file=stream, flush=True)


def print_json(value: Any, indent: int | None = None) -> None:
    """With every name as it is: what should not be shown, or not in this encoding, is an escape of
    JSON's own.
    """
    text = as_json(
        value, ascii=not (sys.stdout.encoding or "utf-8").lower().startswith("utf"), indent=indent
    )
    print(
        HIDDEN.sub(
            lambda found: found[0] if found[0] == "\n" else json.dumps(found[0])[1:-1], text
        ),
        flush=True,
    )


def print_facts(console: Console, facts: Iterable[tuple[str, str]]) -> None:
    """Lines of a key and what there is; a line without a key continues the one before."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    for key, value in facts:
        grid.add_row(text_for(console, key, "bold"), text_for(console, value))
    console.print(grid)


def prepare_streams() -> None:
    """From now on a character that the output's encoding lacks is replaced, and never an error; nor
    is a closed stream.

    What is in the place of a closed one also keeps its number from a file that is opened later.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (it stays)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="safecl.plain")
