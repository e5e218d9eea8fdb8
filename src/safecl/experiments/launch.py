"""From settings to a finished run: what stands behind ``safecl run`` and ``safecl.run``."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from safecl.backbone import micro
from safecl.backbone.backbone import Backbone
from safecl.backbone.load import load_backbone
from safecl.backbone.settings import BackboneSettings
from safecl.engine.device import choose_precision, make_accelerator
from safecl.engine.progress import Progress, Show, make_progress
from safecl.engine.run import run as run_method
from safecl.errors import SafeclError
from safecl.experiments.config import RunSettings, load, run_name
from safecl.lines import counted, plain
from safecl.methods.catalog import make_method
from safecl.report.sentences import results
from safecl.settings import flatten
from safecl.streams.catalog import open_stream, read, seeded
from safecl.streams.collection import Collection
from safecl.streams.settings import GlyphsSettings, StreamSettings
from safecl.streams.stream import Stream

MIN_TEST_PICTURES = 5  # per class, below which its accuracy is rough


@dataclass(frozen=True, repr=False)
class Result:
    """A finished run: its ``folder``, its ``page``, and its numbers (``summary``, of summary.json),
    each by output.
    """

    folder: Path
    page: Path
    summary: dict[str, Any]

    @property
    def final(self) -> dict[str, float | None]:
        """Accuracy on all test pictures after the last session; None where there is no test
        picture.
        """
        return dict(self.summary["final"])

    @property
    def average(self) -> dict[str, float | None]:
        """The mean over sessions of the accuracy after each."""
        return dict(self.summary["average"])

    def __repr__(self) -> str:
        return "\n".join(
            [*map(plain, results(self.folder)), f"folder: {self.folder}", f"page: {self.page}"]
        )


def run(
    preset: str = "safe",
    *words: str,
    stream: Stream | str | None = None,
    folder: str | Path | None = None,
    fresh: bool = False,
    show: Show = "auto",
    **settings: Any,
) -> Result:
    """Run a method over a stream, as ``safecl run`` does; the same call again resumes it.

    ``preset``: a preset or a YAML file. ``words``: settings as on the command line,
    ``"train.epochs=5"``. ``settings``: the same by name, ``pet="adapter"``, ``train={"epochs":
    5}``. ``stream``: one of ``from_arrays``, ``from_torch``, ``open_stream`` and the like, or a
    short form such as ``"folder:photos"``. ``folder``: where the run is kept; below runs/ if not
    given. ``fresh``: forget what the folder holds. ``show``: ``"quiet"`` says nothing.
    """
    from safecl.report.page import write_page  # matplotlib, which the workers of a sweep do without

    given = stream if isinstance(stream, Stream) else None
    if isinstance(stream, str):
        settings["stream"] = stream
    unused = [
        key for key in (*words, *settings) if key.partition("=")[0].partition(".")[0] == "stream"
    ]
    if given is not None and unused:
        raise SafeclError("run.stream.open", key=unused[0])
    chosen = load(preset, words, settings)
    place = Path(
        folder or Path("runs") / run_name(chosen, chosen.preset, given.name if given else "")
    )
    summary = launch(chosen, place, make_progress(show), fresh=fresh, stream=given)
    name = given.name if given else chosen.stream.title
    page = write_page([place], place / "report.html", f"{chosen.method.title} on {name}")
    return Result(place, page, summary)


def build(
    settings: RunSettings,
    stream: Stream | None = None,
    *,
    pictures: Callable[[StreamSettings], Collection] = read,
    weights: Callable[[BackboneSettings], Backbone] = load_backbone,
) -> tuple[Backbone, Stream, dict[str, Any], list[str]]:
    """Backbone, ``stream`` or that of the settings, the settings with what the pictures decide, and
    what to say.
    """
    sentences = []
    drawn = isinstance(settings.stream, GlyphsSettings)  # at the embedded backbone's own size
    data = (
        pictures(seeded(settings.stream, settings.seed)) if stream is None and not drawn else None
    )
    shown = data.train if data is not None else stream
    if shown is not None:
        chosen, told = micro.sized(settings.backbone, shown.shorter_side)
        settings = settings.model_copy(update={"backbone": chosen})
        sentences += [told] if told else []
    backbone = weights(settings.backbone)
    resolved = settings.model_dump(mode="json")
    if stream is None:
        stream = open_stream(
            settings.stream,
            size=backbone.size,
            margin=backbone.margin,
            seed=settings.seed,
            data=data,
        )
    else:
        stream = stream.copy(backbone.size)
        # no file can name it: it is refused there
        resolved["stream"] = {
            "kind": "python",
            "name": stream.name,
        }
    sentences += announce(stream)
    own = settings.stream
    seed = getattr(own, "order_seed", None)
    if (
        stream.protocol != "class"
        and seed is not None
        and seed != type(own).model_fields["order_seed"].default
    ):
        sentences.append(
            f"Note: stream.order_seed={seed} has no effect where stream.protocol is"
            f" {stream.protocol}."
        )
    return backbone, stream.joint() if settings.method.joint else stream, resolved, sentences


def launch(
    settings: RunSettings,
    folder: Path,
    progress: Progress | None = None,
    *,
    command: str = "",
    trackers: Sequence[str] = (),
    fresh: bool = False,
    stream: Stream | None = None,
) -> dict[str, Any]:
    """Build what ``settings`` name and run it in ``folder``; gives the summary.

    ``command``: noted in its facts. ``trackers``: of experiments, to which the numbers go as well.
    ``fresh``: forget the run that the folder holds. ``stream``: in place of the one that the
    settings name.
    """
    accelerator = make_accelerator(settings.device, trackers, folder)
    progress = progress if progress is not None and accelerator.is_main_process else Progress()
    backbone, stream, resolved, sentences = build(settings, stream)
    backbone = backbone.to(
        accelerator.device, choose_precision(settings.precision, accelerator.device)
    )
    method = make_method(settings.method, backbone, settings.seed)
    for sentence in sentences:
        progress.say(sentence)
    # Only now is the folder touched: settings that name nothing leave none behind.
    named = {
        "preset": settings.preset,
        "pet": settings.pet,
        "precision": str(backbone.dtype).removeprefix("torch."),
    }
    if trackers:
        flat = flatten(resolved).items()
        simple = {
            key: value if isinstance(value, str | int | float) else str(value)
            for key, value in flat
        }
        accelerator.init_trackers("safecl", {"folder": folder.name, **simple})
    try:
        return run_method(
            method,
            stream,
            folder,
            accelerator=accelerator,
            train=settings.train,
            seed=settings.seed,
            progress=progress,
            settings=resolved,
            facts={"command": command, **named},
            fresh=fresh,
            metrics=settings.metrics,
        )
    finally:
        for each in accelerator.trackers:
            each.finish()


def announce(stream: Stream) -> Iterator[str]:
    """How ``stream`` is cut into sessions, and what will make its numbers rough."""
    yield f"{stream.name}: {cut(stream)}."
    labels = stream.labels
    if len(labels) == 1:
        yield (
            f"Note: there is a single class, {labels[0]!r}, so every answer will be right; add"
            " another class."
        )
    parts = range(1, len(stream.test_parts) + 1)
    tested = Counter(label for part in parts for label in stream.test(part).labels)
    few = sorted(
        (tested[label], str(label)) for label in labels if tested[label] < MIN_TEST_PICTURES
    )
    if few and not tested:
        yield (
            "Note: no class has a test picture, so there will be no accuracy; a class needs at"
            " least two pictures."
        )
    elif few:
        least = f"{few[0][1]!r} has {counted(few[0][0], 'test picture')}"
        share = (
            f"{len(few)} of {len(labels)} classes have fewer than {MIN_TEST_PICTURES} test pictures"
        )
        yield f"Note: {share} ({least}), so accuracies will be rough."


def cut(stream: Stream) -> str:
    """The sessions in words: "12 classes in 6 sessions of 2", "196 classes in 10 sessions of 16 and
    9 × 20".
    """
    classes = counted(len(stream.labels), "class", "classes")
    sizes = [len(labels) for _, labels in stream.sessions]
    if len(sizes) == 1:
        return f"{classes} in 1 session"
    if stream.protocol != "class":
        kind = "the same in each" if stream.protocol == "domain" else "known and new ones in each"
        return (
            f"{classes}, {kind} of {len(sizes)} sessions:"
            f" {', '.join(name for name, _ in stream.sessions)}"
        )
    runs = [(size, len(list(some))) for size, some in groupby(sizes)]
    *first, last = [
        f"{count} × {size}" if count > 1 and len(runs) > 1 else str(size) for size, count in runs
    ]
    return (
        f"{classes} in {len(sizes)} sessions of {', '.join(first)}{' and ' if first else ''}{last}"
    )
