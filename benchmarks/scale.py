"""How far one GPU goes: many pictures, many classes, many sessions, and large M.

    python benchmarks/scale.py --pictures 1000000 --classes 10000 --sessions 100 \
        train.epochs=1 train.later_epochs=1
    python benchmarks/scale.py --pictures 0 --sizes 1000,10000,30000,100000  # head alone
    python benchmarks/scale.py --pictures 0 --files 1000000  # files, shards and ImageFolder

Pictures are drawn on the device when they are asked for: a coarse pattern of the class under one of
the picture's own, the same whenever it is drawn. The backbone has random weights, which changes no
time; accuracies only compare sizes of M. A line for some sessions: seconds of learning and of its
parts, the peak of memory. At the end what a state takes on disk, whether one that is read back
gives the same logits, and the growth from the tenth session to the last. Of files, small JPEGs in
as many class folders as a tenth of them at most: seconds until all are known (for ours the check
and the fingerprint are included), and pictures a second of one pass by one thread, decoded by the
same function, with the files in the page cache.
"""

import argparse
import io
import json
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from speed import Clock, Says, now
from torch import Tensor
from torchvision.datasets import ImageFolder

from safecl.backbone.load import load_backbone
from safecl.backbone.settings import BackboneSettings
from safecl.engine.checkpoint import load_state
from safecl.engine.device import choose_precision, make_accelerator
from safecl.engine.device_loader import reads
from safecl.engine.fit import Trainer
from safecl.engine.folder import States
from safecl.engine.learn import learn
from safecl.experiments.config import load
from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings
from safecl.methods.catalog import make_method
from safecl.methods.method import Method, restore
from safecl.ram import peak, reset_peak
from safecl.streams.pictures.decode import decode
from safecl.streams.pictures.images import ArrayPictures, Selection, Transform, plain_view
from safecl.streams.pictures.load import batches
from safecl.streams.sources.folder import read_folder
from safecl.streams.stream import Session

OWN = 65_521  # patterns of pictures
HELD = 64  # pictures that a state which is read back answers to
SMALL = 32  # pixels a side of pictures in files
PER_SHARD = 10_000
NEAR = 5  # sessions about the tenth, and before the last, that say how the cost grows


class Drawn(ArrayPictures):
    """Pictures by their numbers (N,), which a ``DrawnLoader`` draws; as arrays they are empty."""

    def __init__(self, numbers: np.ndarray, labels: Sequence[int]) -> None:
        self.numbers = numbers
        super().__init__(np.zeros((len(numbers), 1, 1, 3), dtype=np.uint8), labels)


class DrawnLoader:
    """What ``DeviceLoader`` gives, of pictures that are drawn on the device."""

    def __init__(
        self, pictures: Any, transform: Transform, device: torch.device, patterns: "Patterns"
    ) -> None:
        self.pictures = pictures
        self.transform = transform
        self.device = device
        self.patterns = patterns

    def canvases(self, chunks: Sequence[Sequence[int]]) -> Iterator[tuple[Tensor, Tensor]]:
        for chunk in chunks:
            yield self._draw(chunk, self.transform.resize), torch.ones(len(chunk), 3)

    def plain(self, indices: Sequence[int]) -> Iterator[Tensor]:
        size = reads(self.device)
        for start in range(0, len(indices), size):
            yield self._draw(indices[start : start + size], self.transform.size).float() / 255

    def _draw(self, indices: Sequence[int], side: int) -> Tensor:
        pictures = self.pictures
        chosen = np.asarray(indices, dtype=np.int64)
        labels = torch.tensor([pictures.labels[i] for i in chosen.tolist()])
        while isinstance(pictures, Selection):
            pictures, chosen = pictures.members[0], pictures.indices[chosen]
        return self.patterns(torch.from_numpy(pictures.numbers[chosen]), labels, side)


class Patterns:
    """Coarse patterns of classes and of pictures, on the device."""

    def __init__(self, classes: int, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(0)
        self.device = device
        self.classes = torch.rand(classes, 3, 8, 8, generator=generator).to(device)
        self.own = torch.rand(OWN, 3, 16, 16, generator=generator).to(device)

    def __call__(self, numbers: Tensor, labels: Tensor, side: int) -> Tensor:
        """Pictures (n, 3, side, side) of uint8."""
        own = self.own[(numbers * 40_503 % OWN).to(self.device)]
        both = F.interpolate(self.classes[labels.to(self.device)], size=16, mode="bilinear") + own
        return F.interpolate(both, size=side, mode="bilinear").mul_(127.5).to(torch.uint8)


class Drawing(Trainer):
    """A trainer of drawn pictures."""

    patterns: Patterns

    def _open(self, session: Session) -> Any:
        session.check_open()
        return DrawnLoader(session.train, self.transform, self.processes.device, self.patterns)


def made(options: argparse.Namespace, folder: Path | None = None) -> tuple[Method, Drawing]:
    settings = load("safe", [f"pet={options.pet}", f"ridge.size={options.size}", *options.words])
    accelerator = make_accelerator(settings.device)
    backbone = load_backbone(BackboneSettings(name=options.backbone, weights="random"))
    backbone.to(accelerator.device, choose_precision(settings.precision, accelerator.device))
    method = make_method(settings.method, backbone)
    fit = Drawing(accelerator, method, settings.train, Transform(backbone.size), 0, Says(), folder)
    fit.patterns = Patterns(options.classes, accelerator.device)
    return method, fit


def session_of(options: argparse.Namespace, number: int) -> Session:
    """Session ``number`` of as many classes as the others."""
    each = options.classes // options.sessions
    per_class = options.pictures // options.classes
    classes = range((number - 1) * each, number * each)
    numbers = np.arange(classes[0] * per_class, (classes[-1] + 1) * per_class)
    return Session(
        number, str(number), tuple(classes), Drawn(numbers, np.repeat(classes, per_class).tolist())
    )


def sessions(options: argparse.Namespace) -> dict[str, Any]:
    """Learn them all; seconds and memory of each, the state on disk, and the growth."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = []
        (folder / "state").mkdir()
        method, fit = made(options, folder / "state")
        place = fit.processes.device
        began = time.monotonic()
        clock = Clock(place)
        with clock:
            for number in range(1, options.sessions + 1):
                reset_peak(place)
                started = now(place)
                learn(method, session_of(options, number), fit)
                whole = now(place) - started
                lines.append(
                    {"session": number, **clock.read(), "whole": whole, "peak": peak(place)}
                )
                if number <= 10 or number % max(options.sessions // 10, 1) == 0:
                    print(json.dumps({k: round(v, 3) for k, v in lines[-1].items()}), flush=True)
                if time.monotonic() - began > options.seconds:
                    print(
                        f"stopped after session {number}: {options.seconds} s are over", flush=True
                    )
                    break
        started = now(place)
        with States(folder, {}) as states:
            states.begin(method, number)
            states.end()
        saved = now(place) - started
        file = next((folder / "state").glob("session_*"))
        held = Drawn(np.arange(HELD) + options.pictures, [i % options.classes for i in range(HELD)])
        images = next(DrawnLoader(held, fit.transform, place, fit.patterns).plain(range(HELD)))
        before = method.logits(images)
        size = file.stat().st_size
        classes = len(method.classes)
        del fit, method
        tensors, facts = load_state(file)
        again, _ = made(options)
        restore(again, tensors, facts["classes"])
        same = torch.equal(before, again.logits(images))
    total = sum(line["whole"] for line in lines)
    print(
        f"{len(lines)} sessions, {classes} classes: {total:.0f} s; state {size / 1e9:.2f} GB in"
        f" {saved:.1f} s; read back, the logits are {'the same' if same else 'NOT the same'}"
    )
    growth = {}
    if len(lines) > 10 + 2 * NEAR:
        cost = [line["whole"] - line["heads"] for line in lines]
        growth = {
            "tenth": float(np.mean(cost[10 - NEAR : 10])),
            "last": float(np.mean(cost[-NEAR:])),
        }
        print(
            f"a session without its heads: {growth['tenth']:.2f} s before the tenth,"
            f" {growth['last']:.2f} s at the end, {growth['last'] / growth['tenth']:.2f} times"
        )
    return {"sessions": lines, "growth": growth, "saved": saved, "bytes": size, "same": same}


@torch.no_grad()
def sizes(options: argparse.Namespace) -> list[dict[str, Any]]:
    """One ridge head on the untuned backbone, by M: seconds, memory and accuracy on pictures held
    back.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    backbone = load_backbone(BackboneSettings(name=options.backbone, weights="random"))
    backbone.to(device, choose_precision("auto", device))
    classes = min(options.classes, 1000)
    per_class = options.each
    began = time.monotonic()
    numbers = torch.arange(classes * per_class)
    labels = torch.arange(classes).repeat_interleave(per_class)
    patterns = Patterns(classes, device)
    found = []
    for some, theirs in zip(numbers.split(256), labels.split(256), strict=True):
        found.append(backbone.features(patterns(some, theirs, backbone.size).float() / 255))
    features = torch.cat(found)
    targets = labels.to(device)
    held = numbers % 5 == 0
    rows = []
    for m in map(int, options.sizes.split(",")):
        if time.monotonic() - began > options.seconds:
            print(f"stopped before M = {m}: {options.seconds} s are over", flush=True)
            break
        reset_peak(device)
        head = RidgeHead(backbone.width, RidgeSettings(size=m), device=device)
        started = now(device)
        head.add(features[~held], targets[~held])
        added = now(device)
        head.solve()
        solved = now(device)
        right = [head.logits(part).argmax(dim=1) for part in features[held].split(1024)]
        accuracy = float((torch.cat(right) == targets[held]).float().mean())
        rows.append(
            {
                "M": m,
                "add": added - started,
                "solve": solved - added,
                "peak": peak(device),
                "accuracy": accuracy,
            }
        )
        print(json.dumps(rows[-1]), flush=True)
        del head
    return rows


def write_files(top: Path, shards: Path, count: int, classes: int) -> None:
    """JPEGs as ``top/CLASS/NUMBER.jpg`` and, in the same order, as shards."""
    random = np.random.default_rng(0)
    tar = None
    shards.mkdir()
    for i in range(count):
        name = f"{i * classes // count:05d}/{i:07d}.jpg"
        picture = random.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        out = io.BytesIO()
        Image.fromarray(picture).resize((SMALL, SMALL)).save(out, "JPEG")
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(out.getvalue())
        if tar is None or i % PER_SHARD == 0:
            if tar is not None:
                tar.close()
            tar = tarfile.open(shards / f"{i // PER_SHARD:05d}.tar", "w")  # noqa: SIM115
        info = tarfile.TarInfo(name)
        info.size = out.tell()
        tar.addfile(info, io.BytesIO(out.getvalue()))
    if tar is not None:
        tar.close()


def files(options: argparse.Namespace) -> dict[str, Any]:
    """Opening and one pass, of a folder, of shards and of torchvision's reader; the best of
    ``--repeat`` each.
    """
    transform = Transform(SMALL, margin=1.0)
    rows = dict[str, dict[str, float]]()

    def view(path: str) -> Tensor:
        return plain_view(decode(Path(path).read_bytes(), path, least=transform.enough), transform)

    with tempfile.TemporaryDirectory() as name:
        top = Path(name, "folder")
        shards = Path(name, "shards")
        prints = set()
        write_files(top, shards, options.files, min(options.classes, max(options.files // 10, 1)))
        for _ in range(options.repeat):
            for what, place in (("folder", top), ("shards", shards), ("torchvision", top)):
                started = time.perf_counter()
                if what == "torchvision":
                    found: Any = ImageFolder(str(place), loader=view)
                else:
                    found = read_folder(place, test_fraction=0.0, duplicates="allow").train
                    prints.add(found.fingerprint()["digest"])
                opened = time.perf_counter() - started
                started = time.perf_counter()
                if what == "torchvision":
                    for at in range(0, len(found), 256):
                        torch.stack([found[i][0] for i in range(at, min(at + 256, len(found)))])
                else:
                    for _ in batches(found, range(len(found)), 256, "plain", transform, workers=1):
                        pass
                took = {"opening": opened, "pass": time.perf_counter() - started}
                best = rows.setdefault(what, took)
                rows[what] = {key: min(best[key], took[key]) for key in took}
    for what, took in rows.items():
        ratios = ", ".join(f"{key} {took[key] / rows['torchvision'][key]:.2f}" for key in took)
        speed = f"opening {took['opening']:.2f} s, {options.files / took['pass']:.0f} pictures/s"
        print(f"{what}: {speed}; times torchvision's seconds: {ratios}")
    print(
        "the fingerprints of folder and shards are"
        f" {'the same' if len(prints) == 1 else 'NOT the same'}"
    )
    return {"files": rows, "same_fingerprint": len(prints) == 1}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pictures", type=int, default=1_000_000, help="for training, of all sessions; 0: none"
    )
    parser.add_argument("--classes", type=int, default=10_000)
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--backbone", default="vit_base_patch16_224")
    parser.add_argument("--pet", default="ssf")
    parser.add_argument("--size", type=int, default=10_000, help="M of the sessions")
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="no session, and no M, begins after so many"
    )
    parser.add_argument("--sizes", help="values of M, with commas, for one head alone")
    parser.add_argument(
        "--each", type=int, default=20, help="pictures per class for --sizes, of at most 1,000"
    )
    parser.add_argument("--files", type=int, help="JPEGs on disk, as a folder and as shards")
    parser.add_argument(
        "--repeat",
        type=int,
        default=2,
        help="times that --files are opened and read; the best counts",
    )
    parser.add_argument("--out", type=Path, help="the numbers as JSON")
    parser.add_argument("words", nargs="*", help="key=value words for the run")
    options = parser.parse_intermixed_args()
    answer: dict[str, Any] = {}
    if options.sizes:
        answer["sizes"] = sizes(options)
    if options.files:
        answer |= files(options)
    if options.pictures:
        answer |= sessions(options)
    if options.out:
        options.out.write_text(json.dumps(answer, indent=1) + "\n")


if __name__ == "__main__":
    main()
