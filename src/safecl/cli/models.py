"""``safecl learn``, ``predict``, ``eval`` and what else is done with a model file."""

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from safecl.cli.terminal import (
    Force,
    Quiet,
    at_work,
    check_page,
    make_console,
    print_facts,
    print_json,
    say,
)
from safecl.errors import SafeclError, Settable
from safecl.lines import counted, print_sentence
from safecl.outputs import locked

if TYPE_CHECKING:
    from safecl.classifier.classifier import ContinualClassifier
    from safecl.classifier.modelfile.schema import Header
    from safecl.classifier.modelfile.store import ModelFile


class ModelCommand(TyperCommand):
    """A command on a model, which is taken wherever it stands: behind --model, or the word that
    ends as models do.
    """

    def make_parser(self, ctx: Any) -> Any:
        parser: Any = super().make_parser(ctx)
        if any(part.name == "model" for part in self.params):
            parser.parse_args = partial(self._parsed, ctx)
        return parser

    def _parsed(self, ctx: Any, args: list[str]) -> tuple[dict[str, Any], list[str], list[Any]]:
        """What the parser gives for ``args``. Options are parsed first: the value of one is not
        taken for the model.
        """
        from safecl.classifier.modelfile.store import SUFFIX

        of_options = self._parser(ctx, "option")
        is_option = any(
            part.name == "model" and part.param_type_name == "option" for part in self.params
        )
        if not is_option:
            of_options.add_option(self.get_help_option(ctx), MODEL_NAMES, "model")
        options, words, order = of_options.parse_args(args)
        if "model" not in options:
            named = next(
                (i for i, word in enumerate(words) if word.lower().endswith((SUFFIX, ".onnx"))),
                None,
            )
            options |= {} if named is None else {"model": words.pop(named)}
        if not is_option and "model" in options:
            words.insert(0, options.pop("model"))
        arguments, rest, more = self._parser(ctx, "argument").parse_args(["--", *words])
        return {**arguments, **options}, rest, [*order, *more]

    def _parser(self, ctx: Any, kind: str) -> Any:
        """One that knows the parameters of a kind alone."""
        part = copy.copy(self)
        part.params = [each for each in self.params if each.param_type_name == kind]
        return super(ModelCommand, part).make_parser(ctx)

    def invoke(self, ctx: Any) -> Any:
        """An error that advises a setting names the option of this command that takes it, if one
        does.
        """
        try:
            return super().invoke(ctx)
        except Settable as error:
            raise error.at(
                "--set" if any("--set" in part.opts for part in self.params) else None
            ) from error


MODEL_NAMES = ["--model", "-m"]
ModelOption = Annotated[
    Path, typer.Option(*MODEL_NAMES, help="The model file, such as pets.safecl.")
]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="The model file.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="The file to write.")]
Careful = Annotated[
    bool,
    typer.Option(
        "--careful",
        help="Look at each picture's mirror image as well: twice the time, more often right.",
    ),
]
Unknown = Annotated[
    float,
    typer.Option(min=0, max=0.99, help="Most known pictures to call unknown, a share; 0: none."),
]
Device = Annotated[
    Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="auto: the best there is.")
]
Precision = Annotated[
    Literal["auto", "fp32", "bf16"],
    typer.Option(help="Of the networks; auto: bf16 on GPUs that have it."),
]
Page = Annotated[Path | None, typer.Option(help="Write an HTML page.")]


def opened(path: Path) -> "ModelFile":
    """The model file at ``path``; what is none is answered before torch is imported."""
    from safecl.classifier.modelfile.store import ModelFile

    return ModelFile(path)


def learn(
    folder: Annotated[
        str, typer.Argument(help="One folder of pictures per class, or tar shards; or a CSV table.")
    ],
    model: ModelOption,
    backbone: Annotated[
        str | None,
        typer.Option(help="micro (the default), tiny, small, base, large; a timm name; auto."),
    ] = None,
    prefer: Annotated[
        Literal["accuracy", "speed"] | None,
        typer.Option(help="What --backbone auto goes by; accuracy if not given."),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="How it learns; safe if not given (safecl methods).")
    ] = None,
    pet: Annotated[
        str | None, typer.Option(help="Kind of tuning: ssf (the default), adapter, lora, …")
    ] = None,
    memory: Annotated[
        Literal["statistics", "features"] | None,
        typer.Option(help="features: can forget a class completely, and merge exactly."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the pictures; chosen if not given.")
    ] = None,
    keep: Annotated[
        int | None, typer.Option(min=0, help="Last steps that can be rolled back; 3 if not given.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of everything random; 0 if not given.")
    ] = None,
    thumbnails: Annotated[
        bool, typer.Option("--thumbnails", help="Keep two small pictures of each class.")
    ] = False,
    name: Annotated[
        str | None, typer.Option(help="A name for this session; the folder's if not given.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also pictures that were learned before.")
    ] = False,
    tune: Annotated[
        bool, typer.Option("--tune", help="Tune the network, also where that does not pay.")
    ] = False,
    no_tune: Annotated[bool, typer.Option("--no-tune", help="Tune nothing.")] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting, e.g. train.lr=0.02.")
    ] = None,
    device: Device = "auto",
    precision: Precision = "auto",
    quiet: Quiet = False,
) -> None:
    """Teach a model the pictures of a folder: makes MODEL, or adds to it. No old pictures are
    needed.

    MODEL answers before anything is tuned. A stop or a failure leaves it so, or as it was; the same
    command resumes where it was stopped.

    Example:  safecl learn photos/monday --model pets.safecl
    """
    from safecl.classifier.modelfile.place import check_path
    from safecl.classifier.seen import check_folder, is_being_made
    from safecl.configure.words import parse_words

    settings = parse_words(set_ or [])
    # seen before anything heavy is imported
    if not folder or not Path(folder).expanduser().exists():
        raise SafeclError("command.learn.no-folder", folder=folder)
    check_path(model)
    file = opened(model) if model.expanduser().exists() else None
    if file is not None and settings and not is_being_made(file):
        raise SafeclError("command.learn.set-idle", model=model)
    if tune and no_tune:
        raise SafeclError("command.learn.tune-twice")
    if nothing := check_folder(Path(folder).expanduser(), file, again):
        say(nothing)
        return
    from safecl.classifier.classifier import learn_file
    from safecl.cli.answer_words import answer_line, lesson_lines
    from safecl.engine.progress import make_progress

    progress = make_progress("quiet" if quiet else "auto")
    try:
        lesson, classifier = learn_file(
            folder,
            model,
            progress,
            tune="always" if tune else "never" if no_tune else "auto",
            ready=lambda first, made: progress.say(answer_line(first, len(made.classes_), model)),
            name=name,
            again=again,
            device=device,
            precision=precision,
            backbone=backbone,
            prefer=prefer,
            method=method,
            pet=pet,
            memory=memory,
            epochs=epochs,
            keep=keep,
            seed=seed,
            settings=settings or None,
            thumbnails=thumbnails or None,
        )
    except Settable as error:
        raise (
            error if file is None else error.at(None)
        ) from error  # a model that is there has its settings
    for line in lesson_lines(lesson, len(classifier.classes_), model):
        say(line)


def predict(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE|FOLDER…", help="Pictures; -: see above.")
    ] = None,
    *,
    model: ModelOption,
    unknown: Unknown = 0.05,
    sets: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Also the smallest set of classes that holds the right one in so many, e.g. 0.9.",
        ),
    ] = None,
    careful: Careful = False,
    form: Annotated[
        Literal["table", "jsonl", "csv"], typer.Option("--format", "-f", help="Of the answers.")
    ] = "table",
    explain: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="A new folder for heat maps; also says what each learner answers.",
        ),
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Read an ONNX file also if another program changed it.")
    ] = False,
    device: Device = "auto",
    precision: Precision = "auto",
) -> int:
    """Say what is on pictures: of files, of folders, or, with -, of each line of standard input as
    soon as it is there.

    Example:  safecl predict new/ --model pets.safecl   or   find . -name '*.jpg' | safecl predict -
    -m pets.safecl
    """
    if not files:
        raise SafeclError("command.predict.no-picture")
    from safecl.cli.answer_words import predict_all

    if model.suffix.lower() == ".onnx":
        if explain is not None or careful or precision != "auto":
            raise SafeclError("command.predict.exported", model=model)
        from safecl.runtime.model import ExportedModel

        exported = ExportedModel(model, device=device, trust=trust)
        return predict_all(files, exported, model, unknown, form, None, sets)
    if trust:
        raise SafeclError("command.predict.trust-idle", model=model)
    file = opened(model)
    with at_work(f"Opening {model}"):
        from safecl.classifier.answers.snapshot import Snapshot

        now = Snapshot.open(file, device, precision).carefully(careful)
    if explain is None:
        return predict_all(files, now, model, unknown, form, None, sets)
    from safecl.classifier.answers.explain import Explanations

    maps = Explanations(explain, now, model.name)
    code = predict_all(files, now, model, unknown, form, maps.add, sets)
    say(f"Wrote {maps.finish()}.", err=True)
    return code


def evaluate(
    folder: Annotated[
        str, typer.Argument(help="One folder of pictures per class; classes may be unknown ones.")
    ],
    model: ModelOption,
    unknown: Unknown = 0.05,
    careful: Careful = False,
    json_: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    page: Page = None,
    force: Force = False,
    device: Device = "auto",
) -> None:
    """Measure a model on labelled pictures: accuracy, calibration of its probabilities, unknown
    classes.

    Example:  safecl eval photos/test --model pets.safecl
    """
    file = opened(model)
    check_page(page, force)
    from safecl.classifier.answers import snapshot
    from safecl.classifier.answers.enough import promise_text
    from safecl.classifier.answers.page import write_page
    from safecl.classifier.answers.photographs import photographs
    from safecl.classifier.data import hashes, labelled
    from safecl.classifier.modelfile.history import check_labels
    from safecl.classifier.seen import learned_by
    from safecl.report.table import make_table, print_table
    from safecl.report.words import size
    from safecl.streams.pictures.find import printable

    pictures, name = labelled(folder, only="test")
    check_labels(file.header["classes"], pictures.labels, name)
    with at_work(f"Asking {model}"):
        found, judged = snapshot.evaluate(
            snapshot.Snapshot.open(file, device).carefully(careful), pictures, unknown
        )
    known = set() if file.header["frozen"] else learned_by(file).keys()
    found["folder"] = printable(folder)
    found["learned"] = (
        None if file.header["frozen"] else sum(mark in known for mark in hashes(pictures).tolist())
    )
    if page is not None:
        write_page(file, page, (found, photographs(pictures, judged, found)), force=force)
    if json_:
        print_json(found)
        return
    if found["accuracy"] is not None:
        say(f"Accuracy {100 * found['accuracy']:.1f} % on {counted(found['pictures'], 'picture')}.")
        if found["learned"]:
            these = f"{found['learned']:,} of {len(pictures):,} pictures were learned by the model"
            say(
                f"Note: {these}, so this says little about new pictures; safecl inspect tells what"
                " to expect of these."
            )
        if found["error"] is not None:
            say(
                f"Calibration error {found['error']:.3f}: how far 'how sure' and 'how often right'"
                " are apart."
            )
        if found["false_alarms"] is not None:
            false = 100 * found["false_alarms"]
            promise = promise_text(file.header["calibration"], unknown) if unknown else "as asked"
            say(f"{false:.1f} % of them are called unknown ({promise}); their best class counts.")
    if found["found"] is not None:
        strange = counted(found["unknown_pictures"], "picture")
        say(
            f"{strange} of classes that the model does not know: {100 * found['found']:.1f} % are"
            " called unknown."
        )
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
    json_: Annotated[
        bool, typer.Option("--json", help="All that the file says of itself.")
    ] = False,
) -> None:
    """Say what a model knows: classes, when each was learned and from how many pictures, sizes,
    history.

    Example:  safecl inspect pets.safecl   or   safecl inspect pets.safecl --page pets.html
    """
    from safecl.classifier.answers.page import write_page
    from safecl.classifier.answers.tables import (
        advice,
        choice_table,
        class_table,
        history_table,
    )
    from safecl.report.table import print_table

    if json_ and page is not None:
        raise SafeclError("command.inspect.json-and-page")
    file = opened(model)
    check_page(page, force)
    if json_:
        print_json(file.header, indent=1)
    elif page is not None:
        say(f"Wrote {write_page(file, page, force=force)}.")
    else:
        console = make_console()
        print_facts(console, facts(file))
        console.print()
        if choice := file.header.get("choice"):
            print_table(console, choice_table(choice))
        print_table(console, class_table(file.header), drop=("learned in",))
        for sentence in advice(file.header):
            print_sentence(console, sentence)
        console.print()
        estimated = any(entry.get("accuracy") is not None for entry in file.header["history"])
        caption = (
            "accuracy: leave-one-out, each picture judged without it; the mean over classes"
            if estimated
            else ""
        )
        print_table(console, history_table(file.header), drop=("seconds", "date"), caption=caption)


def prepared(header: "Header") -> str:
    """How a picture becomes an input of the backbone."""
    crop = header["transform"]
    size = crop["size"]
    resize = int(size * crop["margin"] + 1e-6)
    told = f"shorter side to {resize} px (bicubic), the central {size} × {size}"
    mean, std = (header["backbone"].get(key) for key in ("mean", "std"))
    if mean and std:
        numbers = (" ".join(f"{one:g}" for one in each) for each in (mean, std))
        told += ", less {} over {} by colour".format(*numbers)
    return told


def facts(file: "ModelFile") -> list[tuple[str, str]]:
    """What ``inspect`` says first: lines of a key and what there is."""
    from safecl.classifier.answers.enough import accuracy_text, unknown_text
    from safecl.classifier.modelfile.history import counts, steps_back
    from safecl.classifier.settings import resolve
    from safecl.report import words

    header = file.header
    settings = file.header["settings"]
    pet = settings["method"].get("pet", {}).get("kind")
    how = f" with {pet}" if pet else ""
    how = how if header.get("tuned", True) else ", untuned"
    calibration = header["calibration"]
    backbone = header["backbone"]
    pictures = sum(counts(header).values())
    undo = len(steps_back(header))
    told = "no: too few pictures, or the method cannot leave learned pictures out"
    if calibration and calibration["temperature"] is not None:
        told = (
            f"temperature {calibration['temperature']:.2f}, calibration error"
            f" {calibration['error']:.3f} on "
        )
        told += f"{counted(calibration['pictures'], 'picture')}, each left out in turn"
    accuracy = (
        f"{accuracy_text(calibration)}: leave-one-out, the mean over classes"
        if calibration
        else words.NONE
    )
    strange = words.NONE
    if calibration and calibration["temperature"] is not None:
        strange = unknown_text(calibration)
    answering = resolve(settings).answering(header.get("tuned", True))
    kept = answering.kept_of_pictures
    if size := header.get("memory_bytes"):
        kept += f", {words.size(size)}"
    kept += (
        "; thumbnails of two pictures of each class"
        if settings.get("thumbnails") and not header["frozen"]
        else ""
    )
    back = f"; {counted(undo, 'step')} can be rolled back" if undo else ""
    return [
        ("model", f"{file.path}, {words.size(file.size)}{' (frozen)' if header['frozen'] else ''}"),
        ("classes", f"{len(header['classes'])}, learned from {counted(pictures, 'picture')}"),
        ("method", settings["method"]["name"] + how),
        (
            "backbone",
            f"{backbone['name']} at {backbone['size']} px, weights {backbone['weights'][:12]}…",
        ),
        ("licence", f"{backbone.get('licence', words.NONE)} (of the backbone's weights)"),
        ("pictures", prepared(header)),
        ("accuracy", accuracy),
        ("calibrated", told),
        ("unknown", strange),
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
    from safecl.classifier.modelfile.history import as_label, renamed

    change(
        model,
        lambda classifier: classifier.rename(old, new),
        lambda header: renamed(header, old, as_label(header, new)),
    )


def change(
    model: Path,
    how: Callable[["ContinualClassifier"], str],
    check: "Callable[[Header], object] | None" = None,
) -> None:
    """Change the model in a file, which is locked meanwhile, and say what ``how`` gives.

    ``check`` refuses what its header rules out before anything heavy is imported; given where no
    picture is seen.
    """
    with locked(model) as file:
        if check is not None:
            check(opened(file).header)
        with at_work(f"Changing {model}"):
            from safecl.classifier.classifier import ContinualClassifier

            classifier = ContinualClassifier.load(file, device="auto" if check is None else "cpu")
            said = how(classifier)
            classifier.save(file)
    say(said)


def forget(
    model: ModelArgument, label: Annotated[str, typer.Argument(metavar="CLASS", help="The class.")]
) -> None:
    """Remove a class from a model, and say what stays of it. Earlier sessions cannot be rolled back
    after that.

    Example:  safecl forget pets.safecl hamster
    """
    from safecl.classifier.modelfile.history import find

    change(model, lambda classifier: classifier.forget(label), lambda header: find(header, label))


def rollback(model: ModelArgument) -> None:
    """Take the last session or correction back: the model answers as it did before.

    Example:  safecl rollback pets.safecl
    """
    from safecl.classifier.modelfile.history import check_rollback

    change(model, lambda classifier: classifier.rollback(), check_rollback)


def merge(
    one: Annotated[Path, typer.Argument(metavar="A", help="A model.")],
    other: Annotated[
        Path, typer.Argument(metavar="B", help="Another one that began with the same session.")
    ],
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
    """Make a model of a run: it answers as the run does, and goes on learning. The run's pictures
    are read again.

    Example:  safecl export-run runs/demo/safe --model glyphs.safecl
    """
    from safecl.classifier.modelfile.place import replaceable

    replaceable(model, force)
    if not (run / "summary.json").is_file():
        raise SafeclError("command.export-run.unfinished", run=run)
    from safecl.backbone.licences import terms
    from safecl.classifier.teach import model_of_run
    from safecl.experiments.config import load
    from safecl.experiments.launch import build

    made = model_of_run(run, *build(load(str(run / "resolved.yaml")))[:3], say)
    made.save(model, force=force)
    about = made.header["backbone"]
    if told := terms(about["name"], about["licence"]):
        say(f"Note: {told}")
    say(f"{model} knows {counted(len(made.classes), 'class')}.")


def _check_out(out: Path, force: bool, *sources: Path) -> None:
    """Refuse sources that are no models, and to write over one of them or over what may not be
    replaced.
    """
    from safecl.classifier.modelfile.place import replaceable

    for source in sources:
        if out.expanduser().resolve() == opened(source).path.resolve():
            raise SafeclError("command.out.same-file", out=out)
    replaceable(out, force)
