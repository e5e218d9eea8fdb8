"""How long does SAFE's first session take, beside RanPAC's? Both learn it in turn, --repeat times.

    python benchmarks/first_session.py --folder PICTURES --step 10 --each 200 --weights FILE \
        --pet ssf train.epochs=10

PICTURES and the options are those of cells.py. A line for each turn: the seconds of the whole
session, and of every phase that trains; what is left is the reading of pictures, the questions to
pilots, and statistics. The first turn sets up libraries and reads pictures for the first time: look
at the last, on a machine that does nothing else. "ratio" is SAFE's time over RanPAC's.
"""

import argparse
import json
import time
from typing import Any

import torch
from cells import add_options, loaded, made, words_of

from safecl.engine.learn import learn
from safecl.experiments.config import resolve


def turn(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """One first session of each method, one after the other."""
    found: dict[str, Any] = {}
    for name in ("ranpac", "safe"):
        settings = resolve(name, [*words_of(options, seed), *options.words])
        method, stream, fit = made(settings, loaded(settings))
        session = stream.open(1)
        began = time.monotonic()
        took = learn(method, session, fit)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds = time.monotonic() - began
        phases = {phase["phase"]: round(phase["seconds"], 2) for phase in took["phases"]}
        found[name] = {
            "pictures": len(session.train),
            "steps": took["steps"],
            "seconds": round(seconds, 2),
            **phases,
        }
        found[name] |= {"notes": method.notes} if method.notes else {}
    return found | {"ratio": round(found["safe"]["seconds"] / found["ranpac"]["seconds"], 2)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--repeat", type=int, default=2)
    options = parser.parse_args()
    for _ in range(options.repeat):
        for seed in map(int, options.seeds.split(",")):
            print(json.dumps(turn(options, seed)), flush=True)


if __name__ == "__main__":
    main()
