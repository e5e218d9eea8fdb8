"""Where a training phase is: what it takes to go on at the step where another process was stopped."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from safecl.engine.checkpoint import load_state, save_state
from safecl.errors import SafeclError

Parameters = dict[str, nn.Parameter]


class Means:
    """Means of the loss and its terms over the steps since they were last taken; on the device until then."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.count = 0

    def add(self, values: dict[str, Tensor]) -> None:
        """Those of one step."""
        for key, value in values.items():
            self.sums[key] = self.sums[key] + value if key in self.sums else value.clone()
        self.count += 1

    def take(self) -> dict[str, float]:
        """One wait for the device, however many there are."""
        totals = torch.stack(list(self.sums.values())).tolist()
        means = {key: total / self.count for key, total in zip(self.sums, totals, strict=True)}
        self.sums, self.count = {}, 0
        return means


@dataclass
class PhaseCheckpoint:
    """Steps taken at ``slower`` times the rate, seconds spent, the losses of the session, and those not noted yet.

    Everything random is drawn from the seed and the step, so this, the weights and the momentum are all there is.
    """

    step: int = 0
    slower: float = 1.0
    seconds: float = 0.0
    losses: list[dict[str, Any]] = field(default_factory=list)
    means: Means = field(default_factory=Means)
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def save(self, file: Path, parameters: Parameters, optimiser: torch.optim.SGD) -> None:
        tensors: dict[str, Tensor] = dict(parameters)
        for i, parameter in enumerate(parameters.values()):
            tensors[f"momentum/{i}"] = optimiser.state[parameter]["momentum_buffer"]
        tensors |= {f"loss/{key}": total for key, total in self.means.sums.items()}
        numbers = {"step": self.step, "slower": self.slower, "seconds": self.seconds, "count": self.means.count}
        save_state(file, tensors, {**numbers, "losses": self.losses})

    @classmethod
    def load(cls, file: Path, parameters: Parameters, say: Callable[[str], None]) -> "PhaseCheckpoint":
        """The checkpoint in ``file``; the beginning, and a sentence, where that cannot be used."""
        if not file.exists():
            return cls()
        try:
            tensors, facts = load_state(file)
            if any(name not in tensors or tensors[name].shape != p.shape for name, p in parameters.items()):
                raise SafeclError(f"The state file {file} is of another network.")
            means = Means()
            means.count = facts["count"]
            return cls(facts["step"], facts["slower"], facts["seconds"], list(facts["losses"]), means, tensors)
        except (SafeclError, KeyError, TypeError) as error:
            reason = error if isinstance(error, SafeclError) else f"The state file {file} is no checkpoint of a phase."
            say(f"{reason} The phase starts again.")
            return cls()

    @torch.no_grad()
    def restore(self, parameters: Parameters, optimiser: torch.optim.SGD) -> None:
        """Give the weights and the momentum the values they had here; at the beginning of a phase that is none."""
        for i, (name, parameter) in enumerate(parameters.items()):
            if name in self.tensors:
                parameter.copy_(self.tensors[name])
            momentum = self.tensors.get(f"momentum/{i}", torch.zeros_like(parameter))
            optimiser.state[parameter]["momentum_buffer"] = momentum.to(parameter)
        for name, tensor in self.tensors.items():
            if name.startswith("loss/"):
                self.means.sums[name.removeprefix("loss/")] = tensor.to(parameter.device)
        self.tensors = {}
