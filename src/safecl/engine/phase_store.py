"""The checkpoint of a step within a phase: a phase that was stopped goes on where it was."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from safecl.engine.checkpoint import load_state, save_state
from safecl.errors import SafeclError

FACTS = ("step", "undone", "seconds", "losses", "count")
# How a file notes which attempt it is of: the share of the rate, the last one standing for the
# attempt that keeps what is tuned.
MARKS = (1.0, 0.1, 0.01, 0.001)


@dataclass
class PhaseState:
    """All that the rest of a phase depends on besides the tensors that it trains: what is random is
    derived.
    """

    step: int = 0
    attempt: int = 0  # how many came before this one
    undone: int = 0  # steps of the attempts before
    seconds: float = 0.0
    losses: list[dict[str, Any]] = field(default_factory=list)  # as noted
    sums: dict[str, Tensor] = field(default_factory=dict)  # of the losses not noted yet
    count: int = 0  # of the steps in ``sums``
    tensors: dict[str, Tensor] = field(default_factory=dict)  # as loaded, until they are restored

    def add(self, values: Mapping[str, Tensor]) -> None:
        """Add the loss and its terms of one step."""
        for key, value in values.items():
            self.sums[key] = self.sums[key] + value if key in self.sums else value.clone()
        self.count += 1

    def means(self) -> dict[str, float]:
        """The means of loss and terms since the last call. One wait for the device, however many
        there are.
        """
        totals = torch.stack(list(self.sums.values())).tolist()
        means = {key: total / self.count for key, total in zip(self.sums, totals, strict=True)}
        self.sums = {}
        self.count = 0
        return means

    def undo(self) -> None:
        """Go back to the first step, for another attempt."""
        self.undone += self.step
        self.step = 0
        self.attempt += 1
        self.sums = {}
        self.count = 0

    @torch.no_grad()
    def restore(self, own: Mapping[str, Tensor]) -> None:
        """Give the tensors of a phase the values they had; does nothing at its beginning."""
        device = next(iter(own.values())).device
        for name, saved in self.tensors.items():
            if name in own:
                own[name].copy_(saved)
            elif name.startswith("loss/"):
                self.sums[name.removeprefix("loss/")] = saved.to(device)
        self.tensors = {}


@dataclass(frozen=True)
class PhaseStore:
    """Where a phase is kept: in ``file``, or nowhere. ``say`` is told what cannot be used."""

    file: Path | None
    say: Callable[[str], None]

    def save(self, state: PhaseState, own: Mapping[str, Tensor]) -> None:
        """``own``: all tensors that the rest of the phase depends on, by name."""
        if self.file is None:
            return
        sums = {f"loss/{key}": total for key, total in state.sums.items()}
        facts = {name: getattr(state, name) for name in FACTS}
        save_state(self.file, {**own, **sums}, {**facts, "slower": MARKS[state.attempt]})

    def load(self, own: Mapping[str, Tensor]) -> PhaseState:
        """What was saved; the beginning of the phase, and a sentence, where it cannot be used.

        ``own``: tensors that must be there, in their shapes.
        """
        if self.file is None or not self.file.exists():
            return PhaseState()
        try:
            return self._read(self.file, own)
        except SafeclError as error:
            self.say(f"{error} The phase starts again.")
            return PhaseState()

    def _read(self, file: Path, own: Mapping[str, Tensor]) -> PhaseState:
        tensors, facts = load_state(file)
        for name, tensor in own.items():
            if name not in tensors or tensors[name].shape != tensor.shape:
                raise SafeclError("state.other-network", path=file)
        if not facts.keys() >= {*FACTS} or facts.get("slower") not in MARKS:
            raise SafeclError("state.no-phase", path=file)
        known = {name: facts[name] for name in FACTS}
        return PhaseState(**known, attempt=MARKS.index(facts["slower"]), tensors=tensors)
