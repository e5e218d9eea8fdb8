"""A method learns a session without training: what it keeps of pictures, as its networks are."""

import time
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.engine.fit import Trainer
from safecl.heads.left_out import MAX_JUDGING_PICTURES
from safecl.heads.reading import PLAIN, Reading
from safecl.learner import Learner, Reader
from safecl.methods.method import Network
from safecl.streams.stream import Session


@dataclass(frozen=True)
class Alone:
    """One process, as Accelerate would say it: what trains nothing need not import that."""

    device: torch.device
    process_index: int = 0
    num_processes: int = 1


@dataclass(eq=False)
class Untrained(Trainer):
    """Leaves every module as it is. Networks of the same values are one: what any of them has given
    of a session's pictures is not computed again.
    """

    def begin(self, session: int) -> None:
        super().begin(session)
        self.looked = 0.0  # seconds in which networks looked at pictures
        self.views_seen = 0  # by one network, a mirror image being one more
        self._known: dict[tuple[int, Hashable], tuple[Reading, Tensor]] = {}

    def __call__(self, name: str, module: Any, *args: Any, **options: Any) -> None:
        module.eval()

    @torch.no_grad()
    def features(self, session: Session, *networks: Network) -> tuple[Tensor, ...]:
        whole = session.part_of
        if whole is not None and len(whole[0].train) <= MAX_JUDGING_PICTURES:
            rows = torch.tensor(whole[1], dtype=torch.int64, device=self.processes.device)
            return tuple(each[rows] for each in self.features(whole[0], *networks))
        wanted = [(_values(network), _reading(network)) for network in networks]
        missing = dict[Hashable, tuple[Reading, Network]]()
        for network, (values, reading) in zip(networks, wanted, strict=True):
            known = self._known.get((id(session), values))
            if known is None or not _holds(known[0], reading):
                before = missing[values][0] if values in missing else reading
                widest = _both(before, reading)
                missing[values] = widest, Reader(_plain(network), widest)
        began = time.monotonic()
        targets, *found = super().features(session, *(each for _, each in missing.values()))
        if missing:
            self.looked += time.monotonic() - began
            self.views_seen += len(targets) * sum(each.views for each, _ in missing.values())
        for (values, (reading, _)), rows in zip(missing.items(), found, strict=True):
            self._known[id(session), values] = reading, rows
        answers = []
        widths = self.method.backbone.widths
        for values, reading in wanted:
            widest, rows = self._known[id(session), values]
            part = widths.of(rows, reading, widest) if widest != reading else rows
            answers.append(part)
        return targets, *answers


def _holds(widest: Reading, reading: Reading) -> bool:
    """Whether all that one reading asks for is in another."""
    return all(a >= b for a, b in zip(widest, reading, strict=True))


def _both(one: Reading, other: Reading) -> Reading:
    """All that either asks for."""
    patches = one.patches or other.patches
    return Reading(max(one.layers, other.layers), patches, one.mirror or other.mirror)


def _plain(network: Network) -> Learner | Backbone:
    return network.network if isinstance(network, Reader) else network


def _reading(network: Network) -> Reading:
    return network.reading if isinstance(network, Reader) else PLAIN


def _values(network: Network) -> Hashable:
    """What tells apart two networks on one backbone: the values of their PETs."""
    own = _plain(network)
    if isinstance(own, Backbone):
        return ()
    named = own.pet.state_dict().items()
    return tuple((name, value.cpu().numpy().tobytes()) for name, value in named)
