"""What do pilots know of the first session? The accuracy of the slow learner by loss and share, and the pilots' errors.

    python benchmarks/pilots.py --folder PICTURES --step 10 --each 24 --weights FILE --pet ssf --seeds 0,1 --out OUT

One JSON line for each seed. "accuracy": of a ridge head on the slow learner after all sessions, in percent, had it been
tuned in the first one with the transfer loss ("transfer") or without ("plain") and had each share of the tuning been
kept. "errors": for every --length of a pilot, half of the classes that it is tuned on, and loss, what the other half
says of each share. --rules PATH reads such lines instead and says how well rules choose by the errors.
"""

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from memory import Watch, add_options, loaded, made, percent, words_of, write
from torch import Tensor

from safecl.engine.learn import learn
from safecl.experiments.config import load
from safecl.heads.leave_one_out import MATTERS
from safecl.heads.ridge import RidgeHead
from safecl.methods.method import Fit
from safecl.methods.pilot import SHARES, Pilot, pilot_recipe, weighed
from safecl.methods.safe import SAFE
from safecl.streams.pictures.images import Pictures
from safecl.streams.stream import Session

WAYS = {"plain": False, "transfer": True}


def errors(method: SAFE, lengths: list[float], session: Session, fit: Fit) -> list[dict[str, Any]]:
    """The errors of pilots of every length, half and loss."""
    halves, found = (session.part(session.classes[::2]), session.part(session.classes[1::2])), []
    heads = (method.w_slow, method.ridge_slow)
    for length in lengths:
        recipe = pilot_recipe(fit, length)
        for half in (0, 1):
            for way, transfer in WAYS.items():
                parts, name = (halves[half], halves[1 - half]), f"pilot{len(found) + 1}"
                pilot = Pilot(method.slow, *heads, partial(method.slow_loss, transfer), *parts, fit, name, recipe)
                by_share = [round(float(pilot.errors(share).mean()), 5) for share in SHARES]
                found.append({"length": length, "half": half, "way": way, "errors": by_share})
    return found


def cell(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    settings = load("safe", [*words_of(options, seed), *options.words])
    backbone, line = loaded(settings), {"accuracy": {}}
    for way, transfer in WAYS.items():
        method, stream, fit = made(settings, backbone)
        assert isinstance(method, SAFE)
        start = method.slow.tuning()

        def pilot(session: Session, fit: Fit, method: SAFE = method, transfer: bool = transfer) -> bool:
            if not transfer:
                line["errors"] = errors(method, list(map(float, options.lengths.split(","))), session, fit)
            return transfer

        method.pilot = pilot  # type: ignore[method-assign]
        learn(method, stream.open(1), fit)
        watch, end = Watch(method, stream, fit), method.slow.tuning()
        method.classes = list(dict.fromkeys(label for part in stream._parts for label in part.train.labels))

        def look(pictures: Pictures, watch: Watch = watch, method: SAFE = method) -> tuple[Tensor, Tensor]:
            return watch.features(pictures, method.slow)[0], watch.targets(pictures)

        line["accuracy"][way] = []
        for share in SHARES:
            method.slow.interpolate(start, end, share)
            head = RidgeHead(backbone.width, method.settings.ridge, seed, backbone.device)
            for part in stream._parts:
                head.add(*look(part.train))
            head.solve()
            tests = [stream.test(i) for i in stream.tested(len(stream))]
            right = [head.logits(f).argmax(dim=1) == y for f, y in map(look, filter(len, tests))]
            line["accuracy"][way].append(percent(torch.cat(right)))
    return line


def least(line: dict[str, Any], length: float, halves: tuple[int, ...], pays: float) -> float:
    """The accuracy of the loss and share with the least error, where all that is taken back must pay by ``pays``."""
    found = {}
    for way in WAYS:
        rows = [e["errors"] for e in line["errors"] if (e["length"], e["way"]) == (length, way) and e["half"] in halves]
        for i, share in enumerate(SHARES):
            found[way, i] = weighed(sum(row[i] for row in rows), share, pays)
    way, i = min(found, key=lambda key: found[key])
    accuracy: float = line["accuracy"][way][i]
    return accuracy


def show(path: Path) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    rules: dict[str, Callable[[dict[str, Any]], float]] = {
        "untuned": lambda line: line["accuracy"]["plain"][-1],
        "all of the tuning": lambda line: line["accuracy"]["plain"][0],
        "all, with transfer": lambda line: line["accuracy"]["transfer"][0],
        "three quarters, with transfer": lambda line: line["accuracy"]["transfer"][1],
    }
    for length in sorted({error["length"] for line in lines for error in line["errors"]}):
        for halves in ((0,), (0, 1)):
            for pays in (0.0, MATTERS / 2, MATTERS, 2 * MATTERS, 4 * MATTERS):
                name = f"pilots of {length} of the epochs, {'both halves' if len(halves) == 2 else 'one half'}, {pays}"
                rules[name] = partial(least, length=length, halves=halves, pays=pays)
    rules["the best, which nobody knows"] = lambda line: max(max(found) for found in line["accuracy"].values())
    for name, rule in rules.items():
        print(f"{name:50}{sum(map(rule, lines)) / len(lines):8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    if sys.argv[1:2] == ["--rules"]:
        parser.add_argument("--rules", type=Path)
        return show(parser.parse_args().rules)
    add_options(parser)
    parser.add_argument("--lengths", default="0.5,0.75", help="of pilots, as shares of the session's epochs")
    parser.add_argument("--out", type=Path, default=Path("pilots.jsonl"))
    return write(parser.parse_args(), cell)


if __name__ == "__main__":
    main()
