"""Seconds of a session of each method, against what SAFE takes for as many network passes.

    python benchmarks/methods.py  # the embedded backbone, glyphs
    python benchmarks/methods.py --weights vit_tiny_augreg.safetensors --pictures cifar100_50x10 \
        --methods all
        --classes 10 --sessions 3 --epochs 5 --out methods_h200.csv

A session is what ``engine.learn`` does: training, features, statistics and heads, with checkpoints
of its phases, and without the evaluation. Pictures lie in memory at the size they are cropped from.
All methods have the same epochs and batch size, the rest is as their presets say. The last session
is learned once to warm up and to count, then ``--times`` times from the same state; the fastest
counts. Joint training has one session, of all pictures.

A pass is as many operations as a forward pass of the bare backbone takes for one picture: the
operations (by the formulas of torch.utils.flop_counter, which has none for attention on the CPU) of
the training steps and of all other calls of the network, divided by those of such a pass. A step is
counted in its first, plain call for each shape of its inputs; replays of a CUDA graph do the same
work. Work without the network (ridge regressions, k-means) takes time and counts no pass.

``ratio``: seconds over what SAFE takes for as many passes, by the line through SAFE's own session
with the given number of epochs and with twice as many; its intercept is the work that does not grow
with the passes. ``per_pass``: seconds per pass over those of SAFE. ``training_ratio``: the same for
the training phases alone. ``learnable`` counts heads too.
"""

import argparse
import csv
import gc
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from accelerate import Accelerator
from speed import now
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from torchvision.transforms import functional as TF

from safecl.backbone.backbone import Backbone
from safecl.backbone.load import load_backbone
from safecl.backbone.settings import EMBEDDED
from safecl.configure.sentences import keys
from safecl.engine.cuda_graph import CudaGraph, Values
from safecl.engine.device import choose_precision, make_accelerator
from safecl.engine.facts import hardware
from safecl.engine.fit import Trainer
from safecl.engine.learn import learn
from safecl.engine.progress import Progress
from safecl.engine.train_phase import Phase
from safecl.errors import SafeclError
from safecl.experiments.config import RunSettings, load, presets
from safecl.methods.catalog import make_method, method_settings
from safecl.methods.method import Method, restore
from safecl.streams.catalog import open_stream
from safecl.streams.pictures.images import ArrayPictures
from safecl.streams.stream import Part, Stream

LIMIT = 1.5
# besides every method that has a preset of its name
ALSO = (
    "finetune-full",
    "joint-linear",
    "joint-full",
)
COLUMNS = (
    "method",
    "seconds",
    "training",
    "passes",
    "training_passes",
    "ms_per_1000",
    "ratio",
    "per_pass",
    "training_ratio",
    "graph",
    "learnable",
    "bytes_kept",
    "note",
)


class Operations(TorchDispatchMode):
    """Counts the operations of matrix products and attention, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.total += int(formula(*args, **(kwargs or {}), out_val=result))
        return result


@dataclass
class Steps:
    """One attempt at a training phase: its operations, the input shapes it recorded, why it
    recorded none.
    """

    session: int
    phase: str
    operations: int = 0
    recorded: int = 0
    cause: str = ""


@dataclass
class Meter:
    """What the network computes. ``others``: operations of the network outside training steps."""

    counting: bool = False
    stepping: bool = False
    others: int = 0
    steps: list[Steps] = field(default_factory=list)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """The backbone's passes are noted here."""
        with patch.object(Backbone, "tokens", self.metered_tokens(Backbone.tokens)):
            yield

    def metered_tokens(self, tokens: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def metered(*inputs: Any, **options: Any) -> Tensor:
            if self.stepping or not self.counting:
                return tokens(*inputs, **options)
            with Operations() as counted:
                result = tokens(*inputs, **options)
            self.others += counted.total
            return result

        return metered


class MeteredGraph(CudaGraph):
    """A step whose operations are counted in its first call for each shape of its inputs, which is
    a plain one.
    """

    def __init__(
        self,
        meter: Meter,
        function: Callable[..., Values],
        device: torch.device,
        on: bool,
        say: Any,
    ) -> None:
        super().__init__(function, device, on, say)
        self.meter = meter
        self.note = meter.steps[-1]
        self.counts = dict[Any, int]()
        if not self.on:
            self.note.cause = (
                "no CUDA device" if device.type != "cuda" else "the method asks for plain steps"
            )

    def __call__(self, *inputs: Tensor) -> Values:
        shapes = tuple(x.shape for x in inputs)
        self.meter.stepping = True
        try:
            if not self.meter.counting or shapes in self.counts:
                values = super().__call__(*inputs)
            else:
                with Operations() as counted:
                    values = super().__call__(*inputs)
                self.counts[shapes] = counted.total
        finally:
            self.meter.stepping = False
        self.note.operations += self.counts.get(shapes, 0)
        self.note.recorded = len(self._recorded)
        return values

    def _give_up(self, error: RuntimeError) -> None:
        super()._give_up(error)
        self.note.cause = str(error.__context__ or error).splitlines()[0]


class MeteredTrainer(Trainer):
    """The engine's trainer, whose attempts at a phase and their steps a meter notes."""

    def __init__(self, meter: Meter, *inputs: Any) -> None:
        self.meter = meter
        super().__init__(*inputs, graph=partial(MeteredGraph, meter))

    def attempt(self, phase: Phase, *inputs: Any) -> str | None:
        self.meter.steps.append(Steps(self.session, phase.name))
        return super().attempt(phase, *inputs)


class Bench(NamedTuple):
    """What all methods share."""

    accelerator: Accelerator
    backbone: Backbone
    stream: Stream
    unit: float  # operations of a pass
    times: int

    @property
    def device(self) -> torch.device:
        return self.accelerator.device


@dataclass
class Measured:
    """The last session of a method: seconds, and passes, of the whole and of its training alone."""

    seconds: float
    training: float
    passes: float
    training_passes: float
    steps: list[Steps]
    facts: dict[str, int]


def measure(bench: Bench, settings: RunSettings, *epochs: int) -> list[Measured]:
    """The last session of a method, for each number of ``epochs`` in it."""
    stream = bench.stream.joint() if settings.method.joint else bench.stream.copy()
    method = make_method(settings.method, bench.backbone)
    early = Meter()
    with early.installed():
        for number in range(1, len(stream)):
            one_session(bench, method, stream, number, settings, early)
    state = {name: value.detach().clone() for name, value in method.state_dict().items()}
    found = []
    for count in epochs:
        train = settings.train.model_copy(update={"epochs": count, "later_epochs": count})
        chosen = settings.model_copy(update={"train": train})
        best = (float("inf"), 0.0)
        for attempt in range(1 + bench.times):
            again = make_method(settings.method, bench.backbone)
            if method.sessions:
                restore(again, state, method.classes)
            meter = Meter(counting=not attempt)
            with meter.installed():
                times = one_session(bench, again, stream.copy(), len(stream), chosen, meter)
            if attempt:
                best = min(best, times)
            else:
                counted = meter
                facts = again.facts()
        operations = sum(steps.operations for steps in counted.steps)
        passes = (operations + counted.others) / bench.unit
        steps = [*early.steps, *counted.steps]
        found.append(Measured(*best, passes, operations / bench.unit, steps, facts))
    return found


def one_session(
    bench: Bench, method: Method, stream: Stream, number: int, settings: RunSettings, meter: Meter
) -> tuple[float, float]:
    """Learn it as a run does; seconds of the whole and of its training phases."""
    with tempfile.TemporaryDirectory() as folder:
        shared = settings.train, stream.transform, 0, Progress(), Path(folder)
        fit = MeteredTrainer(meter, bench.accelerator, method, *shared)
        session = stream.open(number)
        gc.collect()
        began = now(bench.device)
        learn(method, session, fit)
        return now(bench.device) - began, sum((phase["seconds"] for phase in fit.phases), 0.0)


def operations_of_pass(backbone: Backbone, pictures: int = 8) -> float:
    """of a forward pass of the bare backbone, per picture."""
    images = torch.zeros(pictures, 3, backbone.size, backbone.size, device=backbone.device)
    with Operations() as counted, torch.no_grad():
        backbone.features(images)
    return counted.total / pictures


def stream_in_memory(pictures: str, size: int, classes: int, sessions: int, each: int) -> Stream:
    """A class-incremental stream whose plain views and canvases are cut from arrays."""
    if pictures == "glyphs":
        source = open_stream(
            pictures, size=size, classes=classes * sessions, sessions=sessions, train=each, test=1
        )
    else:
        source = open_stream(
            f"folder:{pictures}", size=size, first=classes, step=classes, cache=False
        )
    if len(source) < sessions:
        raise SafeclError(
            "package.says",
            sentence=f"{pictures} has classes for {len(source)} sessions of {classes}, not"
            f" {sessions}.",
        )
    parts = []
    for number in range(1, sessions + 1):
        session = source.open(number)
        chosen = first_of_each(session.train.labels, each)
        labels = [session.train.labels[i] for i in chosen]
        arrays = np.stack(
            [square(session.train.decode(i), source.transform.resize) for i in chosen]
        )
        part = ArrayPictures(arrays, labels)
        parts.append(Part(session.name, session.classes, part, part.subset([0])))
    return Stream(source.name, parts, transform=source.transform)


def first_of_each(labels: Sequence[Any], each: int) -> list[int]:
    """The positions of the first pictures of every class, at most ``each``."""
    seen: dict[Any, int] = {}
    chosen = []
    for i, label in enumerate(labels):
        seen[label] = seen.get(label, 0) + 1
        if seen[label] <= each:
            chosen.append(i)
    return chosen


def square(image: Any, side: int) -> np.ndarray:
    """uint8 (side, side, 3): the shorter side resized, the centre cropped."""
    resized = TF.resize(image, [side], TF.InterpolationMode.BICUBIC)
    return np.asarray(TF.center_crop(resized, [side, side]), dtype=np.uint8)


def recording(steps: Sequence[Steps]) -> str:
    """Whether the training steps of a method were recorded as CUDA graphs; if not, which and
    why.
    """
    if not steps:
        return "no training"
    causes: dict[str, dict[str, None]] = {}
    for each in steps:
        if each.cause or not each.recorded:
            causes.setdefault(each.cause or "no shape of its inputs came twice", {})[each.phase] = (
                None
            )
    return (
        "; ".join(f"{cause} ({', '.join(phases)})" for cause, phases in causes.items())
        or "recorded"
    )


def row_of(name: str, found: Measured, safe: Sequence[Measured]) -> dict[str, Any]:
    """A line of the table; ``safe``: SAFE's session, and the one with twice the epochs, where it
    was measured.
    """
    row: dict[str, Any] = {
        "method": name,
        "seconds": found.seconds,
        "training": found.training,
        "passes": found.passes,
        "training_passes": found.training_passes,
        "ms_per_1000": 1e6 * found.seconds / found.passes,
        "graph": recording(found.steps),
        **found.facts,
    }
    attempts = [(each.session, each.phase) for each in found.steps]
    row["note"] = (
        "diverged, and began again at a tenth of the rate"
        if len(set(attempts)) < len(attempts)
        else ""
    )
    if safe:
        own = safe[0]
        row["ratio"] = found.seconds / seconds_for(found.passes, safe)
        row["per_pass"] = found.seconds / found.passes / (own.seconds / own.passes)
        if found.training_passes:
            each = found.training / found.training_passes
            reference = own.training / own.training_passes
            row["training_ratio"] = each / reference
    return row


def seconds_for(passes: float, safe: Sequence[Measured]) -> float:
    """What SAFE takes for so many passes: the line through its two sessions, which neither falls
    nor starts below 0.
    """
    one, two = safe
    slope = max((two.seconds - one.seconds) / (two.passes - one.passes), 0.0)
    if slope * one.passes > one.seconds:
        slope = one.seconds / one.passes
    return one.seconds + slope * (passes - one.passes)


def settings_of(preset: str, options: argparse.Namespace) -> RunSettings:
    """Those of the preset, with the common training and the ``key=value`` words that its method
    has.
    """
    method = load(preset).method
    words = [*options.words]
    if method.trains:
        words = [f"train.epochs={options.epochs}", f"train.later_epochs={options.epochs}", *words]
        words = [f"train.batch_size={options.batch}", *words] if options.batch else words
    known = {key for key in keys(RunSettings, method.name) if method.idle_outside(key) is None}
    return load(preset, [word for word in words if word.partition("=")[0] in known])


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def compare(
    bench: Bench, names: Sequence[str], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """A line for each method; SAFE comes first, and a method that fails says so in its line."""
    safe: list[Measured] = []
    rows: list[dict[str, Any]] = []
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS), flush=True)
    for name in ["safe", *(name for name in names if name != "safe")]:
        try:
            epochs = (options.epochs, 2 * options.epochs) if name == "safe" else (options.epochs,)
            found = measure(bench, settings_of(name, options), *epochs)
            safe = found if name == "safe" else safe
            row = row_of(name, found[0], safe)
        except Exception as error:  # the other methods are measured all the same
            traceback.print_exc()
            row = {
                "method": name,
                "note": f"failed: {type(error).__name__}: {' '.join(str(error).split())}",
            }
        rows.append(row)
        print(
            "| " + " | ".join(shown(row.get(column, "")) for column in COLUMNS) + " |", flush=True
        )
        if options.out:
            write_rows(rows, options.out)
    return rows


def write_rows(rows: Sequence[dict[str, Any]], file: Path) -> None:
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, COLUMNS)
        writer.writeheader()
        writer.writerows(
            {
                key: f"{value:.6g}" if isinstance(value, float) else value
                for key, value in row.items()
            }
            for row in rows
        )


def verdict(rows: Sequence[dict[str, Any]]) -> str:
    """Which methods are slower than allowed, which were not recorded, and which failed."""
    slow = [
        f"{row['method']} ({row['ratio']:.2f})" for row in rows if row.get("ratio", 0.0) > LIMIT
    ]
    plain = [
        row["method"]
        for row in rows
        if row.get("graph", "recorded") not in ("recorded", "no training")
    ]
    failed = [row["method"] for row in rows if row["note"].startswith("failed")]
    kinds = {
        f"slower than {LIMIT} × SAFE": slow,
        "not recorded as a CUDA graph": plain,
        "failed": failed,
    }
    return "\n".join(f"{kind}: {', '.join(members) or 'none'}" for kind, members in kinds.items())


def chosen_presets(text: str) -> list[str]:
    if text == "all":
        return [*(name for name in method_settings() if name in presets()), *ALSO]
    return text.split(",")


def main(words: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--weights", default=EMBEDDED, help="a weight file, or the name of a backbone"
    )
    parser.add_argument(
        "--pictures",
        default="glyphs",
        help="a folder with a train folder of class folders, or glyphs",
    )
    parser.add_argument("--methods", default="all", help="presets with commas between them")
    parser.add_argument("--classes", type=int, default=10, help="per session")
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--each", type=int, default=50, help="training pictures per class, at most")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument(
        "--batch", type=int, default=48, help="of all methods; 0: that of each preset"
    )
    parser.add_argument("--times", type=int, default=2, help="how often the last session is timed")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="the table as CSV, written anew after each method")
    parser.add_argument(
        "words", nargs="*", help="key=value words for the methods that have the key"
    )
    options = parser.parse_intermixed_args(words)
    accelerator = make_accelerator(options.device)
    device = accelerator.device
    backbone = load_backbone(options.weights).to(device, choose_precision("auto", device))
    stream = stream_in_memory(
        options.pictures, backbone.size, options.classes, options.sessions, options.each
    )
    bench = Bench(accelerator, backbone, stream, operations_of_pass(backbone), options.times)
    print(
        f"{hardware(device)}, torch {torch.__version__}; {backbone}; {stream}; epochs:"
        f" {options.epochs}, batches of {options.batch or 'their own'}; {bench.unit / 1e9:.2f}"
        " GFLOP a pass",
        flush=True,
    )
    rows = compare(bench, chosen_presets(options.methods), options)
    print(verdict(rows), flush=True)
    return rows


if __name__ == "__main__":
    main()
