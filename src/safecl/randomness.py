"""Named sources of randomness: changing one leaves the others alone, and no two share numbers."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive(seed: int, *names: str | int) -> int:
    """A seed of its own for what ``names`` say, e.g. ``derive(0, "order", session, phase, epoch)``."""
    text = "/".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")


def generator(seed: int, *names: str | int) -> torch.Generator:
    """A CPU generator of its own for what ``names`` say."""
    return torch.Generator().manual_seed(derive(seed, *names))


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
    """Whatever is drawn from or done to ``random`` meanwhile, afterwards it goes on as if nothing had been."""
    state = random.get_state()
    try:
        yield
    finally:
        random.set_state(state)
