"""SAFE against RanPAC and fine-tuning on real pictures and real weights, over seeds, PETs, protocols and backbones.

    python benchmarks/accuracy.py --assets DIR --out results.jsonl --jobs 6

DIR holds weight files (*.safetensors with timm metadata) and picture folders (train|test/CLASS, or
train|test/DOMAIN/CLASS). To measure finer than their few test pictures allow, both parts of a class are put together
and cut anew by the seed: 24 of CIFAR-100's 60 pictures (200 of 260 in its larger form), 20 of PACS's 45 and 20 of
Flowers-102's 32 are for training.

Every run is appended to --out as one JSON line; runs that are there already are not made again, so the command can be
stopped and repeated. The tables are printed at the end, or alone with --jobs 0.
"""

import argparse
import json
import multiprocessing
import os
import queue
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ORDERS = (1993, 1996, 1997, 1998, 1999)  # the field's seeds of the class order
STREAMS = {
    "cifar100": ["stream=csv:{split}", "stream.first=10", "stream.step=10", "stream.margin=1"],
    "cifar100-200": [
        "stream=csv:{split}",
        "stream.first=10",
        "stream.step=10",
        "stream.margin=1",
        "stream.duplicates=allow",
    ],
    "flowers102": ["stream=csv:{split}", "stream.first=12", "stream.step=10"],
    "pacs": ["stream=csv:{split}", "stream.protocol=domain"],
    "glyphs": ["stream=glyphs"],
    "glyphs-domain": ["stream=glyphs", "stream.protocol=domain", "stream.classes=12"],
}
FOLDERS = {
    "cifar100": ("cifar100_50x10", 24),
    "cifar100-200": ("cifar100_200x60_jpeg", 200),
    "flowers102": ("flowers102_20x12", 20),
    "pacs": ("pacs_30x15", 20),
}
BACKBONES = {
    "dinov2_s14_reg4_b": ["backbone={assets}/dinov2_s14_reg4_b.safetensors", "backbone.image_size=112"],
    "dinov2_s14_a": ["backbone={assets}/dinov2_s14_a.safetensors", "backbone.image_size=112"],
    "vit_tiny_augreg": ["backbone={assets}/vit_tiny_augreg.safetensors"],
    "vit_tiny_p8_64": ["backbone={assets}/vit_tiny_p8_64.safetensors"],
    "safecl_micro": [],
}
VARIANTS: dict[str, list[str]] = {
    "safe": ["safe"],
    "ranpac": ["ranpac"],
    # The paper's "fine-tune directly": nothing guides the fast learner, whose output is what counts, or holds it back.
    "direct": ["safe", "method.teacher=none", "method.memory=stale", "train.later_clip=null", "train.guard=false"],
    "plain": ["safe", "precision=fp32", "train.graphs=false"],  # SAFE without what makes it fast
    "finetune": ["finetune"],
}


def job_words(job: dict[str, Any], assets: str, extra: list[str]) -> list[str]:
    preset, *variant = job["words"]
    order = [f"stream.order_seed={ORDERS[job['seed']]}"] if "stream.first=" in " ".join(STREAMS[job["stream"]]) else []
    words = [*STREAMS[job["stream"]], *order, *BACKBONES[job["backbone"]], f"pet={job['pet']}", f"seed={job['seed']}"]
    cut = split(Path(assets), job["stream"], job["seed"]) if job["stream"] in FOLDERS else ""
    return [preset, *(word.format(assets=assets, split=cut) for word in words), *extra, *variant]


def split(assets: Path, stream: str, seed: int) -> Path:
    """A manifest that draws the training pictures of every class (and domain) from both folders."""
    name, count = FOLDERS[stream]
    file = assets / f"{name}_{count}_seed{seed}.csv"
    members: dict[str, list[Path]] = {}
    for path in sorted((assets / name).glob("*/**/*.*")):
        members.setdefault(str(path.relative_to(assets / name).parents[0]).partition("/")[2], []).append(path)
    rows = ["path,label,split" + (",domain" if stream == "pacs" else "")]
    for place, paths in sorted(members.items()):
        random.Random(f"{seed}/{place}").shuffle(paths)
        *domain, label = place.split("/")
        for i, path in enumerate(paths):
            rows.append(",".join([str(path), label, "train" if i < count else "test", *domain]))
    aside = file.with_name(f"{file.name}.{os.getpid()}")
    aside.write_text("\n".join(rows) + "\n")
    aside.replace(file)
    return file


def work(jobs: Any, results: Any, assets: str, extra: list[str]) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    from safecl.errors import SafeclError
    from safecl.experiments.config import load
    from safecl.experiments.launch import launch

    while True:
        try:
            job = jobs.get_nowait()
        except queue.Empty:
            return
        started = time.monotonic()
        preset, *words = job_words(job, assets, extra)
        with tempfile.TemporaryDirectory() as folder:
            try:
                answer: dict[str, Any] = launch(load(preset, words), Path(folder) / "run")
            except SafeclError as error:
                answer = {"error": str(error)}
        results.put({**job, **answer, "wall": time.monotonic() - started})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--assets", default="assets")
    parser.add_argument("--out", type=Path, default=Path("accuracy.jsonl"))
    parser.add_argument("--streams", default="cifar100,pacs")
    parser.add_argument("--backbones", default="dinov2_s14_reg4_b,dinov2_s14_a,vit_tiny_p8_64")
    parser.add_argument("--pets", default="ssf,adapter,vpt_deep")
    parser.add_argument("--variants", default="safe,ranpac,direct")
    parser.add_argument("--more", help="JSON file of further variants: name → [preset, key=value, …]")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; 0 only prints what is there")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no further run after this long")
    parser.add_argument("words", nargs="*", help="key=value words for every run")
    options = parser.parse_args()
    variants = VARIANTS | (json.loads(Path(options.more).read_text()) if options.more else {})
    done = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    key = ("backbone", "stream", "pet", "variant", "seed")
    there = {tuple(line[k] for k in key) for line in done}
    wanted = [
        {"backbone": b, "stream": s, "pet": p, "variant": v, "seed": int(n), "words": variants[v]}
        for n in options.seeds.split(",")
        for s in options.streams.split(",")
        for b in options.backbones.split(",")
        for p in options.pets.split(",")
        for v in options.variants.split(",")
    ]
    missing = [job for job in wanted if tuple(job[k] for k in key) not in there]
    if options.jobs:
        done += compute(missing, options)
    print(table(done))


def compute(jobs: list[dict[str, Any]], options: argparse.Namespace) -> list[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    todo, results = context.Queue(), context.Queue()
    for job in jobs:
        todo.put(job)
    arguments = (todo, results, os.path.abspath(options.assets), options.words)
    workers = [context.Process(target=work, args=arguments, daemon=True) for _ in range(min(options.jobs, len(jobs)))]
    for worker in workers:
        worker.start()
    found: list[dict[str, Any]] = []
    started = time.monotonic()
    while len(found) < len(jobs) and time.monotonic() - started < options.seconds:
        try:
            answer = results.get(timeout=5)
        except queue.Empty:
            if not any(worker.is_alive() for worker in workers):
                break
            continue
        found.append(answer)
        with options.out.open("a") as file:
            file.write(json.dumps(answer) + "\n")
        names = " ".join(str(answer[k]) for k in ("backbone", "stream", "pet", "variant", "seed"))
        final = answer.get("error") or {k: round(100 * v, 2) for k, v in answer["final"].items()}
        print(f"{time.monotonic() - started:6.0f} s  {names}  {final}  ({answer['wall']:.0f} s)", flush=True)
    for worker in workers:
        worker.kill()
    return found


def table(lines: list[dict[str, Any]]) -> str:
    """Markdown: final and average accuracy, mean ± spread over seeds, and the distance to RanPAC seed by seed."""
    rows = [
        "| backbone | stream | PET | variant | output | final | average | − RanPAC (mean, worst) |",
        "|" + "---|" * 8,
    ]
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault(tuple(line[k] for k in ("backbone", "stream", "pet", "variant")), []).append(line)
    for place, group in sorted(groups.items()):
        good = [line for line in group if "final" in line]
        if len(good) < len(group):
            rows.append(f"| {' | '.join(place)} | failed | {group[0].get('error')} | | |")
        for output in good[0]["final"] if good else ():
            base = {ln["seed"]: ln for ln in groups.get((*place[:3], "ranpac"), []) if "final" in ln}
            gaps = [
                100 * (ln["final"][output] - base[ln["seed"]]["final"]["ranpac"]) for ln in good if ln["seed"] in base
            ]
            gap = f"{statistics.mean(gaps):+.2f}, {min(gaps):+.2f}" if gaps and place[3] != "ranpac" else ""
            cells = [spread([line[kind][output] for line in good]) for kind in ("final", "average")]
            rows.append(f"| {' | '.join(place)} | {output} | {' | '.join(cells)} | {gap} |")
    return "\n".join(rows)


def spread(values: list[float]) -> str:
    percent = [100 * value for value in values]
    more = f" ± {statistics.stdev(percent):.2f}" if len(percent) > 1 else ""
    return f"{statistics.mean(percent):.2f}{more}"


if __name__ == "__main__":
    sys.exit(main())
