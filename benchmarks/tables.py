"""Write the tables of the documents from the raw lines in benchmarks/results, and that of the file
format.

    python benchmarks/tables.py            # README.md and docs/*.md, in place
    python benchmarks/tables.py --cells    # print each of the 48 cells instead

A document holds a table between ``<!-- table NAME -->`` and ``<!-- end -->``; NAME is a function of
this file.
"""

import argparse
import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from scipy.stats import betabinom, binom

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
MARKED = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
STREAMS = {
    "cifar100_50x10": "CIFAR-100",
    "flowers102_20x12": "Flowers-102",
    "pacs_30x15": "PACS",
    "tiny_imagenet": "Tiny-ImageNet",
}
BACKBONES = {
    "vit_tiny_augreg": "ViT-Tiny/16",
    "dinov2_s14_reg4_b": "`reg4_b`",
    "dinov2_s14_a": "`a`",
    "safecl_micro": "embedded",
}
PETS = {"adapter": "adapter", "ssf": "SSF", "vpt_deep": "VPT-deep"}
PETS_SHOWN = ("ssf", "adapter", "vpt_deep")
BATCH = 48  # pictures in a step of the workloads of speed.py
SUMS = "sums of SSF's gradient"
METHODS = {
    "safe": "SAFE",
    "ranpac": "RanPAC",
    "slca": "SLCA",
    "ssiat": "SSIAT",
    "ease": "EASE",
    "lae": "LAE",
    "aper": "APER",
    "rsiat": "RSIAT",
    "mos": "MOS",
    "tuna": "TUNA",
    "layup": "LayUP",
    "loranpac": "LoRanPAC",
    "simplecil": "SimpleCIL",
    "coda": "CODA-Prompt",
    "dualprompt": "DualPrompt",
    "l2p": "L2P",
    "siprompts": "S-iPrompts",
    "finetune": "Fine-tuning",
    "finetune-full": "Fine-tuning, whole network",
    "joint": "joint, SSF",
    "joint-full": "joint, whole network",
    "joint-linear": "joint, linear probe",
}
TRUST = (
    "said − true",
    "at worst",
    "calibration error",
    "false alarms, 5 %",
    "near, before",
    "far",
    "near, now",
    "far",
)
WHO = ("safe gaussians", "ranpac")
SCALES = ("24", "200")  # training pictures per class
Run = dict[str, Any]


def runs(name: str = "cells_h200.jsonl") -> list[Run]:
    """Lines of cells.py with names for stream, backbone, PET and change; "last" is after the last
    session.
    """
    found = []
    for line in lines(name):
        given = line["given"]
        line["stream"] = STREAMS[given["folder"]]
        line["backbone"] = BACKBONES[Path(given["weights"] or given["backbone"]).stem]
        line["pet"], line["change"] = (
            PETS[given["pet"]],
            " ".join(given["words"][1:]).removeprefix("method."),
        )
        line["last"] = line["accuracy"][-1] | (
            {"ranpac": line["ranpac"]} if "ranpac" in line else {}
        )
        found.append(line)
    return found


def lines(name: str) -> list[Run]:
    return [json.loads(line) for line in (RESULTS / name).read_text(encoding="utf-8").splitlines()]


def grid() -> list[Run]:
    """The runs of 48 cells: all classes of a stream, ten or twelve in a session, or a domain."""
    return [run for run in runs() if run["given"]["step"] in (10, 12)]


def of_two(backbone: str) -> list[Run]:
    """The runs with two classes in every session."""
    both = [run for run in runs() if run["given"]["step"] == 2 and not run["given"]["first"]]
    return [run for run in both if run["backbone"] == backbone]


def by_cell(found: Iterable[Run]) -> list[list[Run]]:
    """The runs of each stream, backbone and PET, which differ by seed."""
    groups: dict[tuple[str, str, str], list[Run]] = {}
    for run in found:
        groups.setdefault((run["stream"], run["backbone"], run["pet"]), []).append(run)
    return list(groups.values())


def average(found: Iterable[Run], *names: str) -> list[float]:
    """The mean over cells of the mean over seeds."""
    cells = by_cell(found)
    return [mean(mean(run["last"][name] for run in cell) for cell in cells) for name in names]


def minus(found: Iterable[Run], name: str, other: str) -> list[float]:
    """For each cell, the difference of the means over seeds."""
    return [mean(run["last"][name] - run["last"][other] for run in cell) for cell in by_cell(found)]


def row(*cells: Any) -> str:
    return (
        f"|{'|'.join(f'{cell:.1f}' if isinstance(cell, float) else str(cell) for cell in cells)}|"
    )


def head(*cells: str) -> list[str]:
    return [row(*cells), "|" + "---|" * len(cells)]


def spread(values: list[float]) -> str:
    return f"{signed(mean(values))} ± {stdev(values):.1f}"


def signed(value: float, digits: int = 1) -> str:
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text if text.strip("+−0.") else text[1:]


def cells() -> list[str]:
    pets = ("SSF", "adapter", "VPT-deep")
    table = head("stream", "backbone", "untuned", "RanPAC", "slow", "fast", "SAFE", "bound", *pets)
    columns = ("untuned", "ranpac", "slow", "fast gaussians", "safe gaussians", "safe bound")

    def add(stream: str, backbone: str, found: list[Run]) -> None:
        gains = [
            mean(minus((run for run in found if run["pet"] == pet), "safe gaussians", "ranpac"))
            for pet in pets
        ]
        table.append(row(stream, backbone, *average(found, *columns), *map(signed, gains)))

    for stream in STREAMS.values():
        for backbone in BACKBONES.values():
            add(
                stream,
                backbone,
                [run for run in grid() if (run["stream"], run["backbone"]) == (stream, backbone)],
            )
    add("mean of 48 cells", "", grid())
    return table


def every_cell() -> list[str]:
    kinds = [
        f"{who} {kind}" for who in ("fast", "safe") for kind in ("stale", "gaussians", "bound")
    ]
    columns = ("untuned", "ranpac", "slow", *kinds)
    table = head("stream", "backbone", "PET", "seeds", *columns)
    for found in by_cell(grid()):
        run = found[0]
        table.append(
            row(run["stream"], run["backbone"], run["pet"], len(found), *average(found, *columns))
        )
    return table


def summary() -> list[str]:
    found = grid()
    gains = minus(found, "safe gaussians", "ranpac")

    def gain(key: str, value: str) -> str:
        return signed(
            mean(minus((run for run in found if run[key] == value), "safe gaussians", "ranpac"))
        )

    by_backbone = (f"{backbone} {gain('backbone', backbone)}" for backbone in BACKBONES.values())
    by_stream = (f"{stream} {gain('stream', stream)}" for stream in STREAMS.values())
    slow, fast, both = average(found, "slow", "fast gaussians", "safe gaussians")
    under, under_ranpac = (
        [run["last"][who] - run["last"]["untuned"] for run in found] for who in WHO
    )
    return [
        *head("claim", "number"),
        row("SAFE − RanPAC", f"**{signed(mean(gains))}** ({', '.join(by_backbone)})"),
        row("by stream", ", ".join(by_stream)),
        row(
            "cells below RanPAC",
            f"{below(gains)} of {len(gains)}; {below(gains, 0.5)} by more than 0.5",
        ),
        row("largest gain, largest loss of a cell", f"{signed(max(gains))}, {signed(min(gains))}"),
        row("SAFE against its learners", f"{both:.1f}; slow {slow:.1f}, fast {fast:.1f}"),
        row(
            "runs below the untuned backbone",
            f"{below(under)} of {len(found)}, at worst by {-min(under):.1f}; RanPAC"
            f" {below(under_ranpac)}, by {-min(under_ranpac):.1f}",
        ),
    ]


def below(values: list[float], by: float = 0.0) -> int:
    return sum(value < -by for value in values)


def readme() -> list[str]:
    gains = minus(grid(), "safe gaussians", "ranpac")
    return [
        (
            f"On {len(gains)} cells (four streams, four backbones, three PETs) `safe` is"
            f" {mean(gains):.1f} points above RanPAC with the same PET and features"
        ),
        (
            f"on average. The best cell gains {max(gains):.1f}; {below(gains)} are below RanPAC, at"
            f" worst by {-min(gains):.1f}: [docs/results.md](docs/results.md)."
        ),
    ]


def statistics() -> list[str]:
    kinds = {"stale": "stale", "gaussians": "following", "bound": "bound"}
    table = head(
        "stream", *(f"{who}: {kind}" for who in ("fast", "SAFE") for kind in kinds.values())
    )
    columns = [f"{who} {kind}" for who in ("fast", "safe") for kind in kinds]
    for stream in STREAMS.values():
        table.append(
            row(stream, *average((run for run in grid() if run["stream"] == stream), *columns))
        )
    return [*table, row("mean of 48 cells", *average(grid(), *columns))]


def sessions() -> list[str]:
    table = head(
        "backbone",
        "sessions",
        "RanPAC",
        "untuned",
        "slow",
        "fast",
        "SAFE",
        "SAFE, stale",
        "SAFE, bound",
    )
    columns = ("untuned", "slow", "fast gaussians", "safe gaussians", "safe stale", "safe bound")
    for backbone in BACKBONES.values():
        for place, number in ((0, 10), (1, 20), (4, 50)):
            found = [run | {"last": run["accuracy"][place]} for run in of_two(backbone)]
            rival = (
                mean(run["ranpac every"][place] for run in found) if "ranpac" in found[0] else "–"
            )
            table.append(row(backbone, number, rival, *average(found, *columns)))
    return table


def losses() -> list[str]:
    """The cells in which SAFE's defaults are furthest behind something simpler."""
    table = head("where", "SAFE", "better", "difference")
    names = {
        "ranpac": "RanPAC",
        "untuned": "untuned",
        "slow": "its slow learner",
        "fast gaussians": "its fast learner",
    }
    found = []
    for cell in by_cell(grid()):
        ours, *others = average(cell, "safe gaussians", *names)
        most = max(others)
        name = [*names.values()][others.index(most)]
        where = ", ".join(cell[0][key] for key in ("stream", "backbone", "pet"))
        found.append((ours - most, row(where, ours, f"{name} {most:.1f}", signed(ours - most))))
    return [*table, *(line for _, line in sorted(found)[:5])]


def claims() -> list[str]:
    """The six claims of the paper: as printed with ViT-Tiny/16, and SAFE's defaults over backbones
    and PETs.
    """
    with (RESULTS / "claims_tiny_h200.csv").open(encoding="utf-8") as file:
        found = {
            (one["pictures per class"], one["run"], one["seed"], one["output"]): one
            for one in csv.DictReader(file)
        }

    def finals(scale: str, run: str, output: str) -> list[float]:
        return [float(found[scale, run, seed, output]["final"]) for seed in "012"]

    def printed(output: str, run: str, other: str) -> list[str]:
        """The final accuracy of an output of SAFE as printed minus that of another run, seed by
        seed.
        """
        pairs = [
            zip(finals(scale, "preset=paper", output), finals(scale, run, other), strict=True)
            for scale in SCALES
        ]
        return [spread([ours - theirs for ours, theirs in pair]) for pair in pairs]

    def without(change: str) -> list[str]:
        """Of SAFE's defaults: on eight cells with SSF alone."""
        key = ("stream", "backbone", "seed")
        changed = {
            tuple(run[k] for k in key): run
            for run in runs("claims_h200.jsonl")
            if run["change"] == change
        }
        base = [
            run for run in grid() if run["pet"] == "SSF" and tuple(run[k] for k in key) in changed
        ]

        def apart(run: Run) -> float:
            other: float = changed[tuple(run[k] for k in key)]["last"]["fast gaussians"]
            return run["last"]["fast gaussians"] - other

        return [
            *printed("fast", f"preset=paper method.{change}", "fast"),
            f"{defaults(apart, base)[0]}¹",
        ]

    def aggregated(rule: str) -> list[str]:
        ours = ["–"] if rule == "concat" else defaults(of("safe entropy", f"safe {rule}"))
        return [*printed("safe", f"preset=paper method.answer.aggregation={rule}", "safe"), *ours]

    def late(scale: str) -> str:
        """The fast learner minus the slow one on the classes of the later half of the sessions."""
        differences = []
        for seed in "012":
            lines = [
                found[scale, "preset=paper", seed, who]["by session"].split()
                for who in ("fast", "slow")
            ]
            fast, slow = (mean(map(float, line[len(line) // 2 :])) for line in lines)
            differences.append(fast - slow)
        return spread(differences)

    def defaults(value: Callable[[Run], float], among: list[Run] | None = None) -> list[str]:
        differences = [mean(map(value, cell)) for cell in by_cell(among or grid())]
        return [f"{signed(mean(differences))} ({sum(d > 0 for d in differences)})"]

    def later(run: Run) -> float:
        half = run["sessions"] // 2
        return mean(run["by test"]["fast gaussians"][half:]) - mean(run["by test"]["slow"][half:])

    def of(name: str, other: str) -> Callable[[Run], float]:
        return lambda run: run["last"][name] - run["last"][other]

    paper = "preset=paper"
    ranpac = "preset=ranpac-published"
    return [
        *head("final accuracy", "as printed, 24", "200", "defaults"),
        row("slow − RanPAC", *printed("slow", ranpac, "ranpac"), *defaults(of("slow", "ranpac"))),
        row("fast − slow, classes of the later half", *map(late, SCALES), *defaults(later)),
        row(
            "SAFE − slow", *printed("safe", paper, "slow"), *defaults(of("safe gaussians", "slow"))
        ),
        row(
            "SAFE − fast",
            *printed("safe", paper, "fast"),
            *defaults(of("safe gaussians", "fast gaussians")),
        ),
        row("fast − fast without L_cos", *without("guide.lambda_cos=0")),
        row("fast − fast without L_s↔f", *without("guide.lambda_cross=0")),
        row("fast: slow teacher − PTM", *without("guide.teacher=ptm")),
        row("fast: slow teacher − fast of t−1", *without("guide.teacher=previous")),
        row("SAFE: entropy − sum", *aggregated("add")),
        row("SAFE: entropy − maximum", *aggregated("max")),
        row("SAFE: entropy − concatenation", *aggregated("concat")),
        row(
            "SAFE: by errors − by entropy",
            "–",
            "–",
            *defaults(of("safe gaussians", "safe entropy")),
        ),
    ]


def transfer() -> list[str]:
    with (RESULTS / "table-slow.csv").open(encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    names = [
        re.sub(r"Baseline \+ | \(slow learner\)|Baseline \(|\)", "", line[""]) for line in found
    ]
    ours = (
        f"{float(line['Final ours']):.1f} ± {float(line['Final ours ±']):.1f}" for line in found
    )
    papers = (f"{float(line['Final paper']):.1f}" for line in found)
    return [*head("", *names), row("ours", *ours), row("paper", *papers)]


def rivals() -> list[str]:
    """Every method by its preset: how far it is from SAFE with SSF in the same cell, on the same
    pictures and seeds.

    A line of later than the others names the accuracy of SAFE beside it.
    """
    ours: dict[tuple[str, str], dict[int, float]] = {}
    found: dict[str, dict[tuple[str, str], list[float]]] = {}
    for line in sorted(lines("rivals_h200.jsonl"), key=lambda line: line["preset"] != "safe"):
        cell = (STREAMS[line["folder"]], BACKBONES[line["backbone"]])
        seed = line["seed"]
        if line["preset"] == "safe":
            ours.setdefault(cell, {})[seed] = line["final"]
        else:
            by = found.setdefault(METHODS[line["preset"]], {})
            by.setdefault(cell, []).append(line["final"] - line.get("safe", ours[cell][seed]))
    order = [*BACKBONES.values(), *STREAMS.values()]
    cells = sorted(ours, key=lambda cell: [order.index(name) for name in reversed(cell)])
    behind = {name: [by[cell] for cell in cells] for name, by in found.items()}
    table = head("method", *(f"{stream}, {backbone}" for stream, backbone in cells), "mean")
    table.append(
        row("**SAFE**", *(own := [mean(ours[cell].values()) for cell in cells]), mean(own))
    )
    for name, by in sorted(behind.items(), key=lambda each: -mean(map(mean, each[1]))):
        texts = [signed(mean(one)) + {1: "¹", 2: "²"}.get(len(one), "") for one in by]
        table.append(row(name, *texts, signed(mean(map(mean, by)))))
    ahead = [
        max(mean(by[i]) for name, by in behind.items() if "joint" not in name)
        for i in range(len(cells))
    ]
    table.append(
        row(
            "next to SAFE, joint aside",
            *map(signed, ahead),
            f"first in {below(ahead)} of {len(cells)}",
        )
    )
    return table


def float32() -> list[str]:
    """SAFE with SSF: bf16 with recorded steps and fused kernels, of the cells and once more, and
    float32 without.
    """
    cells = {
        (run["stream"], run["backbone"], run["pet"], run["seed"]): run["own"]["safe"]
        for run in grid()
    }
    found: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for run in runs("float32_h200.jsonl"):
        bf16 = cells[run["stream"], run["backbone"], run["pet"], run["seed"]]
        found.setdefault((run["stream"], run["backbone"]), []).append(
            (bf16, run["bf16"], run["own"]["safe"])
        )
    table = head(
        "stream", "backbone", "bf16", "bf16 again", "float32", "bf16 − float32", "bf16 − bf16 again"
    )
    for cell, seeds in found.items():
        each = [f"{mean(one):.1f} ± {stdev(one):.1f}" for one in zip(*seeds, strict=True)]
        plain, again = ([first - rest[place] for first, *rest in seeds] for place in (1, 0))
        table.append(row(*cell, *each, spread(plain), spread(again)))
    return table


def first_session() -> list[str]:
    table = head("first session", "RanPAC, s", "SAFE, s", "ratio", "pilots, s", "slow learner, s")
    groups: dict[str, list[Run]] = {}
    for line in lines("first_session.jsonl"):
        where = f"{line['machine']}, {line['ranpac']['pictures']:,} pictures, {line['of']}"
        groups.setdefault(where, []).append(line)
    for where, found in groups.items():
        ranpac, safe = (
            mean(line[name]["seconds"] for line in found) for name in ("ranpac", "safe")
        )
        pilots = mean(line["safe"]["pilot1"] + line["safe"]["pilot2"] for line in found)
        slow = mean(line["safe"]["slow"] for line in found)
        table.append(row(where, ranpac, safe, f"{safe / ranpac:.2f}", pilots, slow))
    return table


def waiting() -> list[str]:
    """Seconds of the processor, of this version and of another, over those of a plain process."""
    found = {line["what"]: line["processor"] for line in lines("seconds_cpu.jsonl")}
    table = head("command", "s", "before, s", "ratio", "to", "s")
    plain = {"help": "import typer, rich"}
    plain |= dict.fromkeys(("first session", "later session"), "plain loop")
    for what in ("help", "a classifier", "predict", "first session", "later session"):
        other = plain.get(what, "import torch")
        own, before, least = (found[name] for name in (what, f"before: {what}", other))
        table.append(
            row(what, f"{own:.2f}", f"{before:.2f}", f"{own / least:.2f}", other, f"{least:.2f}")
        )
    return table


def speed() -> Run:
    found: Run = json.loads((RESULTS / "speed_h200.json").read_text(encoding="utf-8"))
    return found


def later_session() -> list[str]:
    found = speed()
    parts = ("training", "features", "heads", "evaluation", "saving")
    table = head("network", "PET", *parts, "rest", "whole")
    for workload, network in (("published", "ViT-B/16"), ("small", "ViT-S/16")):
        for pet, measured in found[workload].items():
            for name, who in (
                ("later session", PETS.get(pet, "")),
                ("plain later", "plain reference"),
            ):
                if isinstance(measured, dict) and name in measured.get("rows", ()):
                    taken = [measured["rows"][name][part] for part in parts]
                    whole = measured["rows"][name]["whole"]
                    shown = (
                        f"{part:.2f}" for part in (*taken, max(whole - sum(taken), 0.0), whole)
                    )
                    table.append(row(network, who, *shown))
    return table


def aims() -> list[str]:
    """What each number is, and what it is made of. Of several PETs: SSF, adapter and VPT-deep."""
    found = speed()
    published = found["published"]
    first = found["first"]
    grown = found["scale"]["sessions"]
    pets = [published[pet] for pet in PETS_SHOWN]
    later = [pet["rows"]["later session"] for pet in pets]
    steps = published["vpt_deep"]["sessions"][-1]["images"] / BATCH
    kernels = [next(one for one in found["step"] if one["pet"] == pet) for pet in PETS_SHOWN]
    stepping = [steps * one["wall"] / one["steps"] for one in kernels]
    floors = [pet["floor"] for pet in pets]
    ratios = [pet["evaluation"]["ratio"] for pet in pets]
    tuning = sum(first["safe phases"].values())
    wholes = [line["whole"] for line in later]
    _, before, last = grown
    growth = last["heads"] - before["heads"]
    many = 1_000_000 / 10_000  # sessions
    tiny, base = (
        {key: mean(line[key] for line in found["tiny"][who][2:]) for key in ("training", "whole")}
        for who in ("now", "base")
    )
    (step,) = found["step tiny"]
    small = sum(count for _, count in step["kinds"].values()) / step["steps"]

    def each(values: Iterable[float], digits: int = 2) -> str:
        return "/".join(f"{value:.{digits}f}" for value in values)

    def shares(parts: Iterable[float], wholes: Iterable[float]) -> str:
        return (
            f"{each((100 * part / whole for part, whole in zip(parts, wholes, strict=True)), 0)} %"
        )

    def kind(*names: str, of: Iterable[Run] = kernels) -> str:
        chosen = [one for one in of if any(name in one["kinds"] for name in names)]
        taken = [sum(one["kinds"].get(name, (0.0,))[0] for name in names) for one in chosen]
        return shares(taken, [one["busy"] for one in chosen])

    attention = kind("attention forward", "attention backward")
    rates = each((pet["rate"] / 1e12 for pet in pets), 0)
    return [
        *head("aim", "now", "what stops it"),
        row(
            "later session 3.2 s",
            each(wholes),
            f"its {steps:.1f} steps: {each(stepping)} s ({shares(stepping, wholes)}); features of"
            f" four networks ({shares([line['features'] for line in later], wholes)})",
        ),
        row(
            "training 1.9 floors",
            each(line["training"] / floor for line, floor in zip(later, floors, strict=True)),
            "steps alone"
            f" {each(taken / floor for taken, floor in zip(stepping, floors, strict=True))}; of"
            f" them products {kind('matrix products')}, attention {attention}, SSF's sums"
            f" {kind(SUMS)}, elementwise {kind('elementwise')}; a floor is {each(floors)} s at"
            f" {rates} TFLOP/s",
        ),
        row(
            "first session 8 s, warm",
            first["safe"],
            f"tuning: {tuning:.1f} s ({100 * tuning / first['safe']:.0f} %)",
        ),
        row(
            "2.2 × RanPAC's",
            f"{first['safe'] / first['ranpac']:.2f}, met",
            f"{first['safe steps'] / first['ranpac steps']:.2f} × the steps",
        ),
        row(
            "inference 1.5 timm passes",
            each(ratios),
            f"two networks, {min(ratios) / 2:.2f} to {max(ratios) / 2:.2f} each",
        ),
        row(
            "10⁶ pictures, 10⁴ classes: 600 s, 60 GB",
            f"over {100 * int(many * last['whole'] / 100):.0f} s, by {last['session']} of"
            f" {many:.0f} sessions; {last['peak'] / 1e9:.1f} GB, met",
            f"one epoch ({shares([last['training']], [last['whole']])}), features"
            f" ({shares([last['features']], [last['whole']])}); heads grow {growth:.2f} s per"
            " session",
        ),
        row(
            "session 100 at 1.2 × session 10, heads aside",
            f"{found['growth']['ratio']:.2f}, met",
            "–",
        ),
        row(
            "sessions of 240 pictures 1.5 × as fast as 824b141",
            f"{base['whole'] / tiny['whole']:.2f} × (ViT-Tiny/16; {tiny['whole']:.2f} s), first "
            f"{found['tiny']['base'][0]['whole'] / found['tiny']['now'][0]['whole']:.2f} ×",
            f"100 steps of {10 * tiny['training']:.1f} ms"
            f" ({shares([tiny['training']], [tiny['whole']])}):"
            f" {1e3 * step['wall'] / step['steps']:.1f} recorded, of which {small:.0f} kernels take"
            f" {1e3 * step['busy'] / step['steps']:.1f} (products"
            f" {kind('matrix products', of=[step])}, SSF's sums {kind(SUMS, of=[step])},"
            f" elementwise {kind('elementwise', of=[step])})",
        ),
    ]


def files() -> list[str]:
    """Seconds of reading a million small JPEG files, over those of torchvision's ImageFolder."""
    found = speed()["files"]["files"]
    rows = [
        row(
            name,
            *(
                f"{found[name][part] / found['torchvision'][part]:.{digits}f}"
                for part, digits in (("opening", 1), ("pass", 2))
            ),
        )
        for name in ("folder", "shards")
    ]
    return [*head("", "opening", "a pass"), *rows]


def kernels() -> list[str]:
    """Milliseconds per step by kind of kernel, for each PET."""
    found = speed()
    steps = dict[str, Run]()
    for one in found["step"]:
        name = PETS[one["pet"]]
        steps |= {
            f"{name} before": earlier
            for earlier in found["step before"]
            if earlier["pet"] == one["pet"]
        }
        steps[name] = one
    columns = list(steps.values())

    def add(kind: str, taken: list[float]) -> None:
        if max(taken) >= 5e-6:
            table.append(row(kind, *(f"{1e3 * part:.2f}" if part else "" for part in taken)))

    table = head("kind", *steps)
    kinds = {kind for one in columns for kind in one["kinds"]}
    by_kind = {
        kind: [one["kinds"].get(kind, (0.0,))[0] / one["steps"] for one in columns]
        for kind in kinds
    }
    for kind, taken in sorted(by_kind.items(), key=lambda item: (-max(item[1]), item[0])):
        add(kind, taken)
    for name, key in (("all kernels", "busy"), ("with the gaps between them", "wall")):
        add(name, [one[key] / one["steps"] for one in columns])
    return table


def scale() -> list[str]:
    table = head("pictures", "session", "features", "training", "heads", "whole", "peak, GB")
    for name, pictures, shown in (
        ("scale", "10,000", (1, 2, 3)),
        ("growth", "200", (2, 10, 50, 100)),
    ):
        for line in speed()[name]["sessions"]:
            if line["session"] in shown:
                parts = (f"{line[part]:.2f}" for part in ("features", "training", "heads", "whole"))
                table.append(row(pictures, line["session"], *parts, line["peak"] / 1e9))
    return table


def sizes() -> list[str]:
    table = head("M", "statistics, s", "solving, s", "peak, GB", "accuracy")
    for line in speed()["scale"]["sizes"]:
        taken = (f"{line[part]:.2f}" for part in ("add", "solve"))
        table.append(row(f"{line['M']:,}", *taken, line["peak"] / 1e9, 100 * line["accuracy"]))
    return table


def seconds() -> list[str]:
    table = head("method", "session, s", "training, s", "passes", "ratio")
    with (RESULTS / "methods_h200.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            numbers = [f"{float(line[key]):.2f}" for key in ("seconds", "training")]
            title = METHODS.get(line["method"], line["method"])
            table.append(
                row(title, *numbers, f"{float(line['passes']):,.0f}", f"{float(line['ratio']):.2f}")
            )
    return table


def header() -> list[str]:
    """Every field of a model file's header and thumbnails: a row is a part and a field, its type,
    what it is.
    """
    from safecl.classifier.modelfile.schema import ModelHeader, Thumbnails

    schema = ModelHeader.model_json_schema()
    more = Thumbnails.model_json_schema()
    defined = {**schema["$defs"], "Thumbnails": more, **more["$defs"]}
    parts = {
        "": schema,
        **{f"{name}.": part for name, part in defined.items() if name != "JsonValue"},
    }
    rows = []
    shared = schema["$defs"]["Other"]["properties"].keys()
    named: dict[str, str] = {}
    for part, facts in parts.items():
        step = "what" in facts["properties"]
        for name, field in facts["properties"].items():
            kind = "kind" if step and name == "what" else _type(field, named)
            owner = "Step." if step and name in shared else part
            rows.append(f"`{owner}{name}`|{kind}|{field.get('description', '')}")
    steps = [row for row in dict.fromkeys(rows) if row.startswith("`Step.")]
    types = [f"*{name}*|{bounds}|" for name, bounds in named.items()]
    return [
        "field|type|content",
        "---|---|---",
        *(row for row in rows if row not in steps),
        *steps,
        *types,
    ]


def _type(field: Run, named: dict[str, str]) -> str:
    """The type of a field of a JSON schema in a few words; what a title names goes into
    ``named``.
    """
    inner = partial(_type, named=named)
    title = field.get("title", "")
    if title[:1].islower():
        named[title] = inner({**field, "title": ""})
        return f"*{title}*"
    several = field.get("anyOf") or field.get("oneOf")
    kind = field.get("type", "anything")
    if several or "$ref" in field:
        return ", ".join(map(inner, several)) if several else field["$ref"].rpartition("/")[2]
    if "prefixItems" in field:
        kind = f"[{', '.join(map(inner, field['prefixItems']))}]"
    elif kind == "array":
        kind = f"list of {inner(field['items'])}"
    elif kind == "object":
        values = field.get("patternProperties", {}).values()
        kind = f"object of {inner([*values, field.get('additionalProperties')][0])}"
    keys = {"minimum": "≥", "maximum": "≤", "maxItems": "at most ", "maxLength": "length ≤"}
    limits = [
        f"{sign}{field[key]:,.10g}"
        for key, sign in keys.items()
        if key in field and "prefixItems" not in field
    ]
    limits += [f"`{field[key]}`" for key in ("pattern", "const") if key in field]
    return ", ".join([kind, *limits])


def inside(rate: float, alarms: int, tested: int, judged: int | None = None) -> bool:
    """Whether so many false alarms lie in the 95 % band of the binomial; with ``judged``, of a
    threshold by so many.
    """
    k = rate * ((judged or 0) + 1)
    chance = binom(tested, rate) if judged is None else betabinom(tested, k, judged + 1 - k)
    return bool(chance.ppf(0.025) <= alarms <= chance.ppf(0.975))


def beyond(line: Run) -> float:
    """How far the true accuracy is outside the interval."""
    low, high = line["interval"]
    return float(max(low - line["true"], line["true"] - high, 0.0))


def trust() -> list[str]:
    """What models say of themselves, against pictures that were held back: those that choices were
    made by apart.
    """
    found = lines("trust_h200.jsonl")
    table = head("models", "number", *TRUST)

    def add(name: str, chosen: list[Run]) -> None:
        off = [100 * abs(run["said"] - run["true"]) for run in chosen]
        shares = [100 * share for share in at_five_percent(chosen)]
        before = [
            100 * mean(run["scores"]["largest logit"][part] for run in chosen)
            for part in ("near", "far")
        ]
        error, (alarms, *now) = f"{mean(run['error'] for run in chosen):.3f}", shares
        table.append(row(name, len(chosen), mean(off), max(off), error, alarms, *before, *now))

    for order in (0, 1):
        add(f"order {order}", [run for run in found if run["order"] == order])
    add("glyphs, both orders", [run for run in found if run["data"] == "glyphs"])
    add("all", found)
    again = lines("trust_cpu.jsonl")
    add("eight of them", [run for run in found if run["cell"] in {one["cell"] for one in again}])
    add("these eight, since", again)
    return table


def at_five_percent(found: list[Run]) -> list[float]:
    """False alarms, near and far strangers found, as shares."""
    alarms = mean(run["false_alarms"]["0.05"][0] / run["false_alarms"]["0.05"][1] for run in found)
    return [
        alarms,
        *(mean(run["found"]["0.05"][part] for run in found) for part in ("near", "far")),
    ]


def promises() -> list[str]:
    """Against what a model promises of its own numbers."""
    found = lines("trust_h200.jsonl")
    off = [100 * (run["said"] - run["true"]) for run in found]
    out = [100 * beyond(run) for run in found]
    errors = [run["error"] for run in found]
    chance = mean(run["noise"] for run in found)
    table = [
        *head("promise", "measured"),
        row(
            "accuracy, said against true",
            f"{mean(map(abs, off)):.1f} points apart on average; bias {signed(mean(off))}",
        ),
        row(
            "its interval",
            f"{sum(o == 0 for o in out)} of {len(out)} inside; {max(out):.1f} points beyond at"
            " worst",
        ),
        row(
            "calibration error",
            f"{mean(errors):.3f} on average ({chance:.3f} by chance); {max(errors):.3f} at worst",
        ),
    ]
    for rate in ("0.01", "0.05", "0.2"):
        asked = [
            (run["judged"], *run["false_alarms"][rate])
            for run in found
            if run["false_alarms"][rate][1]
        ]
        share = 100 * mean(alarms / tested for _, alarms, tested in asked)
        both = sum(inside(float(rate), alarms, tested, judged) for judged, alarms, tested in asked)
        alone = sum(inside(float(rate), alarms, tested) for _, alarms, tested in asked)
        told = (
            f"{share:.1f} %; {both} of {len(asked)} in the beta-binomial band, {alone} in the"
            " binomial one"
        )
        table.append(row(f"false alarms at {float(rate):.0%}", told))
    return table


def strangers() -> list[str]:
    """Scores of being known, at 5 % false alarms."""
    found = lines("trust_h200.jsonl")
    table = head("score", "false alarms", "near found", "far found")
    for name in ("largest logit", "Mahalanobis", "nearest neighbours", "nearest mean"):
        shares = [run["scores"][name] for run in found if name in run["scores"]]
        table.append(
            row(
                name,
                *(100 * mean(one[part] for one in shares) for part in ("known", "near", "far")),
            )
        )
    table.append(
        row(
            "**largest logit with Mahalanobis**", *(100 * share for share in at_five_percent(found))
        )
    )
    return table


def frozen_scores() -> list[str]:
    """Scores of being known on features of a frozen backbone, at 5 % false alarms."""
    found = lines("frozen_cpu.jsonl")
    table = head("score", "false alarms", "near found", "far found", "near, AUROC", "far, AUROC")
    for name, first in found[0]["strangers"].items():
        if "estimated" not in first:
            continue
        own = [run["strangers"][name] for run in found]
        near, far = (
            [mean(one[part][i] for one in own) for i in (1, 0)] for part in ("near", "far")
        )
        alarms = mean(one["false alarms"] for one in own)
        shares = (alarms, near[0], far[0], near[1], far[1])
        table.append(row(name, *(100 * share for share in shares)))
    return table


LAST = tuple(f"{weight} 1 1" for weight in (1, 2, 4, 8))
TODAY = ("one", "one+", "three", "three+")
# what a ridge head reads, what it is chosen from, and by what
READ: dict[str, tuple[Iterable[str], str]] = {
    "today: one or three, with patches or not, by the first session": (TODAY, "first"),
    "the same, by all sessions": (TODAY, "evidence"),
    "one block": (("one",), ""),
    "seven apart, an equal share of M each": (("even 1 1 1",), ""),
    "one or that, by the first session": (("one", "even 1 1 1"), "first"),
    "one or that, by all sessions: two Gram matrices": (("one", "even 1 1 1"), "evidence"),
    "`ridge.blocks=apart`: seven, M / 3 for the last one, its weight by all sessions": (
        [f"third {weights}" for weights in LAST],
        "held",
    ),
    "M / 2 for the last one": ([f"half {weights}" for weights in LAST], "held"),
    "M / 2, and 1.2 M": ([f"half 1.2 {weights}" for weights in LAST], "held"),
    "M / 3, and 1.2 M": ([f"third 1.2 {weights}" for weights in LAST], "held"),
    "four blocks apart, M / 2": ([f"four {weights}" for weights in LAST], "held"),
    "two heads of 0.7 M, one block and seven: mean": (("both 0.7",), ""),
    "two heads of 0.86 M: mean": (("both 0.86",), ""),
}


def blocks() -> list[str]:
    """What a ridge head reads of a frozen backbone: final accuracy, then by how much others
    differ.
    """
    found = lines("blocks_cpu.jsonl")
    names = {"micro": "embedded", "vit_tiny": "ViT-Tiny/16", "reg4_b": "`reg4_b`"}
    keys = sorted({(run["backbone"], run["data"]) for run in found})
    titles = [f"{data}, {names[backbone]}" for backbone, data in keys]
    table = head("reads", *titles, "mean", "standard error")
    first: list[float] = []
    for name, (options, by) in READ.items():
        best = [
            run["found"][min(options, key=lambda one: run["found"][one][by] if by else 0)]
            for run in found
        ]
        said = [one["accuracy"] for one in best]
        plain = not first
        first = first or said
        less = said if plain else [a - b for a, b in zip(said, first, strict=True)]
        cells = [
            mean(x for x, run in zip(less, found, strict=True) if key == of_cell(run))
            for key in keys
        ]
        every = [*cells, mean(cells)]
        error = stdev(less) / len(less) ** 0.5
        shown = [*every, ""] if plain else [*map(signed, every), error]
        table.append(row(name, *shown))
    return table


def of_cell(run: Run) -> tuple[str, str]:
    return run["backbone"], run["data"]


def tuning() -> list[str]:
    """Shares of the error that tuning gained in the 48 cells, of all sessions and of later ones."""
    table = head(
        "streams", "runs", "all sessions: half", "nine of ten", "later: half", "nine of ten"
    )
    chosen = ("CIFAR-100", "Tiny-ImageNet")
    for name, own in (("chosen on", True), ("others", False)):
        found = [run for run in grid() if (run["stream"] in chosen) is own]
        shares: list[list[float]] = [[], []]
        for run in found:
            safe = run["last"]["safe gaussians"]
            untuned = run["last"]["untuned"]
            frozen = untuned if run["notes"][0]["untuned"] else run["last"]["slow"]
            for each, without in zip(shares, (untuned, frozen), strict=True):
                each.append((safe - without) / (100 - without))
        cuts = [f"{100 * quantile(each, p):.0f} %" for each in shares for p in (0.5, 0.9)]
        streams = ", ".join(sorted({run["stream"] for run in found}))
        table.append(row(f"{name}: {streams}", len(found), *cuts))
    return table


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def piloted() -> list[str]:
    """What pilots said, and what tuning the first session gained a model on a CPU."""
    table = head(
        "pictures", "backbone", "errs", "pilots", "said", "gained", "after another session"
    )
    groups: dict[tuple[str, str], list[Run]] = {}
    for line in lines("pays_cpu.jsonl"):
        groups.setdefault((line["backbone"], line["data"]), []).append(line)
    for (backbone, data), own in groups.items():
        errors = [100 * (1 - line["accuracy"]) for line in own]
        shares = [line["pilots"] for line in own]
        points = [share * error for share, error in zip(shares, errors, strict=True)]
        gained = [
            signed(mean(line["tuned"][i] - line["untuned"][i] for line in own)) for i in (0, 1)
        ]
        said = [f"{mean(errors):.1f} %", f"{signed(100 * mean(shares))} %", signed(mean(points))]
        names = {**BACKBONES, "vit_tiny_p8_64": "ViT-Tiny/8"}
        table.append(row(data, names[backbone], *said, *gained))
    return table


def drift() -> list[str]:
    """Streams with an alarm, and changed pictures before it."""
    found = lines("drift_cpu.jsonl")
    table = head(
        "stream", "streams", "false alarms", "noticed", "pictures, median", "most", "named"
    )
    for name in ("quiet", "sorted"):
        rows = [at for run in found for at in run[name]]
        table.append(row(name, len(rows), sum(at is not None for at in rows), "", "", "", ""))
    changes = list(dict.fromkeys(key.partition(",")[0] for key in found[0] if ", " in key))
    for change in changes:
        own = [run[key] for run in found for key in run if key.startswith(f"{change}, ")]
        delays = [delay for _, some, _ in own for delay in some]
        seen = sorted(delay for delay in delays if delay is not None and delay > 0)
        words = Counter[str]()
        for *_, named in own:
            words.update(named)
        named = ", ".join(f"{word} {count}" for word, count in words.most_common(2))
        false = sum(alarms for alarms, *_ in own)
        told = (len(delays), false, len(seen), median(seen), seen[-1], named)
        table.append(row(change, *told))
    return table


def sets() -> list[str]:
    """Sets of classes beside those of softmax, on the same models."""
    found = lines("frozen_cpu.jsonl")
    table = head("promised", "held, sets", "size", "held, softmax", "size")
    for coverage in ("0.8", "0.9", "0.95"):
        shown: list[float | str] = []
        for kind in ("sets", "softmax"):
            held, size = (
                mean(run["sets"][f"{kind} {coverage}"][i] for run in found) for i in (0, 2)
            )
            shown += [100 * held, f"{size:.2f}"]
        table.append(row(f"{100 * float(coverage):.0f} %", *shown))
    return table


def audit() -> list[str]:
    """Planted wrong labels in the first tenth of the rows, by what these are in order of."""
    found = [run for run in lines("frozen_cpu.jsonl") if run["data"] != "pacs"]
    names = list(found[0]["audit"])
    table = head("models", *names)
    for key in sorted({(run["data"], run["classes"]) for run in found}):
        own = [run["audit"] for run in found if (run["data"], run["classes"]) == key]
        shares = (100 * mean(one[name] for one in own) for name in names)
        table.append(row(f"{key[0]}, {key[1]} classes", *shares))
    return table


def architectures() -> list[str]:
    """Networks of timm by the PETs that they take; those that SAFE with SSF has tuned as well, and
    those that RanPAC has read alone.
    """
    found = {
        (line["name"], line["preset"]): line
        for line in lines("architectures.jsonl")
        if not line["error"]
    }
    by_pets: dict[tuple[str, ...], tuple[list[str], list[str]]] = {}
    for (name, preset), line in sorted(found.items()):
        if preset == "ranpac":
            tuned, read = by_pets.setdefault(tuple(line["pets"]), ([], []))
            (tuned if (name, "safe") in found else read).append(f"`{name}`")
    count = sum(preset == "ranpac" for _, preset in found)
    table = head(
        "PETs",
        f"`run safe pet=ssf` ({len(found) - count})",
        f"`run ranpac pet=none` alone (of {count})",
    )
    for pets in sorted(by_pets, key=len, reverse=True):
        tuned, read = by_pets[pets]
        shown = ", ".join(f"`{pet}`" for pet in pets if pet not in ("none", "full"))
        table.append(row(shown, ", ".join(tuned), ", ".join(read)))
    return table


TABLES: dict[str, Callable[[], list[str]]] = {
    function.__name__: function
    for function in (
        cells,
        summary,
        readme,
        statistics,
        sessions,
        losses,
        claims,
        transfer,
        rivals,
        first_session,
        waiting,
        later_session,
        aims,
        files,
        float32,
        kernels,
        scale,
        sizes,
        seconds,
        header,
        promises,
        trust,
        strangers,
        frozen_scores,
        blocks,
        drift,
        sets,
        tuning,
        piloted,
        audit,
        architectures,
    )
}


def written(text: str) -> str:
    """A document with its tables as the raw lines have them."""
    return MARKED.sub(
        lambda found: found[1] + "\n".join(TABLES[found[2]]()) + "\n" + found[3], text
    )


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", action="store_true", help="print each of the 48 cells")
    if parser.parse_args().cells:
        print("\n".join(every_cell()))
        return
    for path in documents():
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
