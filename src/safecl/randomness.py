"""Named sources of randomness: changing one leaves the others alone, and no two share numbers.

A seed has 32 bits, as torch's generator of the CPU uses no more. The names that last (a projection,
the start of a module) are some hundred a run: in one of a hundred thousand runs two have the same
seed, which is refused. Those of steps are tens of thousands, of which two often have, so
``StepSeeds`` tells them apart; they are not held against those that last, which a process that
resumes does not all know.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import torch

from safecl.errors import SafeclError

Names: TypeAlias = tuple[str | int, ...]
MAX_KNOWN = 1000  # seeds whose names are remembered
_known: dict[int, dict[int, str]] = {}  # by seed, what has which number


def derive(seed: int, *names: str | int) -> int:
    """A seed of its own for what ``names`` say and what lasts, e.g. ``derive(0, "projection",
    width, size)``.
    """
    text, number = _named(seed, names)
    while len(_known) > MAX_KNOWN:
        _known.pop(next(iter(_known)), None)
    other = _known.setdefault(seed, {}).setdefault(number, text)
    if other != text:
        raise SafeclError("seed.same-numbers", one=other, other=text)
    return number


def generator(seed: int, *names: str | int) -> torch.Generator:
    """A CPU generator of its own for what ``names`` say."""
    return seeded(derive(seed, *names))


def seeded(number: int) -> torch.Generator:
    """A CPU generator that starts at a seed which was derived."""
    return torch.Generator().manual_seed(number)


class StepSeeds:
    """Seeds of what the steps of a run draw: one that an earlier step has is passed over.

    What a step gets depends on ``seed`` and on what was taken before, so a run that resumes takes
    it all again.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._taken: dict[int, str] = {}

    def take(self, count: int, before: Names, after: Names = ()) -> list[int]:
        """Of the names ``(*before, number, *after)`` with the numbers from 0 to ``count`` − 1; the
        same once more.
        """
        found = []
        for number in range(count):
            names = (*before, number, *after)
            text, value = _named(self._seed, names)
            again = 0
            while self._taken.setdefault(value, text) != text:
                again += 1
                _, value = _named(self._seed, (*names, "again", again))
            found.append(value)
        return found


def _named(seed: int, names: Names) -> tuple[str, int]:
    """What ``names`` say in one word, and its number."""
    text = "/".join([str(seed), *map(str, names)])
    return text, int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")


def default_generator(device: torch.device) -> torch.Generator:
    """torch's own generator of ``device``, from which dropout draws."""
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        return torch.cuda.default_generators[index]
    if device.type == "mps":
        return torch.mps._get_default_mps_generator()
    return torch.default_generator


@contextmanager
def untouched(random: torch.Generator) -> Iterator[None]:
    """Whatever is drawn from or done to ``random`` meanwhile, afterwards it goes on as if nothing
    had been.
    """
    state = random.get_state()
    try:
        yield
    finally:
        random.set_state(state)
