"""``safecl learn``, ``predict``, ``eval`` and what else is done with a model file."""

from collections.abc import Sized
from pathlib import Path
from typing import Annotated, Any

import typer

from safecl.classifier.store import ModelFile, check_path, locked, read_header, rewrite_header
from safecl.cli.terminal import make_console, say
from safecl.errors import SafeclError
from safecl.lines import counted

ModelOption = Annotated[Path, typer.Option("--model", "-m", help="The model file, such as pets.safecl.")]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="The model file.")]
Unknown = Annotated[float, typer.Option(min=0, max=0.99, help="Share of known pictures that may be called unknown.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing but the result.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or mps; the best there is if not given.")]
FORMATS = ("table", "jsonl", "csv")


def learn(
    folder: Annotated[str, typer.Argument(help="One folder of pictures per class; or a CSV or Parquet table.")],
    model: ModelOption,
    backbone: Annotated[str | None, typer.Option(help="micro (the default), small, base, large; a timm name.")] = None,
    method: Annotated[str | None, typer.Option(help="How it learns; safe if not given (safecl methods).")] = None,
    pet: Annotated[str | None, typer.Option(help="Kind of tuning: ssf (the default), adapter, lora, …")] = None,
    memory: Annotated[str | None, typer.Option(help="features: can forget a class wholly, and merge exactly.")] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the pictures; by their number if not given.")
    ] = None,
    keep: Annotated[int | None, typer.Option(min=0, help="Sessions that can be rolled back; 3 if not given.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of everything random; 0 if not given.")] = None,
    name: Annotated[str | None, typer.Option(help="A name for this session; the folder's if not given.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Also pictures that were learned before.")] = False,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any other setting, e.g. train.lr=0.02.")] = None,
    device: Device = None,
    quiet: Quiet = False,
) -> None:
    """Teach a model the pictures of a folder: makes MODEL, or adds to it. No old pictures are needed.

    A stop or a failure leaves MODEL as it was; the same command resumes where it was stopped.
    Example:  safecl learn photos/monday --model pets.safecl
    """
    if memory not in (None, "statistics", "features"):
        raise SafeclError(f"--memory is statistics or features, not {memory}.")
    from safecl.configure.words import parse_words

    settings = parse_words(set_ or [])
    _check_new(folder, model, settings)
    from safecl.classifier.files import learn_file
    from safecl.cli.model_words import lesson_lines
    from safecl.engine.progress import make_progress

    lesson, classifier = learn_file(
        folder, model, make_progress("quiet" if quiet else "auto"), name=name, again=again, backbone=backbone,
        method=method, pet=pet, memory=memory, epochs=epochs, keep=keep, seed=seed, settings=settings or None,
        device=device,
    )  # fmt: skip
    for line in lesson_lines(lesson, classifier, model):
        say(line)


def predict(
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE|FOLDER…", help="Pictures; - reads a list.")] = None,
    *,
    model: ModelOption,
    unknown: Unknown = 0.05,
    format_: Annotated[str, typer.Option("--format", "-f", help="table, jsonl or csv.")] = "table",
    explain: Annotated[bool, typer.Option("--explain", help="Also what each learner says.")] = False,
    device: Device = None,
) -> None:
    """Say what is on pictures. Any number of them: a folder, or a list of files on standard input.

    Example:  safecl predict new/ --model pets.safecl   or   find . -name '*.jpg' | safecl predict - -m pets.safecl
    """
    if format_ not in FORMATS:
        raise SafeclError(f"--format is one of {', '.join(FORMATS)}, not {format_}.")
    if not files:
        raise SafeclError("There is no picture to look at; give files or folders, or - for a list on standard input.")
    ModelFile(model)
    from safecl.cli.model_words import predict_all

    if not predict_all(files, model, unknown, format_, explain, device or "auto"):
        raise typer.Exit(2)


def evaluate(
    folder: Annotated[str, typer.Argument(help="One folder of pictures per class; classes may be unknown ones.")],
    model: ModelOption,
    unknown: Unknown = 0.05,
    json_: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    page: Annotated[Path | None, typer.Option(help="Also write an HTML page.")] = None,
    device: Device = None,
) -> None:
    """Measure a model on labelled pictures: accuracy, calibration of its probabilities, unknown classes.

    Example:  safecl eval photos/test --model pets.safecl
    """
    ModelFile(model)
    from safecl.cli.model_words import evaluate_and_print

    evaluate_and_print(folder, model, unknown, json_, page, device or "auto")


def inspect(
    model: ModelArgument,
    page: Annotated[Path | None, typer.Option(help="Write an HTML page.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="All that the file says of itself.")] = False,
) -> None:
    """Say what a model knows: classes, when each was learned and from how many pictures, sizes, history.

    Example:  safecl inspect pets.safecl   or   safecl inspect pets.safecl --page pets.html
    """
    import json

    file = ModelFile(model)
    if json_:
        print(json.dumps({**file.header, "members": file.sizes}, ensure_ascii=False, indent=1))
    elif page is not None:
        from safecl.classifier.page import write_page

        say(str(write_page(file, page)))
    else:
        from safecl.cli.model_tables import print_model

        print_model(file, make_console())


def rename(
    model: ModelArgument,
    old: Annotated[str, typer.Argument(help="The class.")],
    new: Annotated[str, typer.Argument(help="Its new name.")],
) -> None:
    """Give a class another name.

    Example:  safecl rename pets.safecl cat tabby
    """
    from safecl.classifier.rename import as_label, renamed

    with locked(ModelFile(model).path):
        file = ModelFile(model)
        rewrite_header(file, renamed(file.header, old, as_label(file.header, old, new)))
    say(f"{old} is now called {new}.")


def forget(
    model: ModelArgument,
    label: Annotated[str, typer.Argument(metavar="CLASS", help="The class.")],
) -> None:
    """Remove a class from a model, and say what stays of it. Earlier sessions cannot be rolled back after that.

    Example:  safecl forget pets.safecl hamster
    """
    from safecl.classifier.rename import find

    find(read_header(model), label)  # before anything heavy is imported: a wrong name is answered at once
    from safecl.classifier.classifier import ContinualClassifier

    with locked(model):
        classifier = ContinualClassifier.load(model, device="cpu")
        said = classifier.forget(label)
        classifier.save(model)
    say(said)


def rollback(model: ModelArgument) -> None:
    """Take the last session back: the model answers as it did before.

    Example:  safecl rollback pets.safecl
    """
    from safecl.classifier.history import check_not_frozen, check_rollback

    with locked(ModelFile(model).path):
        header = read_header(model)
        check_not_frozen(header)
        check_rollback(header)
        from safecl.classifier.classifier import ContinualClassifier

        classifier = ContinualClassifier.load(model, device="cpu")
        last = [entry for entry in classifier.history_ if entry["what"] == "learn"][-1:]
        classifier.rollback()
        classifier.save(model)
    session = "".join(f"{entry['name']!r} ({counted(entry['pictures'], 'picture')})" for entry in last)
    say(f"{model} is as it was before {session}; it knows {_classes(classifier.classes_)}.")


def merge(
    one: Annotated[Path, typer.Argument(metavar="A", help="A model.")],
    other: Annotated[Path, typer.Argument(metavar="B", help="Another one that began with the same session.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The model to make of both.")],
) -> None:
    """Make one model of two that were taught apart from a common beginning.

    Example:  safecl merge north.safecl south.safecl -o both.safecl
    """
    for path in (one, other):
        ModelFile(path)
        _check_other(out, path)
    check_path(out)
    from safecl.classifier.classifier import ContinualClassifier

    with locked(out):
        a, b = (ContinualClassifier.load(path, device="cpu") for path in (one, other))
        both = a.merged(b)
        both.save(out)
    say(f"{out} knows {_classes(both.classes_)}.")


def freeze(
    model: ModelArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="The small file to write.")],
) -> None:
    """Write a small file that only predicts.

    Example:  safecl freeze pets.safecl -o pets-frozen.safecl
    """
    ModelFile(model)
    _check_other(out, model)
    check_path(out)
    from safecl.classifier.model import Model

    Model.open(model).save(out, frozen=True)
    say(f"{out}: {out.stat().st_size / 1e6:.1f} MB")


def export_run(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    model: ModelOption,
) -> None:
    """Make a model from a run: it knows what the run has learned so far, and can learn more.

    Example:  safecl export-run runs/demo/safe --model glyphs.safecl
    """
    if model.exists():
        raise SafeclError(f"{model} is there already; choose another name.")
    check_path(model)
    from safecl.classifier.from_run import model_of_run

    made = model_of_run(run)
    made.save(model)
    say(f"{model} knows {_classes(made.classes)}; its probabilities are not calibrated until it learns more.")


def add_commands(app: typer.Typer) -> None:
    """The commands of this file."""
    for command in (learn, predict, inspect, rename, forget, merge, rollback, freeze):
        app.command()(command)
    app.command("eval")(evaluate)
    app.command("export-run")(export_run)


def _classes(classes: Sized) -> str:
    return counted(len(classes), "class", "classes")


def _check_other(out: Path, source: Path) -> None:
    """Refuse to write over what is read."""
    if out.expanduser().resolve() == source.expanduser().resolve():
        raise SafeclError(f"{out} would be written over itself; give another file as --out.")


def _check_new(folder: str, model: Path, settings: dict[str, Any]) -> None:
    """The mistakes that can be seen before anything heavy is imported."""
    if not Path(folder).expanduser().exists():
        raise SafeclError(f"There is no folder {folder}; give one that holds a folder of pictures for each class.")
    if model.exists():
        ModelFile(model)
        if settings:
            raise SafeclError(f"{model} has its settings already, so --set has no effect on it; omit it.")
    else:
        check_path(model.expanduser())
