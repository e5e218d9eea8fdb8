"""From a recipe to an optimiser whose state exists before its first step, and to the rate of each
step.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from safecl.methods.method import Group, Recipe

OPTIMISERS: dict[str, Any] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


class Optimiser:
    """torch's optimiser with learning rates that a CUDA graph reads from the device."""

    def __init__(
        self,
        parameters: dict[str, nn.Parameter],
        groups: Sequence[Group],
        recipe: Recipe,
        device: torch.device,
    ) -> None:
        self.parameters = parameters
        self.recipe = recipe
        chosen = [
            group for group in (*groups, Group(_rest(parameters, groups))) if group.parameters
        ]
        own: dict[str, Any] = {"capturable": device.type == "cuda"}
        if recipe.optimiser == "sgd":
            own = {"momentum": recipe.momentum}
        made = [
            {
                "params": list(group.parameters),
                "lr": torch.zeros((), device=device),
                "rate": group.rate,
            }
            | ({} if group.weight_decay is None else {"weight_decay": group.weight_decay})
            for group in chosen
        ]
        self.torch: torch.optim.Optimizer = OPTIMISERS[recipe.optimiser](
            made, lr=made[0]["lr"], weight_decay=recipe.weight_decay, fused=True, **own
        )
        for parameter in parameters.values():
            self.torch.state[parameter].update(self._empty(parameter))

    def set_rate(self, rate: float) -> None:
        """The recipe's rate for the next step; each group takes its own factor of it."""
        for group in self.torch.param_groups:
            group["lr"].fill_(rate * group["rate"])

    def state(self) -> dict[str, Tensor]:
        """All that the next step depends on besides parameters and rate; the tensors themselves."""
        states = [
            (name, self.torch.state[parameter].items())
            for name, parameter in self.parameters.items()
        ]
        return {
            f"{name}/{key}": value
            for name, state in states
            for key, value in state
            if isinstance(value, Tensor)
        }

    def take_over(self, states: Mapping[Tensor, Mapping[str, Tensor]]) -> None:
        """Go on from the ``states`` of parameters that are trained here too."""
        for parameter in self.parameters.values():
            for key, value in states.get(parameter, {}).items():
                self.torch.state[parameter][key].copy_(value)

    def step(self) -> None:
        """Clip the gradient if the recipe says so, and update the parameters."""
        if self.recipe.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters.values(), self.recipe.clip)
        self.torch.step()

    def _empty(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """The state before the first step, so that a checkpoint can be loaded into it and a graph
        can record it.
        """
        if self.recipe.optimiser == "sgd":
            return {"momentum_buffer": torch.zeros_like(parameter)} if self.recipe.momentum else {}
        step = torch.zeros((), dtype=torch.float32, device=parameter.device)
        return {
            "step": step,
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }


def rate_factor(recipe: Recipe, step: int, per_epoch: int) -> float:
    """Factor on the learning rate of a step."""
    epoch = step // per_epoch if recipe.every == "epoch" else step / per_epoch
    if recipe.schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * min(epoch / (recipe.horizon or recipe.epochs), 1.0)))
    if recipe.schedule == "steps":
        return recipe.decay ** sum(epoch >= milestone for milestone in recipe.milestones)
    if recipe.schedule == "quarter_cosine":
        # that of CODA-Prompt: 1 at the first epoch, cos(0.99 · π/2) at the last
        return math.cos(0.99 * math.pi / 2 * min(epoch / max(recipe.epochs - 1, 1), 1.0))
    return 1.0


def _rest(parameters: dict[str, nn.Parameter], groups: Sequence[Group]) -> list[nn.Parameter]:
    """Parameters in no group. A group may only name what is trained, and nothing twice."""
    trained = {id(parameter) for parameter in parameters.values()}
    taken = [id(p) for g in groups for p in g.parameters]
    if len(set(taken)) != len(taken) or not set(taken) <= trained:
        raise ValueError(
            "A parameter group names a parameter that is not trained in this phase, or names one"
            " twice."
        )
    return [parameter for parameter in parameters.values() if id(parameter) not in taken]
