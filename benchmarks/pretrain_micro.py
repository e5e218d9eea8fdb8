"""Makes the weights of ``safecl_micro``: a student of a larger input's ViT, which also learns drawn characters.

    python benchmarks/pretrain_micro.py --photographs tiny_imagenet_0.npz tiny_imagenet_1.npz photographs_128 \
        --teacher vit_tiny_augreg.safetensors --measure flowers102_20x12 --seconds 360 --out safecl_micro.safetensors

The teacher sees a crop at its own size, the student the same crop at 64 and at 96 or 128 pixels, some of them coarser.
The student says the same of it: its CLS feature, and its patch tokens on the way there. It begins with the teacher's
blocks behind a new stem. No labels of photographs are used. Only the backbone is kept.
"""

import argparse
import copy
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from pretrain_data import Labelled, Looks, coarse, drawn, inverted, read_photographs, shuffled, sources
from pretrain_measure import exam_glyphs, figures
from pretrain_networks import SIZES, Student, Teacher, pooled, save
from torch import Tensor, nn

from safecl.streams.characters import PRETRAINING_POOL

# Width, depth and heads of the teacher, whose blocks the student begins with; kept in the weight file.
SHAPE = {"embed_dim": 192, "depth": 12, "num_heads": 3, "residual": [0, 1, 1]}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photographs", type=Path, nargs="+", required=True, help="folders or npz shards")
    parser.add_argument("--teacher", type=Path, required=True, help="safetensors of a timm ViT of the student's shape")
    parser.add_argument("--measure", type=Path, nargs="*", default=[], help="folders with train/…/CLASS, test/…/CLASS")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--shape", type=json.loads, default=SHAPE, help="JSON: embed_dim, depth, num_heads, residual, …"
    )
    parser.add_argument("--most", type=int, help="photographs of each path, if not all")
    parser.add_argument("--characters", type=int, default=len(PRETRAINING_POOL), help="how many characters to draw")
    parser.add_argument("--each", type=int, default=30, help="pictures of each character")
    budget = parser.add_mutually_exclusive_group(required=True)
    budget.add_argument("--seconds", type=float, help="train this long; the schedule follows the clock")
    budget.add_argument("--steps", type=int, help="train this many steps; the same seed gives the same weights")
    parser.add_argument("--batch", type=int, default=1024, help="photographs a step")
    parser.add_argument("--drawings", type=int, default=384, help="drawings a step at the smallest size")
    parser.add_argument("--mix", type=float, default=0.5, help="share of photographs mixed with another one")
    parser.add_argument("--least", type=float, default=0.2, help="smallest area of a crop")
    parser.add_argument("--lr", type=float, default=1.5e-3, help="of the stem")
    parser.add_argument("--lr-blocks", type=float, default=5e-4, help="of what began as the teacher's")
    parser.add_argument("--decay", type=float, default=0.05, help="weight decay")
    parser.add_argument("--hints", type=float, default=0.5, help="weight of the patch tokens' loss")
    parser.add_argument("--drawn", type=float, default=0.2, help="weight of the characters' loss")
    parser.add_argument("--ema", type=float, default=0.999)
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
    glyphs = exam_glyphs(args.glyphs)
    pools = read_photographs(args.photographs, args.most)
    counts = " and ".join(f"{len(pool)} of {pool.shape[-1]} px" for pool in pools)
    report(f"{counts}, {len(characters.labels)} drawings: {time.perf_counter() - start:.0f} s")
    pools, characters = [pool.to(device) for pool in pools], characters.to(device)
    teacher = Teacher(args.teacher, torch.bfloat16 if device.type == "cuda" else torch.float32).to(device)
    student = Student(args.shape, teacher.vit, len(characters.classes)).to(device)
    student.vit.patch_embed.to(memory_format=torch.channels_last)
    with torch.no_grad():
        some = next(sources(pools, args.batch))
        looks = Looks.random(args.batch, device, args.least, args.mix)
        teacher.settle(looks.at(some, teacher.size), SIZES[-1] // student.stride)
    trained, facts = train(student, teacher, pools, characters, args, device)
    save(trained, args.shape, args.out, facts)
    report(f"saved: {time.perf_counter() - start:.0f} s")
    facts["figures"] = figures(args.out, glyphs, args.measure, (SIZES[0], SIZES[-1]), args.shots, device)
    save(trained, args.shape, args.out, facts)
    report(json.dumps(facts))


def train(
    student: Student,
    teacher: Teacher,
    pools: Sequence[Tensor],
    characters: Labelled,
    args: argparse.Namespace,
    device: torch.device,
) -> tuple[Student, dict[str, Any]]:
    """The moving average of the student at the end of the budget, and what was done."""
    average = copy.deepcopy(student).eval().requires_grad_(False)
    optimiser = torch.optim.AdamW(groups(student, args), betas=(0.9, 0.98), fused=device.type == "cuda")
    losses_of = Losses(student, teacher, args)
    if device.type == "cuda":
        compile_blocks(student, teacher)
    batches = sources(pools, args.batch)
    order = shuffled(len(characters.labels), args.drawings, device)
    source, target = floats(student), floats(average)
    student.train()
    clock, first = Clock(args.seconds, args.steps), torch.zeros((), device=device)
    while clock.goes_on():
        for group in optimiser.param_groups:
            group["lr"] = group["highest"] * schedule(clock.progress, group["start"])
        if clock.progress > FROZEN:
            student.vit.patch_embed.eval()  # the stem's BatchNorm normalises as it will in use
        optimiser.zero_grad(set_to_none=True)
        i = next(order)
        losses = losses_of(next(batches), characters.pixels[i], characters.labels[i], clock.step)
        losses.sum().backward()
        losses = losses.detach()
        first = first if clock.step else losses.sum()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimiser.step()
        # Early averages forget the random start quickly.
        torch._foreach_lerp_(target, source, 1 - min(args.ema, (1 + clock.step) / (10 + clock.step)))
        clock.tick()
        if clock.due("say", 15):
            parts = " ".join(f"{name} {value:.3f}" for name, value in zip(Losses.names, losses.tolist(), strict=True))
            rate = clock.step * args.batch / clock.elapsed
            report(f"{clock.progress:5.1%} step {clock.step} ({parts}) {rate:.0f} photographs/s")
        if clock.due("save", 60):
            save(average, args.shape, args.out, {"unfinished": True})
    i = next(order)
    with torch.no_grad():
        judged = Losses(average, teacher, args)(next(batches), characters.pixels[i], characters.labels[i], 0)
    done = {
        "steps": clock.step,
        "first loss": round(first.item(), 4),
        "last loss": round(losses.sum().item(), 4),  # waits for the device, so the time below is all of it
        "losses of the average": dict(zip(Losses.names, [round(v, 4) for v in judged.tolist()], strict=True)),
        "seconds": round(clock.elapsed, 1),
        "photographs a second": round(clock.step * args.batch / clock.elapsed),
    }
    return average, {"recipe": recipe(args), "done": done}


class Losses:
    """The weighted losses of one batch at two sizes, as one tensor, so that nothing waits for the device."""

    names = ("cls 64", "hints 64", "drawn 64", "cls", "hints", "drawn")
    others = (SIZES[-1], *SIZES[1:])  # the larger sizes in turn

    def __init__(self, student: Student, teacher: Teacher, args: argparse.Namespace) -> None:
        self.student, self.teacher, self.args = student, teacher, args

    def __call__(self, photographs: list[Tensor], drawings: Tensor, which: Tensor, step: int) -> Tensor:
        """``photographs``: uint8, see ``sources``. Weighted losses (6,), in the order of ``names``."""
        device = drawings.device
        with torch.no_grad():
            looks = Looks.random(sum(map(len, photographs)), device, self.args.least, self.args.mix)
            poses = Looks.random(len(drawings), device, 0.5, flip=False, strength=0.4)
            cls, *hints = self.teacher.raw(looks.at(photographs, self.teacher.size))
        found = []
        for size, count in ((SIZES[0], len(drawings)), (self.others[step % len(self.others)], len(drawings) // 4)):
            with torch.no_grad():
                x = coarse(looks.at(photographs, size))
                z = inverted(coarse(poses.at([drawings], size)))[:count]
                pools = [pooled(hint, size // self.student.stride) for hint in hints]
                wanted = self.teacher.standardised([cls, *pools])
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                said, logits = self.student(x, z)
            pairs = zip(self.teacher.standardised(said), wanted, strict=True)
            by_cls, *by_hints = (F.smooth_l1_loss(own, other, beta=2.0) for own, other in pairs)
            by_drawings = F.cross_entropy(logits.float(), which[:count], label_smoothing=0.1)
            found += [by_cls, self.args.hints * torch.stack(by_hints).mean(), self.args.drawn * by_drawings]
        return torch.stack(found)


def compile_blocks(student: Student, teacher: Teacher) -> None:
    """All blocks of a network share one compiled function for each shape of input."""
    torch._dynamo.config.recompile_limit = 32
    for block in (*student.vit.blocks, *teacher.vit.blocks):
        block.compile(dynamic=False)


FROZEN = 0.4  # of the schedule, from when on the stem's statistics are frozen
# Steps in which a GPU compiles and chooses kernels; a budget of seconds starts after them.
_SETTLING = 2 * len(Losses.others)


class Clock:
    """Where the budget stands: by time, or by steps."""

    def __init__(self, seconds: float | None, steps: int | None) -> None:
        self.seconds, self.steps = seconds, steps
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
    chosen = {name: value for name, value in vars(args).items() if name not in ("out", "measure", "device")}
    named = {name: value.name if isinstance(value, Path) else value for name, value in chosen.items()}
    return {name: [p.name for p in value] if isinstance(value, list) else value for name, value in named.items()}


def groups(student: Student, args: argparse.Namespace) -> list[dict[str, Any]]:
    """New parameters, and later and slower those that began as the teacher's; weight decay for matrices and kernels."""
    found = []
    for new in (True, False):
        named = [
            (k, p) for k, p in student.named_parameters() if new == k.startswith(("vit.patch_embed", "characters"))
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
