"""The training loop, and the plain pass over a session that statistics are made from."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from safecl.engine.batches import Batches, FeatureBatches, PictureBatches
from safecl.engine.checkpoint import PhaseCheckpoint
from safecl.engine.cuda_graph import CudaGraph
from safecl.engine.device_loader import DeviceLoader, reads
from safecl.engine.guard import Guard
from safecl.engine.optimiser import Optimiser, rate_factor
from safecl.engine.processes import Processes
from safecl.engine.progress import Progress
from safecl.engine.settings import TrainSettings
from safecl.errors import SafeclError, Stopped
from safecl.methods.method import Group, Judged, Loss, Method, Network, Recipe, Sampler
from safecl.ram import peak, reset_peak
from safecl.randomness import default_generator, derive, untouched
from safecl.streams.pictures.images import Transform
from safecl.streams.stream import Session

STEPS_PER_NOTE = 10  # steps between two looks at the loss; each waits for the device
LOWEST_RATE = 0.01  # factor on the rate of the last attempt that tunes
HELD_RATE = 0.001  # stands for one attempt more: what is tuned stays as it was, the rest is trained at LOWEST_RATE


@dataclass(frozen=True)
class Phase:
    """One call of ``fit``: what is trained, on what, and how."""

    name: str
    module: nn.Module
    batches: Batches
    loss: Loss
    groups: Sequence[Group]
    recipe: Recipe
    after_step: Callable[[], object] | None
    file: Path | None  # of its checkpoint
    before: Optimiser | None = None  # of the phase that it continues

    @property
    def steps(self) -> int:
        return self.recipe.epochs * self.batches.per_epoch


@dataclass(eq=False)
class Trainer:
    """Trains modules for a method: the engine's ``Fit``."""

    accelerator: Accelerator
    method: Method
    settings: TrainSettings
    transform: Transform
    seed: int
    progress: Progress
    folder: Path | None = None  # of checkpoints
    stop: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self.processes = Processes(self.accelerator)
        self.steps = 0  # taken in the phases that are finished, attempts that were undone included
        self.begin(0)

    def begin(self, session: int) -> None:
        """A session begins: drop the notes and the pictures of the one before."""
        self.session = session
        self.losses: list[dict[str, Any]] = []
        self.phases: list[dict[str, Any]] = []
        self.notes: dict[str, float] = {}  # the share of the rate that a phase ended with, where it is not 1
        self.spent = 0.0  # seconds of this process in phases; those of a phase may include earlier processes
        self.peak = 0  # bytes, in what has been measured so far
        self._names: set[str] = set()
        self._loader: tuple[Session, DeviceLoader] | None = None
        self._optimiser: Optimiser | None = None  # of the latest phase, if one may continue it

    def recipe(self) -> Recipe:
        s = self.settings
        recipe = Recipe(**{each.name: getattr(s, each.name) for each in fields(Recipe) if hasattr(s, each.name)})
        given = {key: getattr(s, f"later_{key}") for key in ("epochs", "lr", "weight_decay")}
        later = {key: value for key, value in given.items() if value is not None}
        return recipe if self.session == 1 else replace(recipe, **later, horizon=s.later_horizon, clip=s.later_clip)

    def __call__(
        self,
        name: str,
        module: nn.Module,
        data: Session | Sampler,
        loss: Loss,
        *,
        groups: Sequence[Group] = (),
        recipe: Recipe | None = None,
        after_step: Callable[[], object] | None = None,
        judged: Judged | None = None,
    ) -> None:
        """Train what requires gradients in ``module``.

        If the loss diverges, or with ``train.guard`` the features of a tuned network are worse than before:
        again at a tenth of the rate, then at a hundredth, and then with what is tuned as it was.
        """
        if name in self._names:
            raise RuntimeError(f"fit was called twice with the name {name!r} in session {self.session}.")
        self._names.add(name)
        began, recipe = time.monotonic(), recipe or self.recipe()
        file = None if self.folder is None else self.folder / f"fit_{self.session}_{name}.safetensors"
        before = self._optimiser if recipe.continues else None
        phase = Phase(name, module, self._batches(name, data, recipe), loss, groups, recipe, after_step, file, before)
        start = {key: value.detach().clone() for key, value in module.state_dict().items()}
        checkpoint = PhaseCheckpoint()
        if file is not None:
            checkpoint = self.processes.once(lambda: PhaseCheckpoint.load(file, module, self.progress.say))
        self.losses = checkpoint.losses = checkpoint.losses or self.losses
        self.measure()
        guard = None
        if self.settings.guard and recipe.guard and isinstance(data, Session):
            guard = Guard.make(module, judged, self._open(data), self._targets(data))
        module.train()
        with untouched(default_generator(self.processes.device)):
            while (failure := self._attempt(phase, checkpoint, guard)) is not None:
                if checkpoint.slower < 2 * (LOWEST_RATE if guard is None else HELD_RATE):
                    raise SafeclError(
                        f"Training {name} diverged in session {self.session} even at a hundredth of train.lr; lower it."
                    )
                checkpoint.undo()
                held = checkpoint.slower < LOWEST_RATE / 2
                again = "what is tuned stays as it was" if held else "again at a tenth of the rate"
                self.progress.say(f"Session {self.session}, {name}: {failure}; {again}.")
                with torch.no_grad():
                    for key, value in module.state_dict().items():
                        value.copy_(start[key])
        if checkpoint.slower < 1:
            self.notes[f"rate of {name}"] = 0.0 if checkpoint.slower < LOWEST_RATE / 2 else round(checkpoint.slower, 2)
        module.eval()
        module.zero_grad(set_to_none=True)  # gradients may lie in the memory of a recorded step
        self.spent += time.monotonic() - began
        self.steps += checkpoint.undone + checkpoint.step
        seen, seconds = phase.batches.rows * recipe.epochs, max(checkpoint.seconds, 1e-9)
        times = {"steps": checkpoint.step, "seconds": seconds, "images": seen, "images_per_second": seen / seconds}
        self.phases.append({"phase": name, **times, "peak_memory": self.measure()})

    def _attempt(self, phase: Phase, checkpoint: PhaseCheckpoint, guard: Guard | None) -> str | None:
        """One attempt from ``checkpoint`` on; why it failed, if it did."""
        held = guard if checkpoint.slower < LOWEST_RATE / 2 else None
        if not self._train(phase, checkpoint, held):
            return "the loss diverged"
        if guard is not None and held is None and self.processes.any(guard.worse()):
            return "the tuned features are worse than before"
        return None

    @torch.enable_grad()
    def _train(self, phase: Phase, checkpoint: PhaseCheckpoint, held: Guard | None) -> bool:
        """Train from ``checkpoint`` on; False if the loss stopped being finite. ``held``: keeps what is tuned."""
        processes, recipe, per_epoch = self.processes, phase.recipe, phase.batches.per_epoch
        device = processes.device
        parameters = {name: p for name, p in phase.module.named_parameters() if p.requires_grad}
        optimiser = Optimiser(parameters, phase.groups, recipe, device)
        if phase.before is not None:
            optimiser.take_over(phase.before.torch.state)
        checkpoint.restore(phase.module, optimiser)

        def step(*inputs: Tensor) -> dict[str, Tensor]:
            """From the inputs of a batch to new weights; gives the loss and its terms."""
            optimiser.torch.zero_grad(set_to_none=True)
            values: dict[str, Tensor] = {}
            for batch, share in phase.batches.pieces(*inputs):
                given: Any = phase.loss(batch)
                if not isinstance(given, dict) or not given:
                    raise TypeError(f"The loss of {phase.name} must give its terms by name, for example {{'cls': …}}.")
                terms: dict[str, Tensor] = {key: term * share for key, term in given.items()}
                terms = {"loss": torch.stack(list(terms.values())).sum(), **terms}
                terms["loss"].backward()  # type: ignore[no-untyped-call]  # torch's own
                values = {key: term.detach() + values.get(key, 0) for key, term in terms.items()}
            processes.average_gradients(parameters)
            optimiser.step()
            return values

        def save() -> None:
            checkpoint.seconds = before + time.monotonic() - started
            if (file := phase.file) is not None:
                processes.once(lambda: checkpoint.save(file, phase.module, optimiser))

        recorded = recipe.graph and self.settings.graphs and processes.count == 1
        take = CudaGraph(step, device, recorded, self.progress.say)
        inputs = phase.batches.inputs(checkpoint.step)
        started, here, before = time.monotonic(), checkpoint.step, checkpoint.seconds
        saved, following = started, next(inputs, None)
        with self.progress.phase(f"Session {self.session}  {phase.name}", phase.steps, here) as shown:
            while following is not None:
                # Dropout draws from torch's own generator; each process draws the masks of its own pictures.
                seed = derive(self.seed, "dropout", self.session, phase.name, checkpoint.step, processes.index)
                default_generator(device).manual_seed(seed)
                rate = recipe.lr * max(checkpoint.slower, LOWEST_RATE) * rate_factor(recipe, checkpoint.step, per_epoch)
                optimiser.set_rate(rate)
                checkpoint.add(take(*following))
                if held is not None:
                    held.hold()
                if phase.after_step is not None:
                    phase.after_step()
                following = next(inputs, None)  # made ready while the device works
                checkpoint.step += 1
                look = checkpoint.step % STEPS_PER_NOTE == 0 or checkpoint.step % per_epoch == 0
                if look:
                    means = checkpoint.means()
                    if not math.isfinite(means["loss"]):
                        return False
                    speed = recipe.batch_size * (checkpoint.step - here) / (time.monotonic() - started)
                    shown.advance(0, self._note(phase, checkpoint, means, rate, speed))
                shown.advance()
                if look or processes.count == 1 or device.type == "cpu":  # elsewhere the question costs a wait
                    due = self.stop() or time.monotonic() - saved > self.settings.save_seconds
                    if processes.any(due):
                        save()
                        saved = time.monotonic()
                        if processes.any(self.stop()):
                            raise Stopped
        self._optimiser = optimiser if recipe.continues else None
        finite = bool(torch.stack([parameter.isfinite().all() for parameter in parameters.values()]).all())
        if finite and here < phase.steps:
            save()
        return finite

    def _note(
        self, phase: Phase, checkpoint: PhaseCheckpoint, means: dict[str, float], rate: float, speed: float
    ) -> str:
        """Note the losses and tell the trackers; gives what progress shows."""
        name, epoch, loss = phase.name, (checkpoint.step - 1) // phase.batches.per_epoch, means["loss"]
        values = {f"{name}/{key}": value for key, value in means.items()} | {f"{name}/lr": rate}
        self.accelerator.log(values, step=self.steps + checkpoint.undone + checkpoint.step)
        terms = {key: value for key, value in means.items() if key != "loss"}
        line = {"session": self.session, "phase": name, "step": checkpoint.step, "epoch": epoch, "lr": rate}
        self.losses.append({**line, "loss": loss, "terms": terms})
        told = [f"{key} {mean:z.3f}" for key, mean in {"loss": loss, **terms}.items() if self.progress.verbose]
        return "  ".join([f"epoch {epoch + 1}/{phase.recipe.epochs}  {speed:.0f} images/s", *told])

    def agree(self, decision: bool) -> bool:
        return self.processes.once(lambda: decision)

    @torch.no_grad()
    def features(self, session: Session, *networks: Network) -> tuple[Tensor, ...]:
        """(targets, features of each network) over the plain views of the session, the same on every process."""
        targets, loader = self._targets(session), self._open(session)
        found: list[list[Tensor]] = [[] for _ in networks]
        with self.progress.phase(f"Session {self.session}  features", len(targets)) as shown:
            for images in self.views(loader):
                for network, chunks in zip(networks, found, strict=True):
                    chunks.append(network.features(images))
                shown.advance(len(images) * self.processes.count)
        gathered = [self.processes.gather(torch.cat(chunks), len(targets)) for chunks in found]
        for network, features in zip(networks, gathered, strict=True):
            if not features.isfinite().all():
                raise self._not_finite(network, loader)
        return targets, *gathered

    @torch.no_grad()
    def augmented_features(self, name: str, session: Session, network: Network) -> Tensor:
        """Features (N, d) of a random crop of each picture of the session, the same on every process."""
        batches = self._batches(name, session, replace(self.recipe(), epochs=1))
        pieces = (piece for inputs in batches.inputs(0) for piece, _ in batches.pieces(*inputs))
        return torch.cat([piece.features(network) for piece in pieces])

    def _not_finite(self, network: Network, loader: DeviceLoader) -> SafeclError:
        """Whose fault it is that ``network`` gives features that are not finite: the backbone's or the training's."""
        backbone = self.method.backbone
        own = backbone.features(next(loader.plain(range(min(len(loader.pictures), 64)))))
        if network is backbone or not own.isfinite().all():
            return SafeclError(
                f"The features of {backbone.name} are not finite; check its weights, or set precision=fp32."
            )
        return SafeclError(f"Training diverged in session {self.session}: features are not finite; lower train.lr.")

    def views(self, loader: DeviceLoader) -> Iterator[Tensor]:
        """The plain views of this process's share of the pictures; a stop is noticed between two batches."""
        n, count = len(loader.pictures), self.processes.count
        own = loader.plain(range(n)[self.processes.share(n)])
        for _ in range(math.ceil(math.ceil(n / count) / reads(self.processes.device))):  # the same for everyone
            if self.processes.any(self.stop()):
                raise Stopped
            yield from islice(own, 1)

    def measure(self) -> int:
        """Peak memory since this was last called."""
        found = peak(self.processes.device)
        self.peak = max(self.peak, found)
        reset_peak(self.processes.device)
        return found

    def _batches(self, name: str, data: Session | Sampler, recipe: Recipe) -> Batches:
        if isinstance(data, Session):
            shared = self.processes, self.settings.accumulate, self.method.backbone.dtype
            place = self.session, name, recipe, self.seed
            return PictureBatches(self._open(data), self._targets(data), *place, *shared)
        return FeatureBatches(data, self.session, name, recipe, self.seed, self.processes.device)

    def _open(self, session: Session) -> DeviceLoader:
        session.check_open()  # a loader may still hold the pictures of a session that is over
        if self._loader is None or self._loader[0] is not session:
            self._loader = session, DeviceLoader(session.train, self.transform, self.processes.device)
        return self._loader[1]

    def _targets(self, session: Session) -> Tensor:
        index = {label: i for i, label in enumerate(self.method.classes)}
        return torch.tensor([index[label] for label in session.train.labels], device=self.processes.device)
