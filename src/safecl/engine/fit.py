"""What a method is handed to learn with: it trains its modules, and makes features of a session."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from safecl.engine.batches import Batches, FeatureBatches, PictureBatches
from safecl.engine.cuda_graph import CudaGraph
from safecl.engine.device_loader import DeviceLoader, reads
from safecl.engine.optimiser import Optimiser
from safecl.engine.phase_store import PhaseState, PhaseStore
from safecl.engine.processes import Processes
from safecl.engine.progress import Progress
from safecl.engine.retry import HELD, SLOWER, Attempt, Guard, retry
from safecl.engine.settings import TrainSettings
from safecl.engine.train_phase import Phase, Surroundings, tensors, train_phase
from safecl.errors import SafeclError, Stopped
from safecl.methods.method import Group, Judged, Loss, Method, Network, Recipe, Sampler
from safecl.ram import peak, reset_peak
from safecl.randomness import StepSeeds, default_generator, untouched
from safecl.streams.pictures.images import Transform
from safecl.streams.stream import Session

Recorder: TypeAlias = Callable[[str, Tensor, Tensor], Tensor]


@dataclass(eq=False)
class Trainer:
    """Trains modules for a method: the engine's ``Fit``."""

    accelerator: Any  # Accelerate's, or what stands in for it
    method: Method
    settings: TrainSettings
    transform: Transform
    seed: int
    progress: Progress
    folder: Path | None = None  # of checkpoints
    stop: Callable[[], bool] = lambda: False
    graph: Callable[..., Any] = CudaGraph  # records a step
    # what is given to ``record``; its result is added to the head's statistics
    recorder: Recorder | None = None
    # is told the share of the untuned error that pilots gain, and may stop here
    pilots: Callable[[float], object] = lambda gain: None
    room: int | None = None  # bytes of canvases to keep on the device, if not ``held_bytes``

    def __post_init__(self) -> None:
        self.processes = Processes(self.accelerator)
        self.seeds = StepSeeds(self.seed)
        self.steps = 0  # taken in the phases that are finished, attempts that were undone included
        self.begin(0)

    def begin(self, session: int) -> None:
        """A session begins: drop the notes and the pictures of the one before."""
        self.session = session
        self.losses = list[dict[str, Any]]()
        self.phases = list[dict[str, Any]]()
        # What is drawn step by step: kind, how often, phase, and process if it has its own.
        self.draws = list[list[Any]]()
        # The share of the rate that a phase ended with, where it is not 1.
        self.notes = dict[str, float]()
        # Seconds of this process in phases; those of a phase may include earlier processes.
        self.spent = 0.0
        self.peak = 0  # bytes, in what has been measured so far
        self._names = set[str]()
        self._loader: tuple[Session, DeviceLoader] | None = None
        self.optimiser: Optimiser | None = None  # of the latest phase, if one may continue it

    def recipe(self) -> Recipe:
        s = self.settings
        recipe = Recipe(
            **{each.name: getattr(s, each.name) for each in fields(Recipe) if hasattr(s, each.name)}
        )
        if self.session == 1:
            return recipe
        given = {key: getattr(s, f"later_{key}") for key in ("epochs", "lr", "weight_decay")}
        later = {key: value for key, value in given.items() if value is not None}
        return replace(recipe, **later, horizon=s.later_horizon, clip=s.later_clip)

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

        If the loss diverges, or with ``train.guard`` the features of a tuned network are worse than
        before: again at a tenth of the rate, then at a hundredth, and then with what is tuned as it
        was.
        """
        if name in self._names:
            raise RuntimeError(
                f"fit was called twice with the name {name!r} in session {self.session}."
            )
        self._names.add(name)
        began = time.monotonic()
        recipe = recipe or self.recipe()
        batches = self._batches(name, data, recipe)
        masks = [
            self._take(name, "dropout", batches.steps, process)
            for process in range(self.processes.count)
        ]
        phase = Phase(
            session=self.session,
            name=name,
            module=module,
            batches=batches,
            loss=loss,
            groups=groups,
            recipe=recipe,
            after_step=after_step,
            dropout=masks[self.processes.index],
            earlier=self.steps,
            before=self.optimiser if recipe.continues else None,
        )
        store = self._store(name)
        state = self.processes.once(lambda: store.load(tensors(module)))
        self.losses = state.losses = state.losses or self.losses
        self.measure()
        guard = None
        if self.settings.guard and recipe.guard and isinstance(data, Session):
            views = self._open(data).plain
            guard = Guard.make(module, judged, self._targets(data), lambda at: list(views(at)))
        start = {key: value.detach().clone() for key, value in module.state_dict().items()}

        def train(attempt: Attempt) -> str | None:
            return self.attempt(phase, state, store, attempt, guard)

        def undo(failure: str, following: Attempt) -> None:
            self.progress.say(f"Session {self.session}, {name}: {failure}; {following.words}.")
            state.undo()
            with torch.no_grad():
                for key, value in module.state_dict().items():
                    value.copy_(start[key])

        attempts = SLOWER if guard is None else (*SLOWER, HELD)
        module.train()
        with untouched(default_generator(self.processes.device)):
            last = retry(attempts, state.attempt, train, undo)
        if last is None:
            raise SafeclError("train.diverged", name=name, session=self.session)
        module.eval()
        module.zero_grad(set_to_none=True)  # gradients may lie in the memory of a recorded step
        if last.share < 1:
            self.notes[f"rate of {name}"] = 0.0 if last.holds else last.share
        self._note(phase, state)
        self.spent += time.monotonic() - began

    def attempt(
        self,
        phase: Phase,
        state: PhaseState,
        store: PhaseStore,
        attempt: Attempt,
        guard: Guard | None,
    ) -> str | None:
        """One attempt at a phase, from ``state`` on; why it failed, if it did."""
        hold = guard.hold if guard is not None else lambda: None
        shared = self.processes, self.settings, self.progress, self.stop, self.graph
        optimiser = train_phase(phase, state, store, attempt, hold, Surroundings(*shared))
        if optimiser is None:
            return "the loss diverged"
        if guard is not None and not attempt.holds and self.processes.any(guard.worse()):
            return "the tuned features are worse than before"
        self.optimiser = optimiser if phase.recipe.continues else None
        return None

    def _store(self, name: str) -> PhaseStore:
        """Where a phase of this session is kept."""
        file = f"fit_{self.session}_{name}.safetensors"
        return PhaseStore(None if self.folder is None else self.folder / file, self.progress.say)

    def _note(self, phase: Phase, state: PhaseState) -> None:
        """Note what a phase took that is finished."""
        self.steps += state.undone + state.step
        images = phase.batches.rows * phase.recipe.epochs
        seconds = max(state.seconds, 1e-9)
        about = {
            "phase": phase.name,
            "steps": state.step,
            "seconds": seconds,
            "images": images,
            "images_per_second": images / seconds,
            "peak_memory": self.measure(),
        }
        self.phases.append(about)

    def piloted(self, gain: float) -> None:
        self.pilots(gain)

    def agree(self, decision: bool) -> bool:
        return self.processes.once(lambda: decision)

    def record(self, name: str, features: Tensor, targets: Tensor) -> Tensor:
        return features if self.recorder is None else self.recorder(name, features, targets)

    @torch.no_grad()
    def features(self, session: Session, *networks: Network) -> tuple[Tensor, ...]:
        """(targets, features of each network) over the plain views of the session, the same on
        every process.
        """
        targets = self._targets(session)
        loader = self._open(session)
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
        """Features (N, d) of a random crop of each picture of the session, the same on every
        process.
        """
        batches = self._batches(name, session, replace(self.recipe(), epochs=1))
        return torch.cat([batches.batch(*inputs).features(network) for inputs in batches.inputs(0)])

    def _not_finite(self, network: Network, loader: DeviceLoader) -> SafeclError:
        """Whose fault it is that ``network`` gives features that are not finite: the backbone's or
        the training's.
        """
        backbone = self.method.backbone
        own = backbone.features(next(loader.plain(range(min(len(loader.pictures), 64)))))
        if network is backbone or not own.isfinite().all():
            return SafeclError("backbone.features.not-finite", name=backbone.name)
        return SafeclError("train.features.not-finite", session=self.session)

    def views(self, loader: DeviceLoader) -> Iterator[Tensor]:
        """The plain views of this process's share of the pictures; a stop is noticed between two
        batches.
        """
        n = len(loader.pictures)
        count = self.processes.count
        own = loader.plain(range(n)[self.processes.share(n)])
        most = math.ceil(n / count)  # that any process has, so that all ask equally often
        for _ in range(math.ceil(most / reads(self.processes.device))):
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
        take = partial(self._take, name)
        if isinstance(data, Session):
            shared = self.processes, self.settings.accumulate, self.method.backbone.dtype
            return PictureBatches(self._open(data), self._targets(data), recipe, take, *shared)
        return FeatureBatches(data, recipe, take, self.processes.device)

    def _take(self, phase: str, what: str, count: int, *process: int) -> list[int]:
        """Seeds of what is drawn so often in a phase of this session."""
        self.draws.append([what, count, phase, *process])
        return self.seeds.take(count, (what, self.session, phase), process)

    def drawn(self, session: int, draws: list[list[Any]]) -> None:
        """Note the ``draws`` of an earlier session, that this run goes on after: no step will share
        their numbers.
        """
        for what, count, phase, *process in draws:
            self.seeds.take(count, (what, session, phase), tuple(process))

    def _open(self, session: Session) -> DeviceLoader:
        session.check_open()  # a loader may still hold the pictures of a session that is over
        if self._loader is None or self._loader[0] is not session:
            device = self.processes.device
            loader = DeviceLoader(session.train, self.transform, device, room=self.room)
            self._loader = session, loader
        return self._loader[1]

    def _targets(self, session: Session) -> Tensor:
        index = {label: i for i, label in enumerate(self.method.classes)}
        return torch.tensor(
            [index[label] for label in session.train.labels], device=self.processes.device
        )
