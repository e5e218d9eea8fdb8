"""The checkpoint of a training phase: what it takes to go on at the step where another process was stopped."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from safecl.engine.checkpoint import load_state, save_state
from safecl.engine.optimiser import Optimiser
from safecl.errors import SafeclError

FACTS = ("step", "slower", "undone", "seconds", "losses", "count")


@dataclass
class PhaseCheckpoint:
    """Everything random is drawn from the seed, the phase and the step, so this, the module's state and the
    optimiser's are all that the rest of the phase depends on.
    """

    step: int = 0
    slower: float = 1.0  # factor on the rate in this attempt
    undone: int = 0  # steps of the attempts before
    seconds: float = 0.0
    losses: list[dict[str, Any]] = field(default_factory=list)  # as noted
    sums: dict[str, Tensor] = field(default_factory=dict)  # of the losses not noted yet, on the device
    count: int = 0  # of the steps in ``sums``
    tensors: dict[str, Tensor] = field(default_factory=dict)  # as loaded, until they are restored

    def add(self, values: Mapping[str, Tensor]) -> None:
        """Add the loss and its terms of one step."""
        for key, value in values.items():
            self.sums[key] = self.sums[key] + value if key in self.sums else value.clone()
        self.count += 1

    def means(self) -> dict[str, float]:
        """The means of loss and terms since the last call. One wait for the device, however many there are."""
        totals = torch.stack(list(self.sums.values())).tolist()
        means = {key: total / self.count for key, total in zip(self.sums, totals, strict=True)}
        self.sums, self.count = {}, 0
        return means

    def undo(self) -> None:
        """Go back to the first step, at a tenth of the rate."""
        self.undone, self.step, self.slower, self.sums, self.count = self.undone + self.step, 0, self.slower / 10, {}, 0

    def save(self, file: Path, module: nn.Module, optimiser: Optimiser, steps: int) -> None:
        """``steps``: of the whole phase."""
        tensors = _tensors(module, optimiser) | {f"loss/{key}": total for key, total in self.sums.items()}
        save_state(file, tensors, {"steps": steps, **{name: getattr(self, name) for name in FACTS}})

    @classmethod
    def load(cls, file: Path, module: nn.Module, say: Callable[[str], None]) -> "PhaseCheckpoint":
        """The checkpoint in ``file``; the beginning of the phase, and a sentence, where it cannot be used."""
        if not file.exists():
            return cls()
        try:
            tensors, facts = load_state(file)
            for name, own in module.state_dict().items():
                if f"module/{name}" not in tensors or tensors[f"module/{name}"].shape != own.shape:
                    raise SafeclError(f"The state file {file} is of another network.")
            return cls(**{name: facts[name] for name in FACTS}, tensors=tensors)
        except (SafeclError, KeyError) as error:
            reason = error if isinstance(error, SafeclError) else f"The state file {file} is no checkpoint of a phase."
            say(f"{reason} The phase starts again.")
            return cls()

    @torch.no_grad()
    def restore(self, module: nn.Module, optimiser: Optimiser) -> None:
        """Give module and optimiser the values they had here; does nothing at the beginning of a phase."""
        own = _tensors(module, optimiser)
        for name, saved in self.tensors.items():
            if name in own:
                own[name].copy_(saved)
            elif name.startswith("loss/"):
                self.sums[name.removeprefix("loss/")] = saved.to(next(iter(own.values())).device)
        self.tensors = {}


def _tensors(module: nn.Module, optimiser: Optimiser) -> dict[str, Tensor]:
    """Their states by name: the tensors themselves."""
    own = {f"module/{name}": tensor for name, tensor in module.state_dict().items()}
    return own | {f"optimiser/{name}": tensor for name, tensor in optimiser.state().items()}
