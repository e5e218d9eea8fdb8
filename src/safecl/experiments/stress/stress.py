"""Presets through every scenario: runs in a folder each, tables, a figure and a page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from safecl.configure.words import flat, parse_words
from safecl.engine.progress import Progress
from safecl.errors import SafeclError, unknown
from safecl.experiments.config import RunSettings, presets
from safecl.experiments.launch import build, launch
from safecl.experiments.stress.scenarios import EVERY, Base, Scenario
from safecl.experiments.sweep.plan import check_keys, resolve_cell
from safecl.report import stress as report
from safecl.report.runs import read_run
from safecl.streams import recut
from safecl.streams.pictures.images import Pictures
from safecl.streams.stream import Stream, in_sizes

Scale: TypeAlias = Literal["small", "full"]
METRICS = ("plasticity", "strangers", "auc_seconds")
# beside which every method is shown: one that tunes in the first session alone, and the backbone as
# it is
BESIDE = ("ranpac", "ranpac-no-pet")
# of everything of the small scale: minutes on two cores
SMALL: dict[str, Any] = {
    "stream.kind": "glyphs",
    "stream.classes": 30,
    "stream.sessions": 1,  # in one style; scenarios cut it
    "stream.train": 20,
    "stream.test": 10,
    "train.epochs": 3,
    "train.later_epochs": None,
    "train.batch_size": 16,
    "train.lr": 0.05,
    "ridge.size": 1000,
}
CLASSES = 40  # at most, of a stream of the user at the small scale
TRAIN = 20  # pictures of each class there
TEST = 10


@dataclass(frozen=True)
class Plan:
    """What is run: settings by preset and scenario, and the folder of everything."""

    folder: Path
    scale: Scale
    scenarios: list[Scenario]
    settings: dict[str, dict[str, RunSettings]] = field(default_factory=dict)


class Made(NamedTuple):
    """The results, the page and the table's file, and what was not run, in words."""

    results: list[report.Result]
    files: list[Path]
    left_out: list[str]


def make_plan(
    names: Sequence[str],
    words: Sequence[str],
    folder: Path,
    scale: Scale = "small",
    only: Sequence[str] = (),
) -> Plan:
    """Every run, checked before the first begins; ``only``: the names of some scenarios."""
    known = [one.name for one in EVERY]
    for name in only:
        if name not in known:
            raise unknown("scenario", name, known)
    for name in names:
        if name not in presets():
            raise unknown("preset", name, presets())
    given = flat(parse_words(words))
    check_keys([given], "the command")
    if scale == "full" and not any(key.partition(".")[0] == "stream" for key in given):
        raise SafeclError("stress.full.no-stream")
    own = any(key in given for key in ("stream", "stream.kind"))
    base = dict(SMALL) if scale == "small" else {}
    if own:  # what holds for drawn characters alone
        base = {key: value for key, value in base.items() if not key.startswith("stream.")}
    base |= {"metrics": list(METRICS), **given}
    chosen = [one for one in EVERY if not only or one.name in only]
    plan = Plan(folder, scale, chosen)
    used: set[str] = set()
    for preset in dict.fromkeys((*names, *BESIDE)):
        plan.settings[preset] = {
            one.name: resolve_cell(base, [], {"preset": preset, **one.settings}, used).settings
            for one in chosen
        }
    if idle := sorted(given.keys() - used):
        raise SafeclError("stress.words.idle", keys=", ".join(idle))
    return plan


def run_stress(
    plan: Plan,
    progress: Progress,
    command: str = "",
    say: Callable[[str], None] = lambda line: None,
) -> Made:
    """Run what is not done, and write table and page; the same call resumes."""
    first = next(iter(plan.settings.values()))
    settings = next(iter(first.values()))
    backbone, stream, *_ = build(settings)
    if plan.scale == "small":
        stream = smaller(stream, settings.seed)
    base = Base(stream, backbone, settings.seed)
    side = {"image_size": backbone.size}  # of all runs, whatever pictures a scenario keeps
    results: list[report.Result] = []
    left_out: list[str] = []
    for one in plan.scenarios:
        changed = one.make(base)
        if changed is None:
            left_out.append(f"{one.title}: there are only {len(stream.labels)} classes")
            continue
        for preset, every in plan.settings.items():
            place = plan.folder / one.name / preset
            mine = every[one.name]
            sized = mine.model_copy(update={"backbone": mine.backbone.model_copy(update=side)})
            say(f"{one.title}: {preset}")
            try:
                launch(sized, place, progress, command=command, stream=changed)
            except SafeclError as error:
                left_out.append(f"{one.title}, {preset}: {error}")
                continue
            results.append(report.result(one.name, one.title, preset, read_run(place)))
    files = report.write_all(plan.folder, results, left_out, about(plan, base), command)
    return Made(results, files, left_out)


def smaller(stream: Stream, seed: int) -> Stream:
    """Some classes and some pictures of each, in one session; it is cut later."""
    labels = stream.labels[:CLASSES]
    kept = set(labels)
    random = Base.drawing(seed, "small")

    def some(pictures: Pictures, count: int) -> Pictures:
        inside = [i for i, label in enumerate(pictures.labels) if label in kept]
        return recut.few(pictures.subset(inside), count, random)

    train, test = stream.pictures
    parts = in_sizes(some(train, TRAIN), some(test, TEST), labels, [len(labels)])
    return stream.recut(parts, "class")


def about(plan: Plan, base: Base) -> str:
    train, test = base.stream.pictures
    return (
        f"{base.stream.name}: {len(base.stream.labels)} classes, {len(train)} training and"
        f" {len(test)} test pictures · backbone {base.backbone.name} · seed {base.seed} ·"
        f" {plan.scale} scale"
    )
