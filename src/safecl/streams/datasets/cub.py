"""CUB-200-2011: 200 species of birds."""

from collections.abc import Sequence
from pathlib import PurePosixPath

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import Source
from safecl.streams.datasets.dataset import OFFICIAL, Plan, plan_processed


def plan(sources: Sequence[Source]) -> Plan:
    """The processed archive, or the official one with its lists ``images.txt`` and ``train_test_split.txt``."""
    for source in sources:
        names = source.names()
        lists = {PurePosixPath(name).name: name for name in names if name.endswith(".txt")}
        if {"images.txt", "train_test_split.txt"} <= lists.keys():
            return Plan(OFFICIAL, [(source, official_moves(source, set(names), lists))])
    return plan_processed(sources)


def official_moves(source: Source, names: set[str], lists: dict[str, str]) -> dict[str, str]:
    paths = numbered(source, lists["images.txt"])
    training = numbered(source, lists["train_test_split.txt"])
    top = PurePosixPath(lists["images.txt"]).parent
    moves = {}
    for number, path in paths.items():
        name = str(top / "images" / path)
        if name not in names or number not in training:
            raise SafeclError(f"{source.path} lists {path}, but the picture or its split is missing; fetch it again.")
        moves[name] = f"{'train' if training[number] == '1' else 'test'}/{path}"
    return moves


def numbered(source: Source, name: str) -> dict[str, str]:
    """Lines ``number value``."""
    lines = source.read(name).decode("utf-8").splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line.strip())
