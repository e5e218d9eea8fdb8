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


class Means:
    """Means of the loss and its terms over the steps since they were last taken; on the device until then."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.count = 0

    def add(self, values: Mapping[str, Tensor]) -> None:
        """Add those of one step."""
        for key, value in values.items():
            self.sums[key] = self.sums[key] + value if key in self.sums else value.clone()
        self.count += 1

    def take(self) -> dict[str, float]:
        """The means so far; starts anew. One wait for the device, however many there are."""
        totals = torch.stack(list(self.sums.values())).tolist()
        means = {key: total / self.count for key, total in zip(self.sums, totals, strict=True)}
        self.sums, self.count = {}, 0
        return means


@dataclass
class PhaseCheckpoint:
    """Steps taken at ``slower`` times the rate, seconds spent, losses noted, and those not noted yet.

    Everything random is drawn from the seed and the step, so this, the module's state and the optimiser's are all
    that the rest of the phase depends on.
    """

    step: int = 0
    slower: float = 1.0
    seconds: float = 0.0
    losses: list[dict[str, Any]] = field(default_factory=list)
    means: Means = field(default_factory=Means)
    tensors: dict[str, Tensor] = field(default_factory=dict)  # as loaded, until they are restored

    def save(self, file: Path, module: nn.Module, optimiser: Optimiser, steps: int) -> None:
        """``steps``: of the whole phase."""
        tensors = {f"module/{name}": tensor for name, tensor in module.state_dict().items()}
        tensors |= {f"optimiser/{name}": tensor for name, tensor in optimiser.state().items()}
        tensors |= {f"loss/{key}": total for key, total in self.means.sums.items()}
        numbers = {"step": self.step, "slower": self.slower, "seconds": self.seconds, "count": self.means.count}
        save_state(file, tensors, {**numbers, "steps": steps, "losses": self.losses})

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
            means = Means()
            means.count = facts["count"]
            return cls(facts["step"], facts["slower"], facts["seconds"], list(facts["losses"]), means, tensors)
        except (SafeclError, KeyError, TypeError) as error:
            reason = error if isinstance(error, SafeclError) else f"The state file {file} is no checkpoint of a phase."
            say(f"{reason} The phase starts again.")
            return cls()

    @torch.no_grad()
    def restore(self, module: nn.Module, optimiser: Optimiser) -> None:
        """Give module and optimiser the values they had here; does nothing at the beginning of a phase."""
        own = {f"module/{name}": tensor for name, tensor in module.state_dict().items()}
        own |= {f"optimiser/{name}": tensor for name, tensor in optimiser.state().items()}
        for name, saved in self.tensors.items():
            if name in own:
                own[name].copy_(saved)
            elif name.startswith("loss/"):
                self.means.sums[name.removeprefix("loss/")] = saved.to(next(iter(own.values())).device)
        self.tensors = {}
