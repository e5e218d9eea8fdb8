"""Test pictures with what the method says of them, for the page of a run."""

from pathlib import Path
from typing import Any

import numpy as np
from torchvision.transforms.functional import to_pil_image

from safecl.atomic import write_json
from safecl.engine.evaluate import Answers
from safecl.errors import SafeclError
from safecl.streams.pictures.images import Transform

EXAMPLES = 24  # drawn by chance
CLASSES, EACH = 6, 4  # the classes that are answered worst, and wrong answers shown of each
PAIRS, EACH_PAIR = 6, 2  # pairs of classes that are confused most often, and mistakes shown of each
SIDE, QUALITY = 144, 90  # largest side of a stored picture, and its JPEG quality


def write_examples(folder: Path, answers: Answers, transform: Transform) -> None:
    """Keep pictures drawn evenly from the sessions by chance, mistakes of the worst classes and of confused pairs.

    "like": of each class that others are taken for, a picture that is answered right.
    """
    pairs, like = confused(answers)
    chosen = {"chance": by_chance(answers.counts), "worst": worst(answers), "pair": pairs, "like": like}
    try:
        (folder / "examples").mkdir(exist_ok=True)
        notes: list[dict[str, Any]] = []
        for why, positions in chosen.items():
            for position in positions:
                notes.append(_example(folder, f"examples/{len(notes):02d}.jpg", answers, position, transform, why))
        write_json(folder / "examples.json", notes)
    except OSError as error:
        raise SafeclError(f"The examples in {folder} could not be written ({error.strerror}).") from error


def by_chance(counts: list[int]) -> list[int]:
    """Positions among all pictures, as many of each collection, drawn without a look at the answers."""
    each, start, found = max(EXAMPLES // max(len(counts), 1), 1), 0, []
    for number, count in enumerate(counts, 1):
        found += [start + int(i) for i in np.random.RandomState(number).permutation(count)[:each]]
        start += count
    return found


def worst(answers: Answers) -> list[int]:
    """Positions of wrong answers to the classes with the lowest accuracy, the worst class first."""
    targets, right = answers.targets.numpy(), (answers.main == answers.targets).numpy()
    rates = {int(c): float(right[targets == c].mean()) for c in np.unique(targets)}
    classes = sorted((rate, c) for c, rate in rates.items() if rate < 1)[:CLASSES]
    return [int(i) for _, c in classes for i in np.flatnonzero((targets == c) & ~right)[:EACH]]


def confused(answers: Answers) -> tuple[list[int], list[int]]:
    """Positions of mistakes in the most confused pairs, the most frequent first, and of what they are taken for."""
    targets, said = answers.targets.numpy(), answers.main.numpy()
    wrong = (targets != said) & (targets >= 0)
    pairs, times = np.unique(np.stack([targets[wrong], said[wrong]], axis=1), axis=0, return_counts=True)
    most = pairs[np.argsort(-times, kind="stable")[:PAIRS]]
    mistakes = [int(i) for a, b in most for i in np.flatnonzero((targets == a) & (said == b))[:EACH_PAIR]]
    taken_for = dict.fromkeys(int(b) for _, b in most)
    return mistakes, [int(i) for b in taken_for for i in np.flatnonzero((targets == b) & (said == b))[:1]]


def _example(
    folder: Path, file: str, answers: Answers, position: int, transform: Transform, why: str
) -> dict[str, Any]:
    session, inside = 1, position
    while inside >= len(answers.collections[session - 1]):
        inside -= len(answers.collections[session - 1])
        session += 1
    pictures = answers.collections[session - 1]
    image = to_pil_image(pictures.plain([inside], transform)[0])
    image.thumbnail((SIDE, SIDE))
    image.save(folder / file, quality=QUALITY)
    return {
        "file": file,
        "why": why,
        "label": pictures.labels[inside],
        "session": session,
        "predictions": {output: answers.classes[int(found[position])] for output, found in answers.predicted.items()},
        "surer_than": answers.surer_than(position),
    }
