"""Tables with a row per picture, one column its class: rows get another class or leave, and come
back to the bit.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

Table = dict[str, Tensor]
LABELS = ("targets", "hashes")  # of what is kept of pictures, all but features and their looks
LOOK = "look"  # of kept pictures: ``runtime.drift.looks``; of some it is not known


def stacked(one: Mapping[str, Tensor], more: Mapping[str, Tensor]) -> Table:
    """The rows of both; what only one of them knows is NaN in the rows of the other."""
    if not one or not more:
        return dict(one or more)
    found = Table()
    for name in {**one, **more}:
        there = more[name] if name in more else one[name]
        parts = [_column(table, name, there) for table in (one, more)]
        found[name] = torch.cat(parts)
    return found


def _column(table: Mapping[str, Tensor], name: str, like: Tensor) -> Tensor:
    rows = len(next(iter(table.values())))
    return table[name] if name in table else like.new_full((rows, *like.shape[1:]), torch.nan)


def edited(table: Table, key: str, classes: Tensor) -> tuple[Table, Table]:
    """(the table with the classes (n,) in its column ``key``, without rows of class −1; what
    ``restored`` needs).
    """
    classes = classes.to(table[key])
    if torch.equal(table[key], classes):
        return table, {}
    gone = (classes < 0).nonzero()[:, 0]
    stay = classes >= 0
    left = {f"gone/{name}": rows[gone] for name, rows in table.items() if name != key}
    after = {name: rows[stay] for name, rows in table.items()} | {key: classes[stay]}
    return after, {key: table[key], "gone": gone, **left}


def restored(table: Table, key: str, undone: Mapping[str, Tensor]) -> Table:
    """The table before ``edited``; rows that were appended since are cut off."""
    if key not in undone:
        return table
    found = {key: undone[key]}
    gone = undone["gone"]
    stay = torch.ones_like(undone[key], dtype=torch.bool)
    stay[gone] = False
    for name, rows in table.items():
        if name != key:
            found[name] = rows.new_empty(len(stay), *rows.shape[1:])
            found[name][stay] = rows[: int(stay.sum())]
            if len(gone):
                found[name][gone] = undone[f"gone/{name}"].to(rows)
    return found


def below(tensors: Mapping[str, Tensor], prefix: str) -> Table:
    """The tensors whose names begin with ``prefix``, without it."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
