"""Where the time of a session goes, how far from what the chip can do, and how it grows.

    python benchmarks/speed.py --workload published  # on a GPU: ViT-B/16, three PETs
    python benchmarks/speed.py --workload small                # on a GPU: ViT-S/16 at batch 48
    python benchmarks/speed.py --workload embedded             # on the CPU: the embedded backbone
    python benchmarks/speed.py --heads  # how the heads grow, and β and weights against LU
    python benchmarks/growth.py  # how a session grows with those before it

Everything is measured in one run, beside a plain reference (``plain.py``, built as the released
code is) and the floor: a frozen network needs no gradients by its weights, so a picture costs a
forward pass of the frozen network and a forward and an activation-backward pass of the tuned one,
three times the counted operations of one, at the rate of a large matrix product. (We do some 7 %
less than that: in the last block only the CLS token is followed.) Weights are random and pictures
are noise: neither changes the time. Sessions after the first two are averaged, so everything is
warm; the first one is reported too.
"""

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import plain
import timm
import torch
from torch.utils.flop_counter import FlopCounterMode

import safecl.backbone.micro  # noqa: F401  registers the embedded architecture with timm
from safecl.backbone.load import load_backbone
from safecl.backbone.settings import BackboneSettings
from safecl.engine.device import choose_precision, make_accelerator
from safecl.engine.device_loader import DeviceLoader, reads
from safecl.engine.evaluate import evaluate
from safecl.engine.fit import Trainer
from safecl.engine.folder import States
from safecl.engine.learn import learn
from safecl.engine.progress import Progress
from safecl.experiments.config import load
from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings
from safecl.methods.catalog import make_method
from safecl.methods.method import all_logits
from safecl.ram import peak, reset_peak
from safecl.streams.pictures.images import ArrayPictures, Transform
from safecl.streams.stream import Part, Stream

# backbone, side of the pictures, classes per session, pictures per class, epochs, later epochs, M,
# batch
WORKLOADS: dict[str, dict[str, Any]] = {
    "published": {
        "backbone": "vit_base_patch16_224",
        "side": 256,
        "classes": 20,
        "train": 30,
        "test": 8,
        "epochs": 20,
        "later": 15,
        "size": 10_000,
        "batch": 48,
        "workers": 8,
    },
    "small": {
        "backbone": "vit_small_patch16_224",
        "side": 256,
        "classes": 20,
        "train": 30,
        "test": 8,
        "epochs": 20,
        "later": 15,
        "size": 10_000,
        "batch": 48,
        "workers": 8,
    },
    "tiny": {
        "backbone": "vit_tiny_patch16_224",
        "side": 256,
        "classes": 10,
        "train": 24,
        "test": 8,
        "epochs": 20,
        "later": 20,
        "size": 5_000,
        "batch": 48,
        "workers": 8,
    },
    "embedded": {
        "backbone": "safecl_micro",
        "side": 64,
        "classes": 20,
        "train": 30,
        "test": 8,
        "epochs": 3,
        "later": 3,
        "size": 10_000,
        "batch": 48,
        "workers": 2,
    },
}


def now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def seconds_of(function: Callable[[], Any], device: torch.device, times: int = 5) -> float:
    """The fastest of several calls, after one that does not count."""
    function()
    found = []
    for _ in range(times):
        started = now(device)
        function()
        found.append(now(device) - started)
    return min(found)


def matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Operations a second of a large matrix product."""
    n = 8192 if device.type == "cuda" else 2048
    a = torch.randn(n, n, device=device).to(dtype)
    return 2 * n**3 / seconds_of(lambda: a @ a, device, 10)


def operations(vit: Any, size: int) -> int:
    """Of one forward pass of one picture."""
    weight = next(vit.parameters())
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        vit(torch.zeros(1, 3, size, size, device=weight.device, dtype=weight.dtype))
    return int(counter.get_total_flops())


def noise(work: dict[str, Any], number: int, each: int) -> tuple[np.ndarray, np.ndarray]:
    side = work["side"]
    classes = work["classes"]
    random = np.random.default_rng([number, each])
    arrays = random.integers(0, 256, (classes * each, side, side, 3), dtype=np.uint8)
    return arrays, np.repeat(np.arange(classes) + (number - 1) * classes, each)


def make_stream(work: dict[str, Any], sessions: int, size: int) -> Stream:
    parts = []
    for number in range(1, sessions + 1):
        train, test = (
            ArrayPictures(arrays, labels.tolist())
            for arrays, labels in (noise(work, number, work[kind]) for kind in ("train", "test"))
        )
        parts.append(Part(f"session {number}", tuple(dict.fromkeys(train.labels)), train, test))
    return Stream("noise", parts, transform=Transform(size, margin=work["side"] / size))


class Says(Progress):
    """No progress, but whatever there is to say: that a step cannot be recorded would explain a
    time.
    """

    def say(self, text: str) -> None:
        print(text, flush=True)


class Clock:
    """Seconds spent in the parts of learning since they were last read."""

    PARTS: ClassVar[list[tuple[str, Any, str]]] = [
        ("training", Trainer, "__call__"),
        ("features", Trainer, "features"),
        ("heads", RidgeHead, "add"),
        ("heads", RidgeHead, "solve"),
    ]

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds = dict[str, float]()

    def __enter__(self) -> None:
        self.kept = [getattr(*place) for _, *place in self.PARTS]
        for (name, *place), function in zip(self.PARTS, self.kept, strict=True):
            setattr(*place, self._timed(name, function))

    def __exit__(self, *error: object) -> None:
        for (_, *place), function in zip(self.PARTS, self.kept, strict=True):
            setattr(*place, function)

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*inputs: Any, **options: Any) -> Any:
            started = now(self.device)
            result = function(*inputs, **options)
            self.seconds[name] = self.seconds.get(name, 0.0) + now(self.device) - started
            return result

        return timed

    def read(self) -> dict[str, float]:
        seconds = self.seconds
        self.seconds = {}
        return seconds


def prepared(
    work: dict[str, Any],
    pet: str,
    sessions: int,
    device: str,
    words: list[str],
    folder: Path | None = None,
) -> tuple[Stream, Trainer]:
    """A stream of noise, and SAFE with its default settings in the hands of a trainer."""
    settings = load(
        "safe",
        [
            f"pet={pet}",
            f"ridge.size={work['size']}",
            f"train.epochs={work['epochs']}",
            f"train.later_epochs={work['later']}",
            f"train.batch_size={work['batch']}",
            f"device={device}",
            *words,
        ],
    )
    accelerator = make_accelerator(settings.device)
    weights = None if work["backbone"] == "safecl_micro" else "random"
    backbone = load_backbone(BackboneSettings(name=work["backbone"], weights=weights))
    backbone.to(accelerator.device, choose_precision(settings.precision, accelerator.device))
    stream = make_stream(work, sessions, backbone.size)
    method = make_method(settings.method, backbone)
    return stream, Trainer(accelerator, method, settings.train, stream.transform, 0, Says(), folder)


def ours(
    work: dict[str, Any], pet: str, sessions: int, device: str, words: list[str]
) -> dict[str, Any]:
    """SAFE over a stream of noise; the seconds of each part of each session."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = []
        (folder / "state").mkdir()
        stream, fit = prepared(work, pet, sessions, device, words, folder / "state")
        method = fit.method
        place = fit.processes.device
        clock = Clock(place)
        reset_peak(place)
        with clock, States(folder, {}) as states:
            for number in range(1, sessions + 1):  # what engine.run does
                began = now(place)
                learn(method, stream.open(number), fit)
                learned = now(place)
                states.begin(method, number)
                begun = now(place)
                evaluate(method, [stream.test(i) for i in range(1, number + 1)], fit, "evaluation")
                evaluated = now(place)
                states.end()
                saved = now(place)
                rest = {
                    "evaluation": evaluated - begun,
                    "saving": begun - learned + saved - evaluated,
                }
                rest["whole"] = saved - began
                counts = {
                    key: sum(phase[key] for phase in fit.phases) for key in ("steps", "images")
                }
                lines.append({**clock.read(), **rest, **counts})
    return {"sessions": lines, "peak": peak(place), "fit": fit, "method": method}


def reference(
    work: dict[str, Any], pet: str, device: torch.device, epochs: int
) -> dict[str, float]:
    """The plain later session; its training is timed over ``epochs`` and counted for all of
    them.
    """
    vit = timm.create_model(work["backbone"], num_classes=0).to(device).eval()
    size = int(vit.patch_embed.img_size[0])
    parts = [[noise(work, number, work[kind]) for number in (1, 2)] for kind in ("train", "test")]
    test = tuple(np.concatenate(each) for each in zip(*parts[1], strict=True))
    found = plain.session(
        vit,
        pet,
        parts[0][1],
        test,
        size,
        work["side"],
        epochs,
        work["size"],
        work["batch"],
        work["workers"],
    )
    found["training"] *= work["later"] / epochs
    return {**found, "saving": 0.0, "whole": sum(found.values())}


def session_table(
    work: dict[str, Any], options: argparse.Namespace, device: torch.device
) -> dict[str, Any]:
    """Seconds of a later session, ours and plain, and the distance of the training from the
    floor.
    """
    dtype = choose_precision("auto", device)
    rate = matrix_rate(device, dtype)
    vit = timm.create_model(work["backbone"], num_classes=0).to(device, dtype).eval()
    size = int(vit.patch_embed.img_size[0])
    pictures = work["classes"] * work["train"]
    forward = operations(vit, size)
    floor = 3 * forward * pictures * work["later"] / rate
    print(
        f"{work['backbone']}: {forward / 1e9:.1f} GFLOP a forward pass; a"
        f" {str(dtype).removeprefix('torch.')} matrix product reaches {rate / 1e12:.2f} TFLOP/s;"
        f" floor of a later session's training {floor:.2f} s"
    )
    parts = ("training", "features", "heads", "evaluation", "saving", "whole")
    print(
        "| PET | version | "
        + " | ".join(parts)
        + " | pictures/s in training | training / floor | plain / ours |"
    )
    print("|" + "---|" * 11)
    answer: dict[str, Any] = {"floor": floor, "rate": rate}
    for pet in options.pets.split(","):
        result = ours(work, pet, options.sessions, device.type, options.words)
        later = result["sessions"][2:] or result["sessions"][-1:]
        mean = {part: float(np.mean([line.get(part, 0.0) for line in later])) for part in parts}
        rows = {"first session": result["sessions"][0], "later session": mean}
        if options.reference:
            rows["plain later"] = reference(work, pet, device, options.reference)
        for version, row in rows.items():
            cells = [f"{row.get(part, 0.0):.2f}" for part in parts]
            cells.append(f"{row.get('images', pictures * work['later']) / row['training']:.0f}")
            cells.append("" if "first" in version else f"{row['training'] / floor:.2f}")
            plainly = rows.get("plain later") if version == "later session" else None
            cells.append(f"{plainly['whole'] / row['whole']:.1f}" if plainly else "")
            print(f"| {pet} | {version} | " + " | ".join(cells) + " |", flush=True)
        print(
            f"  {pet}: peak memory {result['peak'] / 1e9:.2f} GB; later sessions, whole: "
            + ", ".join(f"{line['whole']:.2f}" for line in result["sessions"][1:]),
            flush=True,
        )
        answer[pet] = {"rows": rows, "sessions": result["sessions"], "peak": result["peak"]}
        if options.evaluate:
            answer[pet]["evaluation"] = evaluation(result, vit, options.evaluate)
    return answer


@torch.no_grad()
def evaluation(result: dict[str, Any], vit: Any, count: int) -> dict[str, float]:
    """All logits of ``count`` pictures from memory, against one forward pass of timm's network over
    as many.
    """
    method = result["method"]
    fit = result["fit"]
    device = fit.processes.device
    transform = fit.transform
    arrays = np.random.default_rng(0).integers(
        0, 256, (count, transform.resize, transform.resize, 3), dtype=np.uint8
    )
    pictures = ArrayPictures(arrays, [0] * count)
    batch = torch.rand(reads(device), 3, transform.size, transform.size, device=device).to(
        next(vit.parameters()).dtype
    )

    def once() -> None:
        for images in fit.views(DeviceLoader(pictures, transform, device)):
            all_logits(method, images)

    def network() -> None:
        for _ in range(count // len(batch)):
            vit(batch)

    both = seconds_of(once, device, 2)
    alone = seconds_of(network, device, 2) * count / (count // len(batch) * len(batch))
    print(
        f"  {count} pictures: {both:.2f} s for both learners, {alone:.2f} s for one pass of timm's"
        f" network: {both / alone:.2f} times",
        flush=True,
    )
    return {"ours": both, "timm": alone, "ratio": both / alone}


def head_tables(device: torch.device, quick: bool) -> dict[str, Any]:
    """Statistics, choice of β and weights of one learner, as M, the pictures and the classes
    grow.
    """
    width = 768
    answer = {"rows": []}
    cases = [(m, 600, 200) for m in (1_000, 2_000, 5_000, 10_000, 20_000)]
    cases += [(5_000, n, 200) for n in (1_000, 10_000, 100_000)] + [
        (5_000, 600, c) for c in (10, 100, 1_000, 2_000)
    ]
    print(
        "| M | pictures | classes | statistics and β, s | weights, s | peak memory in units of M²"
        " floats |"
    )
    print("|" + "---|" * 6)
    for m, n, classes in (
        cases if not quick else [case for case in cases if case[0] <= 5_000 and case[1] <= 10_000]
    ):
        head = RidgeHead(width, RidgeSettings(size=m)).to(device)
        features = torch.randn(n, width, device=device)
        targets = torch.arange(n, device=device) % classes
        reset_peak(device)
        started = now(device)
        head.add(features, targets)
        added = now(device)
        head.solve()
        solved = now(device)
        room = peak(device) / (4 * m * m) if device.type == "cuda" else float("nan")
        print(
            f"| {m} | {n} | {classes} | {added - started:.3f} | {solved - added:.3f} |"
            f" {room:.2f} |",
            flush=True,
        )
        answer["rows"].append([m, n, classes, added - started, solved - added, room])
        del head
    m, n = (10_000, 600) if not quick else (2_000, 600)
    features = torch.randn(n, width)
    targets = torch.arange(n) % 20
    head = RidgeHead(width, RidgeSettings(size=m)).to(device)
    cpu = torch.device("cpu")
    h = torch.relu(features @ head.project.projection.cpu())

    def whole() -> None:
        fresh = RidgeHead(width, RidgeSettings(size=m)).to(device)
        fresh.add(features.to(device), targets.to(device))
        fresh.solve()

    mine = seconds_of(whole, device, 1)
    lu = seconds_of(lambda: plain.heads(h, targets, 20), cpu, 1)
    print(
        f"M = {m}, N = {n}: statistics, β and weights {mine:.2f} s; six LU solves and one, on the"
        f" CPU, {lu:.2f} s: {lu / mine:.1f} times"
    )
    return {**answer, "ours": mine, "lu": lu}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workload", choices=WORKLOADS)
    parser.add_argument("--pets", default="ssf,adapter,vpt_deep")
    parser.add_argument("--sessions", type=int, default=4)
    parser.add_argument(
        "--reference", type=int, default=1, help="epochs of the plain loop that are timed; 0: none"
    )
    parser.add_argument(
        "--evaluate", type=int, default=10_000, help="pictures to evaluate; 0: none"
    )
    parser.add_argument("--heads", action="store_true")
    parser.add_argument("--quick", action="store_true", help="smaller heads")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="the numbers as JSON")
    parser.add_argument("words", nargs="*", help="key=value words for our runs")
    options = parser.parse_intermixed_args()
    device = torch.device(options.device)
    name = (
        torch.cuda.get_device_name()
        if device.type == "cuda"
        else f"{platform.machine()}, {torch.get_num_threads()} threads"
    )
    print(f"{name}, torch {torch.__version__}", flush=True)
    answer: dict[str, Any] = {"device": name, "torch": torch.__version__}
    if options.workload:
        answer[options.workload] = session_table(WORKLOADS[options.workload], options, device)
    if options.heads:
        answer["heads"] = head_tables(device, options.quick)
    if options.out:
        options.out.write_text(json.dumps(answer, indent=1) + "\n")


if __name__ == "__main__":
    main()
