"""The training loop: one attempt at a phase, from the first batch to the last."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from safecl.engine.batches import Batches
from safecl.engine.cuda_graph import CudaGraph
from safecl.engine.optimiser import Optimiser, rate_factor
from safecl.engine.phase_store import PhaseState, PhaseStore
from safecl.engine.processes import Processes
from safecl.engine.progress import Progress
from safecl.engine.retry import Attempt
from safecl.engine.settings import TrainSettings
from safecl.errors import Stopped
from safecl.methods.method import Group, Loss, Recipe
from safecl.randomness import default_generator

STEPS_PER_NOTE = 10  # steps between two looks at the loss; each waits for the device


@dataclass(frozen=True)
class Phase:
    """One call of ``fit``: what is trained, on what, and how."""

    session: int
    name: str
    module: nn.Module
    batches: Batches
    loss: Loss
    groups: Sequence[Group]
    recipe: Recipe
    after_step: Callable[[], object] | None
    dropout: list[int]  # seeds of this process's masks in each step
    earlier: int  # steps of the run before this phase
    before: Optimiser | None = None  # of the phase that this one continues


@dataclass(frozen=True)
class Surroundings:
    """What the phases of a run share."""

    processes: Processes
    settings: TrainSettings
    progress: Progress
    stop: Callable[[], bool]
    graph: Callable[..., Any] = field(default=CudaGraph)  # records a step


@torch.enable_grad()
def train_phase(
    phase: Phase,
    state: PhaseState,
    store: PhaseStore,
    attempt: Attempt,
    hold: Callable[[], None],
    around: Surroundings,
) -> Optimiser | None:
    """Train from ``state`` on; the optimiser as it is afterwards, or None if the loss stopped being
    finite.

    ``hold`` is called after every step of an attempt that holds what is tuned.
    """
    recipe = phase.recipe
    batches = phase.batches
    processes = around.processes
    settings = around.settings
    device = processes.device
    parameters = {name: p for name, p in phase.module.named_parameters() if p.requires_grad}
    optimiser = Optimiser(parameters, phase.groups, recipe, device)
    if phase.before is not None:
        optimiser.take_over(phase.before.torch.state)
    state.restore(tensors(phase.module, optimiser))

    def step(*inputs: Tensor) -> dict[str, Tensor]:
        """From the inputs of a batch to new weights; gives the loss and its terms."""
        optimiser.torch.zero_grad(set_to_none=True)
        terms = summed(phase.loss(batches.batch(*inputs)), phase.name)
        terms["loss"].backward()  # type: ignore[no-untyped-call]  # torch's own
        processes.average_gradients(parameters)
        optimiser.step()
        # a term may be a weight itself
        return {key: term.detach().clone() for key, term in terms.items()}

    def save() -> None:
        state.seconds = seconds + time.monotonic() - started
        own = tensors(phase.module, optimiser)
        processes.once(lambda: store.save(state, own))

    # A recording could not draw the same numbers again for a piece that is computed anew.
    plain = processes.count > 1 or settings.accumulate > 1
    recorded = recipe.graph and settings.graphs and not plain
    take = around.graph(step, device, recorded, around.progress.say)
    random = default_generator(device)  # from which dropout draws
    first = state.step
    seconds = state.seconds
    started = saved = time.monotonic()
    title = f"Session {phase.session}  {phase.name}"
    inputs = batches.inputs(first)
    following = next(inputs, None)
    with around.progress.phase(title, batches.steps, first) as shown:
        while following is not None:
            random.manual_seed(phase.dropout[state.step])
            factor = rate_factor(recipe, state.step, batches.per_epoch)
            rate = recipe.lr * attempt.share * factor
            optimiser.set_rate(rate)
            state.add(take(*following))
            if attempt.holds:
                hold()
            if phase.after_step is not None:
                phase.after_step()
            following = next(inputs, None)  # made ready while the device works
            state.step += 1

            look = state.step % STEPS_PER_NOTE == 0 or state.step % batches.per_epoch == 0
            if look:
                means = state.means()
                if not math.isfinite(means["loss"]):
                    return None
                note(phase, state, means, rate, processes)
                taken = state.step - first
                speed = recipe.batch_size * taken / (time.monotonic() - started)
                shown.advance(0, seen(phase, state, means, speed, around.progress.verbose))
            shown.advance()

            # With several devices the question costs a wait.
            if look or processes.count == 1 or device.type == "cpu":
                due = time.monotonic() - saved > settings.save_seconds
                if processes.any(around.stop() or due):
                    save()
                    saved = time.monotonic()
                    if processes.any(around.stop()):
                        raise Stopped
    finite = torch.stack([parameter.isfinite().all() for parameter in parameters.values()])
    if not finite.all():
        return None
    if first < batches.steps:
        save()
    return optimiser


def summed(terms: Any, name: str) -> dict[str, Tensor]:
    """The terms of a loss, and before them their sum."""
    if not isinstance(terms, dict) or not terms:
        raise TypeError(
            f"The loss of {name} must give its terms by name, for example {{'cls': …}}."
        )
    return {"loss": torch.stack(list(terms.values())).sum(), **terms}


def tensors(module: nn.Module, optimiser: Optimiser | None = None) -> dict[str, Tensor]:
    """The states of both by name: the tensors themselves."""
    own = {f"module/{name}": tensor for name, tensor in module.state_dict().items()}
    if optimiser is not None:
        own |= {f"optimiser/{name}": tensor for name, tensor in optimiser.state().items()}
    return own


def note(
    phase: Phase, state: PhaseState, means: dict[str, float], rate: float, processes: Processes
) -> None:
    """Note the means of the loss and its terms, and tell the trackers."""
    logged = {f"{phase.name}/{key}": value for key, value in means.items()}
    logged[f"{phase.name}/lr"] = rate
    processes.accelerator.log(logged, step=phase.earlier + state.undone + state.step)
    terms = {key: value for key, value in means.items() if key != "loss"}
    line = {
        "session": phase.session,
        "phase": phase.name,
        "step": state.step,
        "epoch": (state.step - 1) // phase.batches.per_epoch,
        "lr": rate,
        "loss": means["loss"],
        "terms": terms,
    }
    state.losses.append(line)


def seen(
    phase: Phase, state: PhaseState, means: dict[str, float], speed: float, verbose: bool
) -> str:
    """What progress shows."""
    epoch = 1 + (state.step - 1) // phase.batches.per_epoch
    told = [f"{key} {mean:z.3f}" for key, mean in means.items()] if verbose else []
    return "  ".join([f"epoch {epoch}/{phase.recipe.epochs}  {speed:.0f} images/s", *told])
