"""Tables with a row per picture, one column its class: rows get another class or leave, and come
back to the bit.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

Table = dict[str, Tensor]
LABELS = ("targets", "hashes")  # of what is kept of pictures, all but features


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
