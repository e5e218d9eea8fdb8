"""Accuracy of SAFE, its learners and RanPAC on one cell: a stream, a backbone, a PET and a seed.

    python benchmarks/cells.py --folder PICTURES --step 10 --each 200 --weights FILE --pet ssf \
        --seeds 0,1,2 \
        --out cells.jsonl method.answer.statistics=stale

PICTURES holds train|test/CLASS, or train|test/DOMAIN/CLASS with --protocol domain. The statistics
of old sessions change nothing that is trained, so one run of SAFE gives the accuracy of the fast
learner and of SAFE with statistics that are

    stale       as they were,
    gaussians   those of the slow learner, moved to where the fast one is by points of Gaussians,
    bound       computed anew from all pictures of all sessions, which no method may read again,

beside the slow learner, RanPAC on the same stream, a ridge head on the untuned backbone
("untuned"), and with the moved ones the paper's aggregations ("safe entropy", "safe add", "safe
max"). Every cell is one JSON line, accuracies in percent after the last session (--every N: after
every N sessions); "own" is what SAFE itself answered, "by test" has the pictures of each session
apart. "left out" has, before each later session, the leave-one-out errors on its pictures of a
ridge head on the backbone, the slow and the fast learner, which have not learned them; "first" has
the optimiser steps and seconds of the first session, SAFE's and RanPAC's. A line that --out has
already is not computed again. Words key=value go to both methods, words method.key=value to SAFE
alone. With --preset NAME another method runs in the cell, with its own PET, and its final accuracy
is the line.
"""

import argparse
import hashlib
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.backbone.load import load_backbone
from safecl.engine.device import choose_precision, make_accelerator
from safecl.engine.device_loader import DeviceLoader
from safecl.engine.evaluate import evaluate
from safecl.engine.facts import footprint
from safecl.engine.fit import Trainer
from safecl.engine.learn import learn
from safecl.engine.progress import Progress
from safecl.experiments.config import RunSettings, load, resolve
from safecl.heads.gram import Statistics
from safecl.heads.ridge import RidgeHead
from safecl.methods.beyond.following import Following
from safecl.methods.catalog import make_method
from safecl.methods.ensemble import by_entropy
from safecl.methods.method import Method, Network
from safecl.methods.safe import SAFE
from safecl.streams.catalog import open_stream
from safecl.streams.pictures.images import Pictures
from safecl.streams.stream import Stream

KINDS = ("stale", "gaussians", "bound")
# by the two voices and γ
RULES: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "entropy": by_entropy,
    "add": lambda beside, fast, gamma: beside + fast,
    "max": lambda beside, fast, gamma: torch.maximum(beside, fast),
}


def manifest(options: argparse.Namespace, seed: int) -> Path:
    """The pictures of the cell as a CSV file: --classes by the seed, --each of them for training,
    --tested for tests.

    Both parts of a class are put together and cut anew by the seed, unless --keep-split.
    """
    rows = ["path,label,split" + (",domain" if options.protocol == "domain" else "")]
    domains = options.protocol == "domain"
    places: dict[tuple[str, ...], dict[str, list[Path]]] = {}
    for path in sorted(options.folder.glob("*/**/*.*")):
        part, *place, _ = path.relative_to(options.folder).parts
        places.setdefault(tuple(place), {}).setdefault(part, []).append(path)
    labels = sorted({place[-1] for place in places})
    random.Random(f"{seed}/classes").shuffle(labels)
    chosen = set(labels[: options.classes])
    for place, parts in sorted(places.items()):
        if place[-1] not in chosen:
            continue
        if options.keep_split:
            cut = {part: parts.get(part, []) for part in ("train", "test")}
            cut = {
                part: paths[: options.each if part == "train" else options.tested]
                for part, paths in cut.items()
            }
        else:
            paths = [path for part in sorted(parts) for path in parts[part]]
            random.Random(f"{seed}/{place}").shuffle(paths)
            each = options.each or len(parts["train"])
            cut = {"train": paths[:each], "test": paths[each:][: options.tested]}
        for part, paths in cut.items():
            more = [place[-1], part, *(place[:1] if domains else ())]
            rows += [",".join([str(path.absolute()), *more]) for path in paths]
    text = "\n".join(rows) + "\n"
    name = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
    file = Path(tempfile.gettempdir()) / f"safecl_cell_{name}.csv"
    file.write_text(text)
    return file


class Watch:
    """The heads beside a SAFE: what its fast learner would answer with each kind of statistics."""

    def __init__(self, method: SAFE, stream: Stream, fit: Trainer) -> None:
        self.method = method
        self.stream = stream
        self.fit = fit
        self.heads = {kind: self.head() for kind in KINDS}
        self.untuned, self.slow = self.head(), self.head()
        self.memory = Following(method.backbone.width, method.seed)
        self.left_out: list[list[float]] = []
        self.by_test: dict[str, list[float]] = {}

    def head(self) -> RidgeHead:
        backbone = self.method.backbone
        return RidgeHead(
            backbone.width, self.method.settings.ridge, self.method.seed, backbone.device
        )

    def targets(self, pictures: Pictures) -> Tensor:
        index = {label: i for i, label in enumerate(self.method.classes)}
        return torch.tensor(
            [index[label] for label in pictures.labels], device=self.method.backbone.device
        )

    @torch.no_grad()
    def features(self, pictures: Pictures, *networks: Network) -> list[Tensor]:
        """What the heads of the method read of these networks: (N, d′) each."""
        reading = self.method.ridge_slow.reading
        parts = [list[Tensor]() for _ in networks]
        loader = DeviceLoader(pictures, self.stream.transform, self.method.backbone.device)
        for images in loader.plain(range(len(pictures))):
            for network, found in zip(networks, parts, strict=True):
                found.append(network.read(images, reading))
        return [torch.cat(found) for found in parts]

    def look(self, number: int) -> None:
        """Before a session after the first: the errors on its pictures of networks that have not
        learned them.
        """
        pictures = self.stream._parts[number - 1].train
        labels = {label: i for i, label in enumerate(sorted(set(pictures.labels), key=str))}
        y = torch.tensor(
            [labels[label] for label in pictures.labels], device=self.method.backbone.device
        )
        found = self.features(pictures, self.method.backbone, self.method.slow, self.method.fast)
        self.left_out.append(
            [round(float(self.untuned.leave_one_out(f, y).mean()), 4) for f in found]
        )

    def add(self, number: int) -> None:
        """After a session: add its statistics."""
        pictures = self.stream._parts[number - 1].train
        y = self.targets(pictures)
        slow_head = self.method.ridge_slow
        if number == 1:  # what is read is known now
            for head in (*self.heads.values(), self.untuned, self.slow):
                head.read(slow_head.reading)
            self.memory = Following(slow_head.width, self.method.seed).to(y.device)
        slow, fast, plain = self.features(
            pictures, self.method.slow, self.method.fast, self.method.backbone
        )
        self.heads["stale"].add(fast, y)
        self.untuned.add(plain, y)
        self.slow.add(slow, y)
        self.memory.kept.add(slow[:, : slow_head.width], y)
        if number > 1:
            self.memory.fit(slow, fast, y)

    def answers(self, number: int) -> dict[str, Any]:
        """Accuracies in percent on the test pictures of all sessions so far."""
        bound = self.heads["bound"]
        bound.statistics = Statistics(bound.size, self.method.backbone.device)
        for part in self.stream._parts[:number]:
            (fast,) = self.features(part.train, self.method.fast)
            bound.statistics.accumulate(bound.project, fast, self.targets(part.train))
        for head in self.heads.values():
            head.errors = self.heads["stale"].errors  # the evidence for β is the same for all
        self.memory.follow(self.method.ridge_slow, self.heads["gaussians"])
        for head in (*self.heads.values(), self.untuned, self.slow):
            head.solve()
        right: dict[str, list[Tensor]] = {}
        s = self.method.settings.answer
        weight = self.method.lead  # what SAFE found for the statistics that it has
        factor = 10.0 if s.temperature == "learned" else s.temperature
        for i in self.stream.tested(number):
            pictures = self.stream.test(i)
            if not len(pictures):
                continue
            y = self.targets(pictures)
            f_slow, f_fast, plain = self.features(
                pictures, self.method.slow, self.method.fast, self.method.backbone
            )
            logits = {
                "slow": factor * self.slow.logits(f_slow),
                "untuned": factor * self.untuned.logits(plain),
            }
            beside = logits[self.method.voices(number)["slow"].name]
            for kind, head in self.heads.items():
                fast = factor * head.logits(f_fast)
                by_errors = s.aggregation in ("errors", "concat")
                rule: Any = s.aggregation
                safe = (
                    torch.lerp(beside, fast, weight)
                    if by_errors
                    else RULES[rule](beside, fast, s.gamma)
                )
                logits |= {f"fast {kind}": fast, f"safe {kind}": safe}
                if kind == "gaussians":
                    logits |= {
                        f"safe {one}": combine(beside, fast, s.gamma)
                        for one, combine in RULES.items()
                    }
            for name, z in logits.items():
                right.setdefault(name, []).append(z.argmax(dim=1) == y)
        self.by_test = {
            name: [percent(found) for found in right[name]] for name in ("slow", "fast gaussians")
        }
        return {name: percent(torch.cat(found)) for name, found in right.items()}


def percent(right: Tensor) -> float:
    return round(100 * float(right.float().mean()), 2)


def made(settings: RunSettings, backbone: Backbone) -> tuple[Method, Stream, Trainer]:
    stream = open_stream(settings.stream, size=backbone.size, seed=settings.seed)
    method = make_method(settings.method, backbone, settings.seed)
    accelerator = make_accelerator(settings.device)
    return (
        method,
        stream,
        Trainer(accelerator, method, settings.train, stream.transform, settings.seed, Progress()),
    )


def words_of(options: argparse.Namespace, seed: int) -> list[str]:
    """Stream, backbone and PET of a cell."""
    words = [
        f"stream=csv:{manifest(options, seed)}",
        "stream.duplicates=allow",
        f"seed={seed}",
        f"pet={options.pet}",
    ]
    words += ["stream.protocol=domain"] if options.protocol == "domain" else []
    if options.protocol == "class":
        words += [f"stream.first={options.first or options.step}", f"stream.step={options.step}"]
        words += [f"stream.order_seed={1993 + seed}"]
    words += (
        [f"backbone={options.weights or options.backbone}"]
        if options.weights or options.backbone
        else []
    )
    return words + ([f"backbone.image_size={options.image_size}"] if options.image_size else [])


def loaded(settings: RunSettings) -> Backbone:
    device = make_accelerator(settings.device).device
    return load_backbone(settings.backbone).to(device, choose_precision(settings.precision, device))


def cell(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """One training of SAFE and one of RanPAC."""
    words = words_of(options, seed)
    settings = load("safe", [*words, *options.words])
    backbone = loaded(settings)
    method, stream, fit = made(settings, backbone)
    assert isinstance(method, SAFE)
    watch = Watch(method, stream, fit)
    line = {}
    notes = []

    def is_evaluated(number: int) -> bool:
        return number == len(stream) or bool(options.every and number % options.every == 0)

    for number in range(1, len(stream) + 1):
        if number > 1:
            watch.look(number)
        took = learn(method, stream.open(number), fit)
        steps = sum(phase["steps"] for phase in fit.phases)
        notes.append(
            {"steps": steps, "seconds": round(sum(took["seconds"].values()), 2), **method.notes}
        )
        watch.add(number)
        if is_evaluated(number):
            line.setdefault("accuracy", []).append(watch.answers(number))
    line |= {
        "by test": watch.by_test,
        "left out": watch.left_out,
        "reading": list(method.ridge_slow.reading),
    }
    line |= {"weight": round(float(method.lead), 3)}
    tests = [stream.test(i) for i in stream.tested(len(stream))]
    found = evaluate(method, tests, fit, "test")
    line["own"] = {
        name: percent(guesses == found.targets) for name, guesses in found.predicted.items()
    }
    line |= {
        "sessions": len(stream),
        "classes": len(method.classes),
        "bytes_kept": footprint(method)["bytes_kept"],
    }
    line |= {"notes": notes}
    if not options.no_ranpac:
        rival = resolve(
            "ranpac", [*words, *(word for word in options.words if not word.startswith("method."))]
        )
        other, stream, fit = made(rival, backbone)
        for number in range(1, len(stream) + 1):
            took = learn(other, stream.open(number), fit)
            if number == 1:
                seconds = round(sum(took["seconds"].values()), 2)
                line["first"] = {
                    "safe": [notes[0]["steps"], notes[0]["seconds"]],
                    "ranpac": [fit.steps, seconds],
                }
            if is_evaluated(number):
                found = evaluate(
                    other, [stream.test(i) for i in stream.tested(number)], fit, "test"
                )
                line.setdefault("ranpac every", []).append(percent(found.main == found.targets))
        line["ranpac"], line["ranpac reading"] = line["ranpac every"][-1], list(other.ridge.reading)
    return line


def rival(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """One training of the method of --preset."""
    words = [word for word in words_of(options, seed) if not word.startswith("pet=")]
    settings = load(options.preset, [*words, *options.words])
    method, stream, fit = made(settings, loaded(settings))
    for number in range(1, len(stream) + 1):
        learn(method, stream.open(number), fit)
    found = evaluate(method, [stream.test(i) for i in stream.tested(len(stream))], fit, "test")
    return {
        "preset": options.preset,
        "folder": options.folder.name,
        "final": percent(found.main == found.targets),
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    """The cell: pictures, backbone, PET, seeds."""
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--protocol", choices=["class", "domain"], default="class")
    parser.add_argument(
        "--first", type=int, help="classes of the first session; as --step by default"
    )
    parser.add_argument("--step", type=int, default=10)
    parser.add_argument(
        "--classes", type=int, help="of the folder, drawn by the seed; all by default"
    )
    parser.add_argument(
        "--each", type=int, help="training pictures per class (and domain); all by default"
    )
    parser.add_argument("--tested", type=int, help="test pictures per class, at most")
    parser.add_argument(
        "--keep-split", action="store_true", help="train and test as the folder has them"
    )
    parser.add_argument(
        "--backbone", help="a timm name; safecl_micro if neither this nor --weights is given"
    )
    parser.add_argument("--weights", help="a safetensors file that names its timm model")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--pet", default="ssf")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("words", nargs="*", help="key=value words, as for safecl run")


def write(
    options: argparse.Namespace, cell: Callable[[argparse.Namespace, int], dict[str, Any]]
) -> None:
    """A line for every seed that --out has no line of."""
    lines = (
        [json.loads(line) for line in options.out.read_text().splitlines()]
        if options.out.exists()
        else []
    )
    given = {
        key: str(value) if isinstance(value, Path) else value
        for key, value in vars(options).items()
    }
    given = {key: value for key, value in given.items() if key not in ("seeds", "out", "preset")}
    for seed in map(int, options.seeds.split(",")):
        if any(
            (line["given"], line["seed"], line.get("preset")) == (given, seed, options.preset)
            for line in lines
        ):
            continue
        began = time.monotonic()
        line = {"given": given, "seed": seed, **cell(options, seed), "wall": None}
        line["wall"] = round(time.monotonic() - began, 1)
        print(json.dumps(line), flush=True)
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument(
        "--every", type=int, default=0, help="accuracies after every so many sessions"
    )
    parser.add_argument("--no-ranpac", action="store_true")
    parser.add_argument("--preset", help="of another method, instead of SAFE and RanPAC")
    parser.add_argument("--out", type=Path, default=Path("cells.jsonl"))
    options = parser.parse_args()
    write(options, rival if options.preset else cell)


if __name__ == "__main__":
    main()
