"""Named sources of randomness: changing one leaves the others alone."""

import hashlib

import torch


def derive(seed: int, *names: str | int) -> int:
    """A seed of its own for what ``names`` say, e.g. ``derive(0, "order", session, epoch)``."""
    text = "/".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")


def generator(seed: int, *names: str | int) -> torch.Generator:
    """A CPU generator of its own for what ``names`` say."""
    return torch.Generator().manual_seed(derive(seed, *names))
