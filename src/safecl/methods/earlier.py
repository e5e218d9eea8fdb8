"""What safecl 0.1.0 said otherwise in models and runs, in the words of today."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # settings import nothing heavy
    from torch import Tensor

SWITCHES = ("pilots", "limit", "average", "release", "untuned")
RENAMED = {
    "policy.share": "share.chosen",
    "policy.errors": "new_pictures.sums",
    "policy.judged": "judged.sums",
}
# Every SAFE had these, whether it had a use for them or not.
OFTEN_UNUSED = ("w_ptm.", *RENAMED.values())


def settings_of_today(method: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings of a method; those of SAFE had one number for all switches, those of RanPAC
    no likeness.
    """
    found = dict(method)
    if found.get("name") == "ranpac":
        found.setdefault("likeness", False)
    if found.get("name") != "safe" or "pilot" not in found:
        return found
    share = found.pop("pilot")
    groups: dict[str, dict[str, Any]] = {name: {"use": share > 0} for name in SWITCHES}
    groups["pilots"]["epochs"] = share or 0.75
    groups["limit"]["share"] = 0.1
    return {**found, **groups, "answer": {**found.get("answer", {}), "likeness": True}}


def state_of_today(state: "Mapping[str, Tensor]", own: Collection[str]) -> "dict[str, Tensor]":
    """A stored state by the names of today; ``own``: those of the method that it goes into."""
    found = {RENAMED.get(name, name): tensor for name, tensor in state.items()}
    return {
        name: tensor
        for name, tensor in found.items()
        if name in own or not name.startswith(OFTEN_UNUSED)
    }
