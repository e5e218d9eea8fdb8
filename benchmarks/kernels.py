"""Where the GPU's time of a later session goes: seconds and launches by kind of kernel, and the
time it waits.

    python benchmarks/kernels.py --pets ssf,adapter,vpt_deep --step  # one step, on a GPU
    python benchmarks/kernels.py --pets ssf --out kernels.json         # a whole session

The third session of the workload of ``speed.py`` is learned under torch's profiler, or its recorded
step is replayed under it. *Busy* is the union of the times in which a kernel or a copy runs; the
rest of the wall clock the GPU waits for the host.
"""

import argparse
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from speed import WORKLOADS, now, prepared
from torch.profiler import ProfilerActivity, profile

from safecl.engine.cuda_graph import CudaGraph
from safecl.engine.learn import learn

REPLAYS = 20

# The first pattern that is found in a kernel's name says its kind.
KINDS = [
    ("attention backward", r"bprop|(flash|fmha|attention|cudnn).*(bwd|backward|dgrad|dq|do_o)"),
    ("attention forward", r"flash|fmha|attention|cudnn.*sdpa|mha"),
    ("matrix products", r"gemm|nvjet|cutlass|cublas|splitK|dot_kernel|gemv"),
    ("sums of SSF's gradient", r"^_sum\b|_sum_|^_finish|scale_grad"),
    ("layer norms", r"^_norm|layer_norm|LayerNorm"),
    ("fold of SSF", r"^_merge"),
    ("GELU", r"[Gg]elu"),
    ("concatenation, copies of layout", r"[Cc]at|copy|transpose|permute"),
    ("optimiser, clipping", r"multi_tensor|foreach|sgd|adam|lpnorm|FusedOpt"),
    ("crops", r"grid_sampl|upsample|interp|gather|index"),
    (
        "eigenvectors, factors, solves",
        r"syev|potr|trsm|getrf|larft|sytrd|ormtr|syevd|stedc|cusolver|trti",
    ),
    ("reductions", r"reduce|softmax|Softmax|sum"),
    ("elementwise", r"elementwise|vectorized|fill"),
]


def kind_of(name: str) -> str:
    return next((kind for kind, pattern in KINDS if re.search(pattern, name)), "other")


def profiled(work: dict[str, Any], pet: str, sessions: int, words: list[str]) -> dict[str, Any]:
    """The last of some sessions under the profiler."""
    stream, fit = prepared(work, pet, sessions, "cuda", words)
    for number in range(1, sessions):
        learn(fit.method, stream.open(number), fit)
    session = stream.open(sessions)
    place = fit.processes.device
    began = now(place)
    with profile(activities=[ProfilerActivity.CUDA]) as recorder:
        learn(fit.method, session, fit)
        wall = now(place) - began
    return {
        "pet": pet,
        "wall": wall,
        "steps": sum(phase["steps"] for phase in fit.phases),
        **table(recorder),
    }


class Recorded:
    """The graph of the latest step with a whole batch, of those that are recorded meanwhile."""

    def __enter__(self) -> "Recorded":
        self.graph = None
        self.record = CudaGraph._record
        self.alive = None
        most = 0

        def record(own: CudaGraph, inputs: tuple[Any, ...]) -> Any:
            nonlocal most
            found = self.record(own, inputs)
            if len(inputs[0]) >= most:
                self.graph = found[0]
                most = len(inputs[0])
                # inputs, optimiser and all else that a replay reads and writes
                self.alive = (
                    own,
                    found,
                )
            return found

        CudaGraph._record = record
        return self

    def __exit__(self, *error: object) -> None:
        CudaGraph._record = self.record


def replayed(work: dict[str, Any], pet: str, words: list[str]) -> dict[str, Any]:
    """The recorded step of the second session, which changes nothing but weights: some replays
    under the profiler.
    """
    stream, fit = prepared({**work, "epochs": 1, "later": 2}, pet, 2, "cuda", words)
    with Recorded() as recorded:
        for number in (1, 2):
            learn(fit.method, stream.open(number), fit)
    place = fit.processes.device
    for _ in range(REPLAYS):
        recorded.graph.replay()
    began = now(place)
    for _ in range(REPLAYS):
        recorded.graph.replay()
    wall = now(place) - began
    with profile(activities=[ProfilerActivity.CUDA]) as recorder:
        for _ in range(REPLAYS):
            recorded.graph.replay()
        now(place)
    return {"pet": pet, "wall": wall, "steps": REPLAYS, **table(recorder)}


def table(recorder: Any) -> dict[str, Any]:
    """Busy seconds; [seconds, launches] by kind of kernel and by name, the longest and the most
    frequent ones.
    """
    spans = []
    kinds = defaultdict(lambda: [0.0, 0])
    names = defaultdict(lambda: [0.0, 0])
    for event in recorder.events():
        if "CUDA" not in str(event.device_type):
            continue
        start = event.time_range.start
        end = event.time_range.end
        spans.append((start, end))
        for found in (kinds[kind_of(event.name)], names[event.name]):
            found[0] += (end - start) / 1e6
            found[1] += 1
    busy = 0.0
    until = 0.0
    for start, end in sorted(spans):
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    top = {
        name for i in (0, 1) for name, _ in sorted(names.items(), key=lambda item: -item[1][i])[:30]
    }
    return {"busy": busy / 1e6, "kinds": kinds, "top": {name: names[name] for name in top}}


def rows(found: dict[str, list[float]]) -> list[tuple[str, float, int]]:
    return sorted(
        ((name, seconds, int(count)) for name, (seconds, count) in found.items()),
        key=lambda row: -row[1],
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workload", choices=WORKLOADS, default="published")
    parser.add_argument("--pets", default="ssf,adapter,vpt_deep")
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--step", action="store_true", help="a recorded step alone")
    parser.add_argument("--out", type=Path)
    parser.add_argument("words", nargs="*", help="settings such as train.epochs=2")
    options = parser.parse_args()
    found = []
    for pet in options.pets.split(","):
        work = WORKLOADS[options.workload]
        one = (
            replayed(work, pet, options.words)
            if options.step
            else profiled(work, pet, options.sessions, options.words)
        )
        found.append(one)
        print(
            f"{pet}: {one['wall']:.3f} s, GPU busy {one['busy']:.3f} s, {one['steps']} steps",
            flush=True,
        )
        for kind, seconds, count in rows(one["kinds"]):
            print(
                f"| {kind} | {seconds:.3f} | {count:,} | {1e3 * seconds / one['steps']:.2f} |",
                flush=True,
            )
        for name, seconds, count in rows(one["top"]):
            print(f"    {seconds:.3f} {count:6d} {name[:160]}", flush=True)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
