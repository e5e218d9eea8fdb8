"""``safecl …``: every command calls one function of the library. Heavy imports wait until a command
needs them.
"""

import gc
import os
import shlex
import sys
import warnings
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Annotated, Any

import typer

from safecl import __version__
from safecl.cli import models, terminal
from safecl.cli.backbones import backbones
from safecl.cli.correct import correct, join, split
from safecl.cli.data import COLUMNS, HELP
from safecl.cli.data import app as data_app
from safecl.cli.export import export, pull, push
from safecl.cli.leaderboard import app as leaderboard_app
from safecl.cli.queue import audit, queue, sort
from safecl.cli.reproduce import reproduce
from safecl.cli.runs import compare, runs, show
from safecl.cli.serve import serve
from safecl.cli.stress import stress
from safecl.cli.sweep import Folder, sweep
from safecl.cli.terminal import Force, Quiet, make_console, print_facts, say
from safecl.cli.watch import watch
from safecl.errors import SafeclError, Stopped
from safecl.lines import shown

EXPERIMENTS = "Experiments: methods compared on streams of classes"  # a heading of the help
app = typer.Typer(
    name="safecl",
    help=(
        "Continual image classification on a frozen vision transformer, by slow and fast tuning"
        " (SAFE).\n\nExample:  safecl quickstart   or   safecl learn photos --model pets.safecl  "
        " or   safecl predict new --model pets.safecl   or   safecl run safe stream=folder:photos  "
        " or   safecl demo"
    ),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=HELP,
    context_settings={} if HELP else {"terminal_width": COLUMNS},
    pretty_exceptions_enable=False,
)
app.add_typer(data_app, name="data", rich_help_panel=EXPERIMENTS)
app.add_typer(leaderboard_app, name="leaderboard", rich_help_panel=EXPERIMENTS)
ON_MODELS: dict[str, Callable[..., Any]] = {
    "learn": models.learn,
    "predict": models.predict,
    "eval": models.evaluate,
    "inspect": models.inspect,
    "rename": models.rename,
    "forget": models.forget,
    "merge": models.merge,
    "rollback": models.rollback,
    "freeze": models.freeze,
    "correct": correct,
    "split": split,
    "join": join,
    "queue": queue,
    "audit": audit,
    "sort": sort,
    "watch": watch,
    "export": export,
    "export-run": models.export_run,
    "push": push,
    "pull": pull,
}
for name, command in ON_MODELS.items():
    app.command(name, cls=models.ModelCommand)(command)
app.command()(serve)
app.command()(backbones)
for other in (runs, show, compare, sweep, stress, reproduce):
    app.command(rich_help_panel=EXPERIMENTS)(other)

# The base of click's own errors. Newer versions of typer carry a copy of click, so it is found by
# its name.
USAGE: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")

Words = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings, e.g. pet=adapter seed=1.")
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Start anew even if the folder holds this run already.")
]


@app.command()
def demo(
    words: Words = None,
    folder: Annotated[
        Path, typer.Option(help="Where the three runs and the page are kept.")
    ] = Path("runs/demo"),
    quiet: Quiet = False,
    fresh: Fresh = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Draw on a page, be recognised, teach your own sign.")
    ] = False,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="With --serve; 8000 if not given.")
    ] = None,
) -> None:
    """See continual learning happen: SAFE, RanPAC and fine-tuning on pictures drawn on the fly.
    Needs nothing.

    Example:  safecl demo   or   safecl demo seed=1 stream.train=40   or   safecl demo --serve
    """
    if serve and words:
        raise SafeclError("command.demo.settings-idle")
    if port is not None and not serve:
        raise SafeclError("command.demo.port-idle")
    from safecl.cli.demo import run_demo, serve_demo

    if serve:
        return serve_demo(
            folder, "quiet" if quiet else "auto", fresh, 8000 if port is None else port
        )

    run_demo(words or [], folder, "quiet" if quiet else "auto", fresh)


@app.command()
def quickstart(
    folder: Annotated[Path, typer.Argument(help="A new folder for all.")] = Path("quickstart"),
) -> None:
    """Draw small folders of pictures to teach a first model, and say how: three commands to paste.

    Example:  safecl quickstart   or   safecl quickstart try
    """
    from safecl.cli.quickstart import draw_folders

    draw_folders(folder)


@app.command(rich_help_panel=EXPERIMENTS)
def run(
    config: Annotated[
        str,
        typer.Argument(help="A preset (safe, paper, published, ranpac, finetune) or a YAML file."),
    ],
    words: Words = None,
    folder: Folder = None,
    quiet: Quiet = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also show the loss and its terms.")
    ] = False,
    fresh: Fresh = False,
    track: Annotated[
        list[str] | None, typer.Option(help="Also log to tensorboard, wandb or mlflow.")
    ] = None,
) -> None:
    """Run a method over a stream. The same command again resumes where it was stopped.

    Example:  safecl run safe stream=glyphs pet=ssf   or   safecl run safe stream=folder:photos
    train.epochs=10
    """
    from safecl.experiments.config import load, run_name

    if quiet and verbose:
        raise SafeclError("command.run.quiet-and-verbose")
    # before anything heavy is imported: a wrong word is answered at once
    settings = load(config, words or [])
    place = folder or Path("runs") / run_name(settings, settings.preset)
    # of the processes that a launcher started: only the first prints
    first = os.environ.get("RANK", "0") == "0"
    from safecl.engine.progress import make_progress
    from safecl.experiments.launch import launch

    options = ["--folder", str(folder)] if folder else []
    options += [word for tracker in track or [] for word in ("--track", tracker)]
    command = shlex.join(["safecl", "run", config, *(words or []), *options])
    progress = make_progress("quiet" if quiet else "auto", verbose)
    launch(settings, place, progress, command=command, trackers=track or [], fresh=fresh)
    if first:
        from safecl.report.page import write_page
        from safecl.report.sentences import results

        page = write_page(
            [place], place / "report.html", f"{settings.method.title} on {settings.stream.title}"
        )
        for line in (*results(place), str(page)):
            say(line)


@app.command(rich_help_panel=EXPERIMENTS)
def report(
    folders: Annotated[
        list[Path], typer.Argument(help="Run folders, or a folder of runs, as a sweep writes it.")
    ],
    page: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    force: Force = False,
    files: Annotated[
        Path | None, typer.Option(help="A folder for figures (SVG, PNG) and tables (CSV, LaTeX).")
    ] = None,
) -> None:
    """Draw one page from one or several runs; those that differ in the seed alone become one, with
    its spread.

    Example:  safecl report runs/demo/safe runs/demo/ranpac --page compare.html --files figures
    """
    from safecl.lines import counted
    from safecl.report.page import write_files, write_page
    from safecl.report.runs import find_runs

    folders = find_runs(folders)
    title = "Runs compared" if len(folders) > 1 else folders[0].name
    say(str(write_page(folders, page, title, force=force)))
    if files is not None:
        say(f"{counted(len(write_files(folders, files)), 'file')} in {files}")


@app.command()
def info(
    method: Annotated[
        str | None, typer.Argument(metavar="METHOD", help="With --keys: of this method alone.")
    ] = None,
    keys: Annotated[
        bool, typer.Option("--keys", help="List every setting with its meaning and default.")
    ] = False,
) -> None:
    """Say what is here: version, devices, backbones and weights, streams, methods, presets,
    folders.

    Example:  safecl info   or   safecl info --keys   or   safecl info --keys safe
    """
    from safecl.cli.info import describe, print_keys

    if method is not None and not keys:
        raise SafeclError("command.info.incomplete", method=method)
    print_keys(method, make_console()) if keys else print_facts(make_console(), describe())


@app.command(rich_help_panel=EXPERIMENTS)
def methods() -> None:
    """List the methods: kind, what they keep between sessions, paper.

    Example:  safecl methods
    """
    from safecl.cli.info import print_methods

    print_methods(make_console())


def _version(wanted: bool) -> None:
    if wanted:
        say(f"safecl {__version__}")
        raise typer.Exit


VERSION = typer.Option(
    "--version", callback=_version, is_eager=True, help="Show the version and exit."
)


@app.callback()
def _root(version: Annotated[bool, VERSION] = False) -> None:
    pass


def main() -> None:
    """Run a command; an error that a user can meet is one sentence and exit code 2."""
    terminal.prepare_streams()
    # importing torch and timm makes many objects, all of which stay: half a second less
    gc.set_threshold(200_000)
    warnings.showwarning = _note
    try:
        _check_words(sys.argv[1:])
        every = typer.main.get_command(app)
        terminal.explain_help(every, HELP is not None, sys.argv[1:])
        if (code := every(standalone_mode=False, prog_name="safecl")) == 130:
            raise KeyboardInterrupt  # which typer turns into this code, and says nothing
    except SystemExit as stop:
        if not isinstance(error := stop.__context__, BrokenPipeError):
            raise
        code = terminal.UNHEARD  # and typer says nothing
        if not terminal.is_unheard(stop):  # but of a pipe to a process of ours
            code = _explained(error)
    except SafeclError as error:
        # a sentence of ours may have lines, too
        names = [Path(word).name for word in sys.argv[1:] if "\n" in word]
        terminal.tell(
            "safecl:"
            f" {reduce(lambda text, name: text.replace(name, shown(name)), names, str(error))}"
        )
        raise SystemExit(error.exit_code) from error
    except USAGE as error:
        # then the help has been printed
        code = 0 if type(error).__name__ == "NoArgsIsHelpError" else 2
        if code:
            command = error.ctx.command_path if getattr(error, "ctx", None) else "safecl"
            terminal.tell(
                f"safecl: {error.format_message().rstrip('.')}. See {command} --help.".replace(
                    "?. ", "? "
                )
            )
    except OSError as error:
        # A disk that is full or gone can show itself anywhere; other kinds of OSError are ours to
        # explain.
        if error.errno is None or os.environ.get("SAFECL_DEBUG"):
            raise
        code = _explained(error)
    except Stopped:
        if os.environ.get("RANK", "0") == "0":  # of several processes only the first prints
            terminal.tell(
                "safecl: stopped; everything is saved, and the same command resumes from here."
            )
        code = 130
    except (KeyboardInterrupt, typer.Abort):
        terminal.tell("safecl: stopped; what was saved before is intact.")
        code = 130
    sys.exit(code if isinstance(code, int) else 0)


def _explained(error: OSError) -> int:
    where = f"{error.filename}: " if error.filename else ""
    terminal.tell(f"safecl: {where}{error.strerror}; what was saved before is intact.")
    return 2


def _check_words(words: list[str]) -> None:
    """Refuse bytes that this locale cannot read as text: they would break later, in a file or in a
    message.
    """
    for word in words:
        if not word.isprintable() and any("\ud800" <= character <= "\udfff" for character in word):
            raise SafeclError("command.word.no-text", word=word)


def _note(message: Any, *_: Any, **__: Any) -> None:
    say(f"Note: {message}", err=True)
