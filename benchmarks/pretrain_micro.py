"""Makes the weights of ``safecl_micro``: a student of a larger input's ViT, which also learns drawn
characters.

    python benchmarks/pretrain_micro.py --photographs tiny_imagenet_0.npz tiny_imagenet_1.npz \
        photographs_128 \
        --teacher vit_tiny_augreg.safetensors --measure flowers102_20x12 --seconds 440 \
        --out safecl_micro.safetensors

The teacher sees each of a fixed set of views once, at its own size; its features are kept. The
student sees them again and again at 64 pixels and at 96 or 128, some of them coarser, and learns to
say the same: its CLS feature, where that lies among those of other photographs, and the patch
tokens; beside them the labels of the photographs that have one. It begins with the teacher's blocks
behind a new stem. Only the backbone is kept.
"""

import argparse
import copy
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from pretrain_characters import PRETRAINING_POOL
from pretrain_data import (
    Chosen,
    Labelled,
    Photographs,
    Views,
    coarse,
    drawn,
    inverted,
    read_photographs,
    shuffled,
)
from pretrain_measure import exam_glyphs, figures
from pretrain_networks import SIZES, Student, Teacher, pooled, save
from torch import Tensor, nn

# Width, depth and heads of the teacher, whose blocks the student begins with; kept in the weight
# file.
SHAPE = {"embed_dim": 192, "depth": 12, "num_heads": 3, "residual": [0, 1, 1]}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--photographs", type=Path, nargs="+", required=True, help="folders or npz shards"
    )
    parser.add_argument(
        "--teacher",
        type=Path,
        required=True,
        help="safetensors of a timm ViT of the student's shape",
    )
    parser.add_argument(
        "--measure",
        type=Path,
        nargs="*",
        default=[],
        help="folders with train/…/CLASS, test/…/CLASS",
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--shape",
        type=json.loads,
        default=SHAPE,
        help="JSON: embed_dim, depth, num_heads, residual, …",
    )
    parser.add_argument("--most", type=int, help="photographs of each path, if not all")
    parser.add_argument(
        "--characters", type=int, default=len(PRETRAINING_POOL), help="how many characters to draw"
    )
    parser.add_argument("--each", type=int, default=30, help="pictures of each character")
    budget = parser.add_mutually_exclusive_group(required=True)
    budget.add_argument(
        "--seconds", type=float, help="train this long; the schedule follows the clock"
    )
    budget.add_argument(
        "--steps", type=int, help="train this many steps; the same seed gives the same weights"
    )
    parser.add_argument(
        "--views", type=int, default=600_000, help="views that the teacher sees, once each"
    )
    parser.add_argument(
        "--shares", type=float, nargs=3, default=[0.5, 0.4, 0.1], help="small, large, mosaics"
    )
    parser.add_argument(
        "--least",
        type=float,
        nargs=3,
        default=[0.35, 0.15, 0.25],
        help="smallest area of their crops",
    )
    parser.add_argument(
        "--mix", type=float, default=0.3, help="share of views mixed with another one"
    )
    parser.add_argument("--batch", type=int, default=1280, help="views a step at the smallest size")
    parser.add_argument(
        "--larger", type=int, default=192, help="how many of them also at a larger size"
    )
    parser.add_argument(
        "--drawings", type=int, default=256, help="drawings a step at the smallest size"
    )
    parser.add_argument("--lr", type=float, default=1.5e-3, help="of the stem")
    parser.add_argument(
        "--lr-blocks", type=float, default=5e-4, help="of what began as the teacher's"
    )
    parser.add_argument("--decay", type=float, default=0.05, help="weight decay")
    parser.add_argument("--hints", type=float, default=0.5, help="weight of the patch tokens' loss")
    parser.add_argument(
        "--among", type=float, default=1.0, help="weight of the loss on the place among others"
    )
    parser.add_argument("--sharpness", type=float, default=20.0, help="of the place among others")
    parser.add_argument("--labels", type=float, default=0.3, help="weight of the labels' loss")
    parser.add_argument("--drawn", type=float, default=0.4, help="weight of the characters' loss")
    parser.add_argument("--ema", type=float, default=0.999)
    parser.add_argument("--shots", type=int, default=20)
    parser.add_argument(
        "--glyphs", type=int, default=50, help="characters of the stream to measure on"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    start = time.perf_counter()
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    device = torch.device(args.device)
    # Processes that draw are forked, which must come before anything touches the GPU.
    characters = drawn(PRETRAINING_POOL[: args.characters], args.each, args.seed + 1000)
    glyphs = exam_glyphs(args.glyphs)
    photographs = read_photographs(args.photographs, device, args.most)
    counts = " + ".join(str(int((photographs.kinds == kind).sum())) for kind in range(3))
    report(
        f"{counts} photographs, {len(characters.labels)} drawings:"
        f" {time.perf_counter() - start:.0f} s"
    )
    teacher = Teacher(args.teacher, torch.bfloat16 if device.type == "cuda" else torch.float32).to(
        device
    )
    lessons = Lessons.by(teacher, photographs, characters.to(device), args)
    report(f"seen by the teacher: {time.perf_counter() - start:.0f} s")
    trained, facts = train(teacher, lessons, args, device)
    save(trained, args.shape, args.out, facts)
    report(f"saved: {time.perf_counter() - start:.0f} s")
    facts["figures"] = figures(
        args.out, glyphs, args.measure, (SIZES[0], SIZES[-1]), args.shots, device
    )
    save(trained, args.shape, args.out, facts)
    report(json.dumps(facts))


@dataclass
class Lessons:
    """What the student is shown, and what the teacher said of it, standardised: cls (V, d), patches
    (V, GRID², d).

    anchors: (K, d), unit vectors, the CLS features of some views; the place of a view among others
    is by them.
    """

    photographs: Photographs
    views: Views
    characters: Labelled
    cls: Tensor
    patches: Tensor
    moments: Tensor  # (2, 2, d): of CLS and of patch tokens, mean and deviation
    anchors: Tensor

    @classmethod
    @torch.no_grad()
    def by(
        cls,
        teacher: Teacher,
        photographs: Photographs,
        characters: Labelled,
        args: argparse.Namespace,
    ) -> "Lessons":
        device = photographs.pixels.device
        if device.type == "cuda":
            compile_blocks(teacher.network)
        shares, least = torch.tensor([args.shares, args.least], device=device)
        counts = photographs.kinds.bincount(minlength=3)
        weights = (shares / counts.clamp(min=1))[photographs.kinds]
        which = weights.multinomial(args.views, replacement=True)
        views = Views.random(which, least[photographs.kinds[which]], args.mix)
        found: list[Tensor] = []
        everything = torch.arange(args.views, device=device).tensor_split([len(views.own)])
        for mixed in (True, False):
            for positions in everything[1 - mixed].split(1024):
                chosen = (
                    Chosen(positions, positions[:0]) if mixed else Chosen(positions[:0], positions)
                )
                said = teacher(views.at(photographs.pixels, chosen, teacher.size), GRID)
                if not found:
                    spread = [part.float().flatten(0, -2) for part in said]
                    moments = torch.stack(
                        [torch.stack([f.mean(0), f.std(0) + 1e-3]) for f in spread]
                    )
                    found = [
                        torch.empty(args.views, *part.shape[1:], dtype=part.dtype, device=device)
                        for part in said
                    ]
                for kept, part, (mean, std) in zip(found, said, moments, strict=True):
                    kept[positions] = ((part.float() - mean) / std).to(kept.dtype)
        anchors = F.normalize(found[0][everything[1][:ANCHORS]].float(), dim=1)
        return cls(photographs, views, characters, *found, moments, anchors)


def train(
    teacher: Teacher, lessons: Lessons, args: argparse.Namespace, device: torch.device
) -> tuple[Student, dict[str, Any]]:
    """The moving average of the student at the end of the budget, and what was done."""
    student = Student(
        args.shape, teacher.network, lessons.photographs.classes, len(lessons.characters.classes)
    ).to(device)
    student.vit.patch_embed.to(memory_format=torch.channels_last)
    average = copy.deepcopy(student).eval().requires_grad_(False)
    optimiser = torch.optim.AdamW(
        groups(student, args), betas=(0.9, 0.98), fused=device.type == "cuda"
    )
    if device.type == "cuda":
        compile_blocks(student.vit)
    losses_of = Losses(student, lessons, args)
    descend = Recorded(student, losses_of) if device.type == "cuda" else Plain(student, losses_of)
    batches = lessons.views.batches(args.batch)
    drawings = shuffled(len(lessons.characters.labels), args.drawings, device)
    source = floats(student)
    target = floats(average)
    student.train()
    clock = Clock(args.seconds, args.steps)
    first = torch.zeros((), device=device)
    while clock.goes_on():
        for group in optimiser.param_groups:
            group["lr"] = group["highest"] * schedule(clock.progress, group["start"])
        if clock.progress > FROZEN:
            student.vit.patch_embed.eval()  # the stem's BatchNorm normalises as it will in use
        losses = descend(next(batches), next(drawings), clock.step)
        first = first if clock.step else losses.sum()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimiser.step()
        # Early averages forget the random start quickly.
        torch._foreach_lerp_(
            target, source, 1 - min(args.ema, (1 + clock.step) / (10 + clock.step))
        )
        clock.tick()
        if clock.due("say", 15):
            parts = " ".join(
                f"{name} {value:.3f}"
                for name, value in zip(Losses.names, losses.tolist(), strict=True)
            )
            rate = clock.step * args.batch / clock.elapsed
            report(f"{clock.progress:5.1%} step {clock.step} ({parts}) {rate:.0f} views/s")
        if clock.due("save", 60):
            save(average, args.shape, args.out, {"unfinished": True})
    with torch.no_grad():
        judged = Losses(average, lessons, args)(next(batches), next(drawings), 0)
    done = {
        "steps": clock.step,
        "first loss": round(first.item(), 4),
        # waits for the device, so the time below is all of it
        "last loss": round(losses.sum().item(), 4),
        "losses of the average": dict(
            zip(Losses.names, [round(v, 4) for v in judged.tolist()], strict=True)
        ),
        "seconds": round(clock.elapsed, 1),
        "views a second": round(clock.step * args.batch / clock.elapsed),
    }
    return average, {"recipe": recipe(args), "done": done}


class Losses:
    """The weighted losses of one batch at two sizes, as one tensor, so that nothing waits for the
    device.
    """

    kinds = ("cls", "hints", "among", "labels", "drawn")
    names = (*(f"{kind} {SIZES[0]}" for kind in kinds), *kinds)
    others = (SIZES[-1], *SIZES[1:])  # the larger sizes in turn

    def __init__(self, student: Student, lessons: Lessons, args: argparse.Namespace) -> None:
        self.student = student
        self.lessons = lessons
        self.args = args

    def __call__(self, chosen: Chosen, drawings: Tensor, step: int) -> Tensor:
        """``drawings``: positions. Weighted losses, in the order of ``names``."""
        larger = self.others[step % len(self.others)]
        fewer = drawings[: len(drawings) * self.args.larger // self.args.batch]
        return torch.cat(
            [
                self.at(SIZES[0], chosen, drawings),
                self.at(larger, chosen.some(self.args.larger), fewer),
            ]
        )

    def at(self, size: int, chosen: Chosen, drawings: Tensor) -> Tensor:
        """Weighted losses at one size, in the order of ``kinds``."""
        lessons = self.lessons
        args = self.args
        device = drawings.device
        with torch.no_grad():
            poses = Views.random(
                drawings, torch.full(drawings.shape, 0.5, device=device), flip=False, strength=0.4
            )
            everything = Chosen(drawings[:0], torch.arange(len(drawings), device=device))
            z = inverted(coarse(poses.at(lessons.characters.pixels, everything, size)))
            x = coarse(lessons.views.at(lessons.photographs.pixels, chosen, size))
            cls = lessons.cls[chosen.all].float()
            patches = pooled(lessons.patches[chosen.all], size // self.student.stride).float()
            place = (F.normalize(cls, dim=1) @ lessons.anchors.T * args.sharpness).softmax(1)
            labels = lessons.photographs.labels[lessons.views.which[chosen.whole]]
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            *said, of_labels, of_drawings = self.student(x, z)
        own_cls, own_patches = (
            (f.float() - mean) / std for f, (mean, std) in zip(said, lessons.moments, strict=True)
        )
        own_place = F.normalize(own_cls, dim=1) @ lessons.anchors.T * args.sharpness
        of_labels = of_labels[len(chosen.mixed) :].float()
        by_labels = F.cross_entropy(
            of_labels, labels, ignore_index=-1, label_smoothing=0.1, reduction="sum"
        )
        which = lessons.characters.labels[drawings]
        return torch.stack(
            [
                F.smooth_l1_loss(own_cls, cls, beta=2.0),
                args.hints * F.smooth_l1_loss(own_patches, patches, beta=2.0),
                args.among * F.kl_div(own_place.log_softmax(1), place, reduction="batchmean"),
                args.labels * by_labels / len(labels),
                args.drawn * F.cross_entropy(of_drawings.float(), which, label_smoothing=0.1),
            ]
        )


class Plain:
    """Losses of a batch and, in ``grad``, their gradients."""

    def __init__(self, student: Student, losses: Losses) -> None:
        self.student = student
        self.losses = losses

    def __call__(self, chosen: Chosen, drawings: Tensor, step: int) -> Tensor:
        self.student.zero_grad(set_to_none=True)
        losses = self.losses(chosen, drawings, step)
        losses.sum().backward()
        return losses.detach()


class Recorded(Plain):
    """The same by CUDA graphs: a step has more than 2,000 small kernels, which Python launches
    slower than they run.
    """

    def __init__(self, student: Student, losses: Losses) -> None:
        super().__init__(student, losses)
        self.graphs: dict[
            tuple[int, bool], tuple[torch.cuda.CUDAGraph, list[Tensor | None], Tensor]
        ] = {}

    def __call__(self, chosen: Chosen, drawings: Tensor, step: int) -> Tensor:
        size = Losses.others[step % len(Losses.others)]
        training = self.student.vit.patch_embed.training
        if not self.graphs:
            self.chosen = Chosen(*map(torch.clone, chosen))
            self.drawings = drawings.clone()
        for kept, new in zip((*self.chosen, self.drawings), (*chosen, drawings), strict=True):
            kept.copy_(new)
        if (size, training) not in self.graphs:
            self.graphs[size, training] = self.record(step)
        graph, gradients, losses = self.graphs[size, training]
        graph.replay()
        for parameter, gradient in zip(self.student.parameters(), gradients, strict=True):
            parameter.grad = gradient
        return losses.clone()

    def record(self, step: int) -> tuple[torch.cuda.CUDAGraph, list[Tensor | None], Tensor]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # compiles, and chooses kernels
            for _ in range(3):
                super().__call__(self.chosen, self.drawings, step)
        torch.cuda.current_stream().wait_stream(stream)
        self.student.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            losses = super().__call__(self.chosen, self.drawings, step)
        return graph, [parameter.grad for parameter in self.student.parameters()], losses


def compile_blocks(vit: nn.Module) -> None:
    """All blocks of a network share one compiled function for each shape of input."""
    torch._dynamo.config.recompile_limit = 32
    for block in vit.blocks:
        block.compile(dynamic=False)


GRID = SIZES[-1] // 16  # the teacher's patch tokens are kept at the student's largest grid
ANCHORS = 4096
NEW = ("vit.patch_embed", "classes", "characters")  # what does not begin as the teacher's
FROZEN = 0.3  # of the schedule, from when on the stem's statistics are frozen
# Steps in which a GPU compiles and chooses kernels; a budget of seconds starts after them.
_SETTLING = 2 * len(Losses.others)


class Clock:
    """Where the budget stands: by time, or by steps."""

    def __init__(self, seconds: float | None, steps: int | None) -> None:
        self.seconds = seconds
        self.steps = steps
        self.step = 0
        self._start = time.perf_counter()
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
            report(f"compiled: {self.elapsed:.0f} s")
            self._start = time.perf_counter()

    def due(self, what: str, every: float) -> bool:
        if self.elapsed - self._last.get(what, 0.0) < every:
            return False
        self._last[what] = self.elapsed
        return True


def schedule(progress: float, start: float, warm_up: float = 0.05) -> float:
    """Nothing before ``start``, a linear warm-up, then half a cosine down to 0."""
    if progress < start + warm_up:
        return max(0.0, progress - start + 0.002) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (progress - start - warm_up) / (1 - start - warm_up)))


def recipe(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments that shape the weights, without the places files were in."""

    def named(value: Any) -> Any:
        return (
            [named(part) for part in value]
            if isinstance(value, list)
            else getattr(value, "name", value)
        )

    return {
        name: named(value)
        for name, value in vars(args).items()
        if name not in ("out", "measure", "device")
    }


def groups(student: Student, args: argparse.Namespace) -> list[dict[str, Any]]:
    """New parameters, and later and slower those that began as the teacher's; weight decay for
    matrices and kernels.
    """
    found = []
    for new in (True, False):
        named = [
            (k, p)
            for k, p in student.named_parameters()
            if new == k.startswith(("vit.patch_embed", "classes", "characters"))
        ]
        decayed = [p for k, p in named if p.ndim > 1 and not k.endswith(("cls_token", "pos_embed"))]
        rest = [p for k, p in named if p.ndim <= 1 or k.endswith(("cls_token", "pos_embed"))]
        pace = {"highest": args.lr if new else args.lr_blocks, "start": 0.0 if new else 0.03}
        found += [
            {"params": decayed, "weight_decay": args.decay, **pace},
            {"params": rest, "weight_decay": 0.0, **pace},
        ]
    return found


def floats(module: nn.Module) -> list[Tensor]:
    """Parameters and BatchNorm statistics: what a moving average is taken of."""
    return [v.detach() for v in module.state_dict().values() if v.is_floating_point()]


def report(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
