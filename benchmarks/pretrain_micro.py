"""Makes the weights of ``safecl_micro`` from folders of pictures and drawn characters.

    python benchmarks/pretrain_micro.py --photographs tiny_imagenet_*.npz --held tiny_imagenet_held.npz \
        --teacher dinov2_s14_a.safetensors --measure cifar100_50x10 --seconds 480 --out safecl_micro.safetensors

The student learns three things at once from its CLS feature: the classes of the photographs, which character was
drawn, and, through a linear map, what larger networks say of the photographs. Only the backbone is kept.
"""

import argparse
import copy
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from pretrain_data import (
    Labelled,
    coarse,
    drawn,
    erased,
    mixed,
    random_crops,
    read,
    recoloured,
    shuffled,
)
from pretrain_measure import Exam, Features, accuracy
from pretrain_networks import Student, Teacher, normalised, plain, save
from torch import Tensor, nn

from safecl.streams.characters import PRETRAINING_POOL


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photographs", type=Path, nargs="+", required=True, help="class folders or npz shards")
    parser.add_argument("--held", type=Path, nargs="*", default=[], help="held-out pictures of the same classes")
    parser.add_argument("--measure", type=Path, help="a folder with train/<class> and test/<class> to measure on")
    parser.add_argument("--teacher", type=Path, nargs="*", default=[], help="safetensors of larger timm ViTs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shape", type=json.loads, default={}, help="JSON: patch_size, embed_dim, depth, num_heads, …")
    parser.add_argument("--characters", type=int, default=len(PRETRAINING_POOL), help="how many characters to draw")
    parser.add_argument("--each", type=int, default=40, help="pictures of each character")
    parser.add_argument("--per-class", type=int, help="photographs of each class, if not all")
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument("--seconds", type=float, help="train this long; the schedule follows the clock")
    budget.add_argument("--steps", type=int, help="train this many steps; the same seed gives the same weights")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--share", type=float, default=0.25, help="of characters in a batch")
    parser.add_argument("--mix", type=float, default=0.7, help="share of photographs mixed with another one")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--decay", type=float, default=0.05, help="weight decay")
    parser.add_argument("--distil", type=float, default=4.0, help="weight of the teachers' loss")
    parser.add_argument("--patches", type=float, default=0.5, help="weight of patch features within it")
    parser.add_argument("--labels", type=float, default=1.0, help="weight of the photographs' classes")
    parser.add_argument("--drawn", type=float, default=0.5, help="weight of the characters' classes")
    parser.add_argument("--ema", type=float, default=0.999)
    parser.add_argument("--compile", action="store_true", help="torch.compile; pays after about two minutes")
    parser.add_argument("--shots", type=int, default=20)
    parser.add_argument("--glyphs", type=int, default=50, help="characters of the stream to measure on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def main() -> None:
    args, start = arguments(), time.perf_counter()
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    device = torch.device(args.device)
    # Processes that draw are forked, which must come before anything touches the GPU.
    characters = drawn(PRETRAINING_POOL[: args.characters], args.each, args.seed + 1000)
    exam = Exam.prepare(args.glyphs, args.measure)
    photographs = read(args.photographs, per_class=args.per_class)
    report(
        f"{len(photographs.labels)} photographs of {len(photographs.classes)} classes, {len(characters.labels)} "
        f"drawings of {len(characters.classes)} characters: {time.perf_counter() - start:.0f} s"
    )
    photographs, characters = photographs.to(device), characters.to(device)
    precision = torch.bfloat16 if device.type == "cuda" else torch.float32
    teachers = [Teacher(file, precision).to(device) for file in args.teacher]
    student = Student(args.shape, len(photographs.classes), len(characters.classes), [t.width for t in teachers])
    student = student.to(device, memory_format=torch.channels_last)
    untrained = measured(student, exam, args.shots, device)
    with torch.inference_mode():
        for teacher in teachers:
            first = torch.randperm(len(photographs.labels), device=device)[: 2 * args.batch]
            teacher.settle(random_crops(photographs.pixels[first], 0.3, flip=True), student.grid)
    trained, facts = train(student, teachers, photographs, characters, args, device)
    figures: dict[str, Any] = {"trained": measured(trained, exam, args.shots, device), "random init": untrained}
    if args.held:
        held = read(args.held, photographs.classes).to(device)
        figures["held-out top-1"] = round(accuracy(classified(trained, held.pixels), held.labels), 4)
    facts |= {"figures": figures}
    save(trained, args.shape, args.out, facts)
    for name, row in figures.items():
        report(f"{name:16} {row}")
    report(json.dumps(facts))


def train(
    student: Student,
    teachers: list[Teacher],
    photographs: Labelled,
    characters: Labelled,
    args: argparse.Namespace,
    device: torch.device,
) -> tuple[Student, dict[str, Any]]:
    """The moving average of the student at the end of the budget, and what was done."""
    average = copy.deepcopy(student).eval().requires_grad_(False)
    optimiser = torch.optim.AdamW(
        groups(student, args.decay), lr=args.lr, betas=(0.9, 0.98), fused=device.type == "cuda"
    )
    loss_of = Losses(student, teachers, args)
    if args.compile:
        loss_of.forward_student = torch.compile(student)
        for teacher in teachers:
            teacher.vit.forward_features = torch.compile(teacher.vit.forward_features)
    count = round(args.batch * args.share)
    photo_order = shuffled(len(photographs.labels), args.batch - count, device)
    drawn_order = shuffled(len(characters.labels), count, device)
    source, target = floats(student), floats(average)
    student.train()
    clock, first = Clock(args.seconds, args.steps), torch.zeros((), device=device)
    while clock.goes_on():
        for group in optimiser.param_groups:
            group["lr"] = args.lr * schedule(clock.progress)
        i, j = next(photo_order), next(drawn_order)
        losses = loss_of(photographs.pixels[i], photographs.labels[i], characters.pixels[j], characters.labels[j])
        total = losses.sum()
        first = first if clock.step else total.detach()
        optimiser.zero_grad(set_to_none=True)
        total.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 2.0)
        optimiser.step()
        # Early averages forget the random start quickly.
        torch._foreach_lerp_(target, source, 1 - min(args.ema, (1 + clock.step) / (10 + clock.step)))
        clock.tick()
        if clock.due("say", 15):
            parts = " ".join(f"{name} {value:.3f}" for name, value in zip(Losses.names, losses.tolist(), strict=True))
            rate = clock.step * args.batch / clock.elapsed
            report(f"{clock.progress:5.1%} step {clock.step} loss {total.item():.3f} ({parts}) {rate:.0f} pictures/s")
        if clock.due("save", 60):
            save(average, args.shape, args.out, {"unfinished": True})
    done = {
        "steps": clock.step,
        "epochs": round(clock.step * (args.batch - count) / len(photographs.labels), 1),
        "first loss": round(first.item(), 4),
        "last loss": round(total.item(), 4),  # waits for the device, so the time below is all of it
        "seconds": round(clock.elapsed, 1),
        "pictures a second": round(clock.step * args.batch / clock.elapsed),
    }
    return average, {"recipe": recipe(args), "done": done}


class Losses:
    """The weighted losses of one batch, as one tensor so that nothing waits for the device."""

    names = ("labels", "characters", "teachers")

    def __init__(self, student: Student, teachers: list[Teacher], args: argparse.Namespace) -> None:
        self.forward_student: nn.Module = student
        self.grid, self.teachers, self.args = student.grid, teachers, args

    def __call__(self, photographs: Tensor, labels: Tensor, characters: Tensor, which: Tensor) -> Tensor:
        device = photographs.device.type
        with torch.no_grad():
            x, weight = mixed(random_crops(photographs, 0.2, flip=True), self.args.mix)
            # The teachers see the crop as it is; the student has to say the same of a spoiled one.
            wanted = [teacher(x, self.grid) for teacher in self.teachers]
            x = erased(coarse(recoloured(x)))
            z = coarse(recoloured(random_crops(characters, 0.5, flip=False), inverted=0.3))
            x, z = (v.contiguous(memory_format=torch.channels_last) for v in (x, z))
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            photo_logits, drawn_logits, cls, patches = self.forward_student(x, z)
        own = F.cross_entropy(photo_logits.float(), labels, label_smoothing=0.1, reduction="none")
        other = F.cross_entropy(photo_logits.float(), labels.roll(1), label_smoothing=0.1, reduction="none")
        by_labels = self.args.labels * (weight * own + (1 - weight) * other).mean()
        by_drawings = self.args.drawn * F.cross_entropy(drawn_logits.float(), which, label_smoothing=0.1)
        by_teachers = torch.zeros((), device=photographs.device)
        for (cls_wanted, patches_wanted), c, p in zip(wanted, cls, patches, strict=True):
            by_teachers = by_teachers + distance(c, cls_wanted) + self.args.patches * distance(p, patches_wanted)
        return torch.stack([by_labels, by_drawings, self.args.distil * by_teachers / max(1, len(wanted))])


def distance(said: Tensor, wanted: Tensor) -> Tensor:
    """1 - cosine, averaged."""
    return 1 - F.cosine_similarity(said.float(), wanted, dim=-1).mean()


# Steps in which a GPU compiles and chooses kernels; a budget of seconds starts after them.
_SETTLING = 3


class Clock:
    """Where the budget stands: by time, or by steps."""

    def __init__(self, seconds: float | None, steps: int | None) -> None:
        self.seconds, self.steps = (None, steps) if steps is not None else (seconds or 480.0, None)
        self.step, self._start = 0, time.perf_counter()
        self._last: dict[str, float] = {}

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self._start

    @property
    def progress(self) -> float:
        if self.steps:
            return min(1.0, self.step / self.steps)
        return min(1.0, self.elapsed / (self.seconds or 1)) if self.step >= _SETTLING else 0.0

    def goes_on(self) -> bool:
        return self.progress < 1

    def tick(self) -> None:
        self.step += 1
        if self.step == _SETTLING and self.seconds:
            self._start = time.perf_counter()

    def due(self, what: str, every: float) -> bool:
        if self.elapsed - self._last.get(what, 0.0) < every:
            return False
        self._last[what] = self.elapsed
        return True


def schedule(progress: float, warm_up: float = 0.05) -> float:
    """Linear warm-up, then half a cosine down to 1 %."""
    if progress < warm_up:
        return (progress + 0.002) / warm_up
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (progress - warm_up) / (1 - warm_up)))


def recipe(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments that shape the weights, without the places files were in."""
    chosen = {name: value for name, value in vars(args).items() if name not in ("out", "measure", "held", "device")}
    return {name: [p.name for p in value] if isinstance(value, list) else value for name, value in chosen.items()}


def groups(student: nn.Module, decay: float) -> list[dict[str, Any]]:
    """Weight decay for matrices and kernels only."""
    parameters = [(name, p) for name, p in student.named_parameters() if p.requires_grad]
    plain_names = ("cls_token", "pos_embed")
    decayed = [p for name, p in parameters if p.ndim > 1 and not name.endswith(plain_names)]
    rest = [p for name, p in parameters if p.ndim <= 1 or name.endswith(plain_names)]
    return [{"params": decayed, "weight_decay": decay}, {"params": rest, "weight_decay": 0.0}]


def floats(module: nn.Module) -> list[Tensor]:
    """Parameters and BatchNorm statistics: what a moving average is taken of."""
    return [v.detach() for v in module.state_dict().values() if v.is_floating_point()]


def measured(student: Student, exam: Exam, shots: int, device: torch.device) -> dict[str, float]:
    """Few-shot figures of the network as it is saved."""
    return exam.figures(extractor(plain(student).to(device)), shots, device)


def extractor(vit: nn.Module) -> Features:
    @torch.inference_mode()
    def features(pixels: Tensor) -> Tensor:
        return torch.cat([vit.forward_features(normalised(p.float() / 255))[:, 0] for p in pixels.split(512)])

    return features


@torch.inference_mode()
def classified(student: Student, pixels: Tensor) -> Tensor:
    features = extractor(plain(student).to(pixels.device))(pixels)
    return student.photographs(features).argmax(1)


def report(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
