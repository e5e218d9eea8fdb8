"""``safecl learn``, ``predict``, ``eval`` and what else is done with a model file."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

import safecl
from safecl.classifier.place import SUFFIX, check_path, replaceable
from safecl.classifier.schema import Header
from safecl.classifier.settings import resolve
from safecl.classifier.store import ModelFile
from safecl.cli.terminal import Force, Quiet, at_work, check_page, make_console, print_facts, print_json, say
from safecl.errors import SafeclError
from safecl.lines import counted, print_sentence
from safecl.outputs import locked

if TYPE_CHECKING:
    from safecl.classifier.classifier import ContinualClassifier


class ModelCommand(TyperCommand):
    """A command on a model, which is taken wherever it stands: first, last or behind --model."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        part = next((part for part in self.params if part.name == "model"), None)
        if part is not None and "--" not in args:
            words = [each for word in args for each in (word.split("=", 1) if word.startswith("--model=") else [word])]
            after = next((i for i, word in enumerate(words[:-1]) if word in ("-m", "--model")), None)
            free = (i for i in range(len(words)) if not i or words[i - 1] == "-" or not words[i - 1].startswith("-"))
            named = (i for i in free if words[i].endswith((SUFFIX, ".onnx")))  # no word that an option may take
            place = next(named, None) if after is None else after + 1
            if place is not None:
                rest = words[: place if after is None else after] + words[place + 1 :]
                args = [*(["--model"] if "--model" in part.opts else []), words[place], *rest]
        return super().parse_args(ctx, args)


ModelOption = Annotated[Path, typer.Option("--model", "-m", help="The model file, such as pets.safecl.")]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="The model file.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="The file to write.")]
Careful = Annotated[
    bool,
    typer.Option("--careful", help="Look at each picture's mirror image as well: twice the time, more often right."),
]
Unknown = Annotated[float, typer.Option(min=0, max=0.99, help="Most known pictures to call unknown, a share; 0: none.")]
Device = Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="auto: the best there is.")]
Page = Annotated[Path | None, typer.Option(help="Write an HTML page.")]


def learn(
    folder: Annotated[str, typer.Argument(help="One folder of pictures per class, or tar shards; or a CSV table.")],
    model: ModelOption,
    backbone: Annotated[str | None, typer.Option(help="micro (the default), small, base, large; a timm name.")] = None,
    method: Annotated[str | None, typer.Option(help="How it learns; safe if not given (safecl methods).")] = None,
    pet: Annotated[str | None, typer.Option(help="Kind of tuning: ssf (the default), adapter, lora, …")] = None,
    memory: Annotated[
        Literal["statistics", "features"] | None,
        typer.Option(help="features: can forget a class wholly, and merge exactly."),
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the pictures; chosen if not given.")] = None,
    keep: Annotated[int | None, typer.Option(min=0, help="Last steps that can be rolled back; 3 if not given.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of everything random; 0 if not given.")] = None,
    thumbnails: Annotated[bool, typer.Option("--thumbnails", help="Keep two small pictures of each class.")] = False,
    name: Annotated[str | None, typer.Option(help="A name for this session; the folder's if not given.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Also pictures that were learned before.")] = False,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any other setting, e.g. train.lr=0.02.")] = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Teach a model the pictures of a folder: makes MODEL, or adds to it. No old pictures are needed.

    A stop or a failure leaves MODEL as it was; the same command resumes where it was stopped.
    Example:  safecl learn photos/monday --model pets.safecl
    """
    from safecl.classifier.seen import check_folder
    from safecl.configure.words import parse_words

    settings = parse_words(set_ or [])
    if not folder or not Path(folder).expanduser().exists():  # seen before anything heavy is imported
        raise SafeclError(f"There is no folder {folder}; give one that holds a folder of pictures for each class.")
    check_path(model)
    file = ModelFile(model) if model.expanduser().exists() else None
    if file is not None and settings:
        raise SafeclError(f"{model} has its settings already, so --set has no effect on it; omit it.")
    check_folder(Path(folder).expanduser(), file, again)
    from safecl.classifier.classifier import learn_file
    from safecl.cli.answer_words import lesson_lines
    from safecl.engine.progress import make_progress

    lesson, classifier = learn_file(
        folder, model, make_progress("quiet" if quiet else "auto"), name=name, again=again, device=device,
        backbone=backbone, method=method, pet=pet, memory=memory, epochs=epochs, keep=keep, seed=seed,
        settings=settings or None, thumbnails=thumbnails or None,
    )  # fmt: skip
    for line in lesson_lines(lesson, len(classifier.classes_), model):
        say(line)


def predict(
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE|FOLDER…", help="Pictures; -: see above.")] = None,
    *,
    model: ModelOption,
    unknown: Unknown = 0.05,
    careful: Careful = False,
    form: Annotated[Literal["table", "jsonl", "csv"], typer.Option("--format", "-f", help="Of the answers.")] = "table",
    explain: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="A new folder for heat maps; also says what each learner answers."),
    ] = None,
    device: Device = "auto",
) -> int:
    """Say what is on pictures: of files, of folders, or, with -, of each line of standard input as soon as it is there.

    Example:  safecl predict new/ --model pets.safecl   or   find . -name '*.jpg' | safecl predict - -m pets.safecl
    """
    if not files:
        raise SafeclError("There is no picture to look at; give files or folders, or - for lines of standard input.")
    from safecl.cli.answer_words import predict_all

    if model.suffix.lower() == ".onnx":
        if explain is not None or careful:
            raise SafeclError(f"{model} is exported: --explain and --careful need the model that it was made from.")
        return predict_all(files, safecl.load(model, device=device), model, unknown, form, None)
    file = ModelFile(model)
    with at_work(f"Opening {model}"):
        from safecl.classifier.answers import Snapshot

        now = Snapshot.open(file, device).carefully(careful)
    if explain is None:
        return predict_all(files, now, model, unknown, form, None)
    from safecl.classifier.explain import Explanations

    maps = Explanations(explain, now, model.name)
    code = predict_all(files, now, model, unknown, form, maps.add)
    say(f"Wrote {maps.finish()}.", err=True)
    return code


def evaluate(
    folder: Annotated[str, typer.Argument(help="One folder of pictures per class; classes may be unknown ones.")],
    model: ModelOption,
    unknown: Unknown = 0.05,
    careful: Careful = False,
    json_: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    page: Page = None,
    force: Force = False,
    device: Device = "auto",
) -> None:
    """Measure a model on labelled pictures: accuracy, calibration of its probabilities, unknown classes.

    Example:  safecl eval photos/test --model pets.safecl
    """
    file = ModelFile(model)
    check_page(page, force)
    from safecl.classifier import answers
    from safecl.classifier.data import hashes, labelled
    from safecl.classifier.page import write_page
    from safecl.classifier.photographs import photographs
    from safecl.classifier.seen import learned_by
    from safecl.report.table import make_table, print_table
    from safecl.report.words import size

    pictures, _ = labelled(folder)
    with at_work(f"Asking {model}"):
        found, judged = answers.evaluate(answers.Snapshot.open(file, device).carefully(careful), pictures, unknown)
    known = set() if file.header["frozen"] else learned_by(file).keys()
    found["learned"] = None if file.header["frozen"] else sum(mark in known for mark in hashes(pictures).tolist())
    if page is not None:
        write_page(file, page, (found, photographs(pictures, judged, found)), force=force)
    if json_:
        print_json(found)
        return
    if found["accuracy"] is not None:
        say(f"Accuracy {100 * found['accuracy']:.1f} % on {counted(found['pictures'], 'picture')}.")
        if found["learned"]:
            these = f"{found['learned']:,} of {len(pictures):,} pictures were learned by the model"
            say(f"Note: {these}, so this says little about new pictures; safecl inspect tells what to expect of these.")
        if found["error"] is not None:
            say(f"Calibration error {found['error']:.3f}: how far 'how sure' and 'how often right' are apart.")
        if found["false_alarms"] is not None:
            false, most = 100 * found["false_alarms"], 100 * unknown
            say(f"{false:.1f} % of them are called unknown (at most {most:g} % promised); their best class counts.")
    if found["found"] is not None:
        strange = counted(found["unknown_pictures"], "picture")
        say(f"{strange} of classes that the model does not know: {100 * found['found']:.1f} % are called unknown.")
    worst = sorted((row for row in found["classes"] if row[1] < 1), key=lambda row: row[1])[:10]
    if worst:
        rows = [[str(label), f"{100 * share:.1f} %", f"{count:,}"] for label, share, count in worst]
        heads = ("class", "accuracy", "pictures")
        print_table(make_console(), make_table("The classes with the lowest accuracy", heads, rows))
    for true, said, count in found["confused"][:5]:
        say(f"{true} is confused with {said} ({counted(count, 'picture')}).")
    if page is not None:
        say(f"Wrote {page} ({size(page.stat().st_size)}).")


def inspect(
    model: ModelArgument,
    page: Page = None,
    force: Force = False,
    json_: Annotated[bool, typer.Option("--json", help="All that the file says of itself.")] = False,
) -> None:
    """Say what a model knows: classes, when each was learned and from how many pictures, sizes, history.

    Example:  safecl inspect pets.safecl   or   safecl inspect pets.safecl --page pets.html
    """
    from safecl.classifier.history import advice, class_table, history_table
    from safecl.classifier.page import write_page
    from safecl.report.table import print_table

    file = ModelFile(model)
    check_page(page, force)
    if json_:
        print_json(file.header, indent=1)
    elif page is not None:
        say(f"Wrote {write_page(file, page, force=force)}.")
    else:
        console = make_console()
        print_facts(console, facts(file))
        console.print()
        print_table(console, class_table(file.header), drop=("learned in",))
        for sentence in advice(file.header):
            print_sentence(console, sentence)
        console.print()
        estimated = any(entry.get("accuracy") is not None for entry in file.header["history"])
        caption = "accuracy: leave-one-out, each picture judged without it; the mean over classes" if estimated else ""
        print_table(console, history_table(file.header), drop=("seconds", "date"), caption=caption)


def facts(file: ModelFile) -> list[tuple[str, str]]:
    """What ``inspect`` says first: lines of a key and what there is."""
    from safecl.classifier.enough import accuracy_text
    from safecl.classifier.history import counts, steps_back
    from safecl.report import words

    header, settings = file.header, file.header["settings"]
    pet, calibration = settings["method"].get("pet", {}).get("kind"), header["calibration"]
    backbone, pictures = header["backbone"], sum(counts(header).values())
    undo = len(steps_back(header))
    told = "no: too few pictures, or the method cannot leave learned pictures out"
    if calibration and calibration["temperature"] is not None:
        told = f"temperature {calibration['temperature']:.2f}, calibration error {calibration['error']:.3f} on "
        told += f"{counted(calibration['pictures'], 'picture')}, each left out in turn"
    accuracy = f"{accuracy_text(calibration)}: leave-one-out, the mean over classes" if calibration else words.NONE
    kept = resolve(settings).method.kept_of_pictures
    if size := header.get("memory_bytes"):
        kept += f", {words.size(size)}"
    kept += "; thumbnails of two pictures of each class" if settings.get("thumbnails") and not header["frozen"] else ""
    back = f"; {counted(undo, 'step')} can be rolled back" if undo else ""
    return [
        ("model", f"{file.path}, {words.size(file.size)}{' (frozen)' if header['frozen'] else ''}"),
        ("classes", f"{len(header['classes'])}, learned from {counted(pictures, 'picture')}"),
        ("method", settings["method"]["name"] + (f" with {pet}" if pet else "")),
        ("backbone", f"{backbone['name']} at {backbone['size']} px, weights {backbone['weights'][:12]}…"),
        ("accuracy", accuracy),
        ("calibrated", told),
        ("memory", settings["memory"] + back),
        *([] if header["frozen"] else [("of pictures", f"keeps {kept}")]),
        ("made by", f"safecl {header.get('safecl')}, format {header['format']}"),
        ("inside", ", ".join(f"{name} {words.size(count)}" for name, count in file.sizes.items())),
    ]


def rename(
    model: ModelArgument,
    old: Annotated[str, typer.Argument(help="The class.")],
    new: Annotated[str, typer.Argument(help="Its new name.")],
) -> None:
    """Give a class another name.

    Example:  safecl rename pets.safecl cat tabby
    """
    from safecl.classifier.history import as_label, renamed

    word = as_label(ModelFile(model).header, new)
    change(model, lambda classifier: classifier.rename(old, word), lambda header: renamed(header, old, word))


def change(
    model: Path, how: Callable[["ContinualClassifier"], str], check: Callable[[Header], object] | None = None
) -> None:
    """Change the model in a file, which is locked meanwhile, and say what ``how`` gives.

    ``check`` refuses what its header rules out before anything heavy is imported; given where no picture is seen.
    """
    with locked(model) as file:
        if check is not None:
            check(ModelFile(file).header)
        with at_work(f"Changing {model}"):
            from safecl.classifier.classifier import ContinualClassifier

            classifier = ContinualClassifier.load(file, device="auto" if check is None else "cpu")
            said = how(classifier)
            classifier.save(file)
    say(said)


def forget(model: ModelArgument, label: Annotated[str, typer.Argument(metavar="CLASS", help="The class.")]) -> None:
    """Remove a class from a model, and say what stays of it. Earlier sessions cannot be rolled back after that.

    Example:  safecl forget pets.safecl hamster
    """
    from safecl.classifier.history import find

    change(model, lambda classifier: classifier.forget(label), lambda header: find(header, label))


def rollback(model: ModelArgument) -> None:
    """Take the last session or correction back: the model answers as it did before.

    Example:  safecl rollback pets.safecl
    """
    from safecl.classifier.history import check_rollback

    change(model, lambda classifier: classifier.rollback(), check_rollback)


def merge(
    one: Annotated[Path, typer.Argument(metavar="A", help="A model.")],
    other: Annotated[Path, typer.Argument(metavar="B", help="Another one that began with the same session.")],
    out: Out,
    force: Force = False,
) -> None:
    """Make one model of two that were taught apart from a common beginning.

    Example:  safecl merge north.safecl south.safecl -o both.safecl
    """
    _check_out(out, force, one, other)
    from safecl.classifier.classifier import ContinualClassifier

    with locked(out) as file:
        a, b = (ContinualClassifier.load(path, device="cpu") for path in (one, other))
        both = a.merged(b)
        both.save(file, force=force)
    say(f"{out} knows {counted(len(both.classes_), 'class')}.")


def freeze(model: ModelArgument, out: Out, force: Force = False) -> None:
    """Write a small file that only predicts.

    Example:  safecl freeze pets.safecl -o pets-frozen.safecl
    """
    _check_out(out, force, model)
    from safecl.classifier.model import Model

    file, _ = Model.open(model).save(out, frozen=True, force=force)
    say(f"{out}: {file.stat().st_size / 1e6:.1f} MB")


def export_run(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    model: ModelOption,
    force: Force = False,
) -> None:
    """Make a model of a run: it answers as the run does, and goes on learning. The run's pictures are read again.

    Example:  safecl export-run runs/demo/safe --model glyphs.safecl
    """
    replaceable(model, force)
    if not (run / "summary.json").is_file():
        raise SafeclError(f"{run} holds no finished run; give the folder of one (safecl runs lists them).")
    from safecl.classifier.teach import model_of_run
    from safecl.experiments.config import load
    from safecl.experiments.launch import build

    made = model_of_run(run, *build(load(str(run / "resolved.yaml")))[:3], say)
    made.save(model, force=force)
    say(f"{model} knows {counted(len(made.classes), 'class')}.")


def _check_out(out: Path, force: bool, *sources: Path) -> None:
    """Refuse sources that are no models, and to write over one of them or over what may not be replaced."""
    for source in sources:
        if out.expanduser().resolve() == ModelFile(source).path.resolve():
            raise SafeclError(f"{out} would be written over itself; give another file as --out.")
    replaceable(out, force)
