"""For the page of a run: test pictures with what the method says of them."""

from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchvision.transforms.functional import to_pil_image

from safecl.atomic import write_json
from safecl.engine.evaluate import Answers
from safecl.errors import SafeclError
from safecl.streams.pictures.images import Transform, join

EXAMPLES = 24  # drawn by chance
PAIRS = 6
EACH_PAIR = 2  # pairs of classes that are confused most often, and mistakes shown of each
APART = 12  # at most, on which a method's learners disagree
SIDE = 144
QUALITY = 90  # largest side of a stored picture, and its JPEG quality


def write_examples(folder: Path, answers: Answers, transform: Transform) -> None:
    """Keep pictures drawn by chance, mistakes of confused pairs, and what is disputed."""
    chosen = {
        "chance": by_chance(answers.counts),
        "pair": confused(answers),
        "apart": disputed(answers),
    }
    every = join(answers.collections)
    ends = list(accumulate(answers.counts))
    labels = every.labels
    notes = list[dict[str, Any]]()
    try:
        (folder / "examples").mkdir(exist_ok=True)
        for why, position in (
            (why, position) for why, positions in chosen.items() for position in positions
        ):
            file = f"examples/{len(notes):02d}.jpg"
            image = to_pil_image(every.plain([position], transform)[0])
            image.thumbnail((SIDE, SIDE))
            image.save(folder / file, quality=QUALITY)
            about = {
                "file": file,
                "why": why,
                "label": labels[position],
                "session": 1 + bisect_right(ends, position),
            }
            notes.append({**about, "predictions": answers.said(position)})
        write_json(folder / "examples.json", notes)
    except OSError as error:
        raise SafeclError(
            "run.examples.not-written", folder=folder, reason=error.strerror
        ) from error


def by_chance(counts: list[int]) -> list[int]:
    """Positions among all pictures, as many of each collection, drawn without a look at the
    answers.
    """
    each = max(EXAMPLES // max(len(counts), 1), 1)
    start = 0
    found = []
    for number, count in enumerate(counts, 1):
        found += [start + int(i) for i in np.random.RandomState(number).permutation(count)[:each]]
        start += count
    return found


def confused(answers: Answers) -> list[int]:
    """Positions of mistakes in the most confused pairs, the most frequent first."""
    targets = answers.targets.numpy()
    said = answers.main.numpy()
    wrong = (targets != said) & (targets >= 0)
    pairs, times = np.unique(
        np.stack([targets[wrong], said[wrong]], axis=1), axis=0, return_counts=True
    )
    most = pairs[np.argsort(-times, kind="stable")[:PAIRS]]
    return [
        int(i) for a, b in most for i in np.flatnonzero((targets == a) & (said == b))[:EACH_PAIR]
    ]


def disputed(answers: Answers) -> list[int]:
    """Positions that a method's outputs answer differently, evenly over all pictures."""
    said = torch.stack(list(answers.predicted.values()))
    apart = (said != said[0]).any(dim=0).nonzero().flatten()
    found: list[int] = apart[:: max(1, -(-len(apart) // APART))].tolist()
    return found
