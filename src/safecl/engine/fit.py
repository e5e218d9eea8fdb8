"""The training loop, and the plain pass over a session that statistics are made from."""

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate import Accelerator
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn

from safecl.backbone import Backbone
from safecl.engine.cuda_graph import CudaGraph
from safecl.engine.device_loader import DeviceLoader, moved, reads
from safecl.engine.memory import peak, reset_peak
from safecl.engine.phase import Means, PhaseCheckpoint
from safecl.engine.processes import Processes
from safecl.engine.progress import Progress
from safecl.errors import SafeclError, Stopped
from safecl.learner import Learner
from safecl.methods.method import Loss, Method
from safecl.randomness import derive, generator
from safecl.settings import Settings
from safecl.streams.crops import cut_out, random_crops
from safecl.streams.images import Transform
from safecl.streams.stream import Session

NOTE = 10  # steps between two looks at the loss; each waits for the device


class TrainSettings(Settings):
    """SGD with momentum and a cosine schedule. ``later_…`` holds for every session but the first."""

    epochs: PositiveInt = 20
    later_epochs: PositiveInt | None = Field(None, description="as epochs if not given")
    batch_size: PositiveInt = Field(48, description="pictures a step, over all processes")
    accumulate: PositiveInt = Field(1, description="in how many pieces a batch goes through the network")
    lr: PositiveFloat = 0.01
    later_lr: PositiveFloat | None = Field(None, description="as lr if not given")
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: NonNegativeFloat = 5e-4
    later_horizon: PositiveInt | None = Field(None, description="epochs over which the later schedule would reach 0")
    schedule: Literal["step", "epoch"] = Field("step", description="how often the learning rate changes")
    warmup: float = Field(0.0, ge=0, lt=1, description="part of the steps over which the rate rises from 0")
    clip: PositiveFloat | None = Field(None, description="largest norm of the whole gradient")
    later_clip: PositiveFloat | None = Field(1.0, description="the same in later sessions")
    graphs: bool = Field(True, description="on CUDA, record a step once and replay it")
    save_seconds: PositiveFloat = Field(60.0, description="how often a phase saves where it is")

    @model_validator(mode="after")
    def _pieces(self) -> "TrainSettings":
        if self.batch_size % self.accumulate:
            raise ValueError(f"accumulate={self.accumulate} must divide batch_size={self.batch_size}")
        return self


class Fitting:
    """Trains learners for a method, on whatever device and however many processes there are."""

    def __init__(
        self,
        accelerator: Accelerator,
        method: Method,
        settings: TrainSettings,
        transform: Transform,
        seed: int,
        progress: Progress,
        folder: Path | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.accelerator, self.method, self.settings = accelerator, method, settings
        self.transform, self.seed, self.progress, self.folder, self.stop = transform, seed, progress, folder, stop
        self.processes = Processes(accelerator)
        self.steps = 0  # taken in all phases that are finished
        self.forget()

    def forget(self) -> None:
        """A session is over: what was noted of it, and its pictures, are not needed any more."""
        self.losses: list[dict[str, Any]] = []
        self.phases: list[dict[str, Any]] = []
        self.spent = 0.0  # seconds of this process in phases; theirs may go back before its start
        self.peak = 0  # bytes, in what has been measured so far
        self._feed: tuple[Session, DeviceLoader] | None = None

    def __call__(self, name: str, learner: nn.Module, session: Session, loss: Loss) -> None:
        """Train what requires gradients in ``learner``; if the loss diverges, again at a tenth of the rate."""
        began, parameters = time.monotonic(), trainable(learner)
        start = {key: value.detach().clone() for key, value in parameters.items()}
        file = None if self.folder is None else self.folder / f"fit_{session.number}_{name}.safetensors"
        checkpoint = (
            PhaseCheckpoint()
            if file is None
            else self.processes.once(lambda: PhaseCheckpoint.load(file, parameters, self.progress.say))
        )
        self.losses = checkpoint.losses = checkpoint.losses or self.losses
        self.measure()
        learner.train()
        while not self._train(name, learner, session, loss, checkpoint, file):
            if checkpoint.slower < 0.02:
                raise SafeclError(
                    f"Training {name} diverged in session {session.number} even at a hundredth of train.lr; "
                    "lower train.lr."
                )
            self.progress.say(f"Session {session.number}, {name}: the loss diverged; again at a tenth of the rate.")
            checkpoint.step, checkpoint.slower, checkpoint.means = 0, checkpoint.slower / 10, Means()
            with torch.no_grad():
                for key, value in parameters.items():
                    value.copy_(start[key])
        learner.eval()
        learner.zero_grad(set_to_none=True)  # gradients may lie in the memory of a recorded step
        self.spent += time.monotonic() - began
        self.steps += checkpoint.step
        seen, seconds = len(session.train) * self._epochs(session), max(checkpoint.seconds, 1e-9)
        times = {"steps": checkpoint.step, "seconds": seconds, "images": seen, "images_per_second": seen / seconds}
        self.phases.append({"phase": name, **times, "peak_memory": self.measure()})

    def _train(
        self,
        name: str,
        learner: nn.Module,
        session: Session,
        loss: Loss,
        checkpoint: PhaseCheckpoint,
        file: Path | None,
    ) -> bool:
        """One attempt from ``checkpoint`` on; False if the loss stopped being finite."""
        s, processes, device = self.settings, self.processes, self.processes.device
        parameters, first = trainable(learner), session.number == 1
        epochs = self._epochs(session)
        horizon = epochs if first else s.later_horizon or epochs
        rate = (s.lr if first else s.later_lr or s.lr) * checkpoint.slower
        clip = s.clip if first else s.later_clip
        size = s.batch_size
        per_epoch = math.ceil(len(session.train) / size)
        total = epochs * per_epoch
        now = torch.zeros((), device=device)  # the rate, where a recorded step finds it
        optimiser = torch.optim.SGD(parameters.values(), now, s.momentum, weight_decay=s.weight_decay, fused=True)
        checkpoint.restore(parameters, optimiser)

        def step(canvas: Tensor, crops: Tensor, targets: Tensor) -> dict[str, Tensor]:
            """From a batch (this process's canvases of it, their crops, all targets) to new weights, and the loss."""
            optimiser.zero_grad(set_to_none=True)
            values: dict[str, Tensor] = {}
            for rows, mine in self._pieces(len(targets)):
                images = cut_out(canvas[mine], crops[mine], self.transform.size)
                with processes.together(self.method, rows.stop - rows.start):
                    terms = loss(images, targets[rows])
                share = (rows.stop - rows.start) / len(targets)
                terms = {key: term * share for key, term in terms.items()}
                terms = {"loss": torch.stack(list(terms.values())).sum(), **terms}
                terms["loss"].backward()  # type: ignore[no-untyped-call]  # torch's own
                values = {key: term.detach() + values.get(key, 0) for key, term in terms.items()}
            processes.average_gradients(parameters)
            if clip is not None:
                nn.utils.clip_grad_norm_(parameters.values(), clip)
            optimiser.step()
            return values

        take = CudaGraph(step, device, s.graphs and processes.count == 1, self.progress.say)
        started, sums, here, before = time.monotonic(), checkpoint.means, checkpoint.step, checkpoint.seconds
        saved, inputs = started, self._inputs(session, here, total, per_epoch)
        following = next(inputs, None)
        with self.progress.phase(f"Session {session.number}  {name}", total, here) as phase:
            while following is not None:
                # Masks of dropout are drawn by each process for its own pictures.
                torch.manual_seed(derive(self.seed, "dropout", session.number, checkpoint.step) + processes.index)
                lr = rate * _schedule(s, checkpoint.step, per_epoch, total, horizon)
                now.fill_(lr)
                sums.add(take(*following))
                following = next(inputs, None)  # made ready while the device works
                checkpoint.step += 1
                look = checkpoint.step % NOTE == 0 or checkpoint.step % per_epoch == 0
                if look:
                    means, speed = sums.take(), size * (checkpoint.step - here) / (time.monotonic() - started)
                    if not math.isfinite(means["loss"]):
                        return False
                    epoch = (checkpoint.step - 1) // per_epoch
                    self._note(session, name, checkpoint.step, epoch, means, lr)
                    said = "  ".join(f"{key} {mean:.3f}" for key, mean in means.items())
                    phase.advance(0, f"epoch {epoch + 1}/{epochs}  {said}  {speed:.0f} images/s")
                phase.advance()
                if look or processes.count == 1 or device.type == "cpu":  # elsewhere the question costs a wait
                    due = self.stop() or time.monotonic() - saved > s.save_seconds
                    if processes.any(due):
                        saved = time.monotonic()
                        checkpoint.seconds = before + saved - started
                        self._save(checkpoint, file, parameters, optimiser)
                        if processes.any(self.stop()):
                            raise Stopped
        finite = bool(torch.stack([parameter.isfinite().all() for parameter in parameters.values()]).all())
        if finite and here < total:
            checkpoint.seconds = before + time.monotonic() - started
            self._save(checkpoint, file, parameters, optimiser)
        return finite

    def _inputs(
        self, session: Session, start: int, total: int, per_epoch: int
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """For each step from ``start`` on: this process's canvases of the batch, their crops, and all targets of it."""
        loader, targets, size = self._open(session), self._targets(session), self.settings.batch_size
        for step in range(start, total):
            epoch, at = divmod(step, per_epoch)
            if at == 0 or step == start:  # a new epoch, or the middle of one after a stop
                order = torch.randperm(len(targets), generator=generator(self.seed, "order", session.number, epoch))
                batches, labels = (_cut(rows, size)[at:] for rows in (order, targets[moved(order, targets.device)]))
                canvases = loader.canvases([batch[self._mine(len(batch))].tolist() for batch in batches])
            (canvas, shapes), these = next(canvases), labels.pop(0)
            # All crops of the batch are drawn, so that those of a picture do not depend on who takes it.
            mine = self._mine(len(these))
            every = torch.ones(len(these), 3).index_copy(0, mine, shapes)
            crops = random_crops(every, self.transform, generator(self.seed, "augment", session.number, step, 0))
            yield canvas, moved(crops[mine], targets.device), these

    @torch.no_grad()
    def features(self, session: Session, *learners: Learner | Backbone) -> tuple[Tensor, ...]:
        """(targets, features of each learner) over the plain views of the session, the same on every process."""
        targets, loader = self._targets(session), self._open(session)
        found: list[list[Tensor]] = [[] for _ in learners]
        with self.progress.phase(f"Session {session.number}  features", len(targets)) as phase:
            for images in self.views(loader):
                for learner, chunks in zip(learners, found, strict=True):
                    chunks.append(learner.features(images))
                phase.advance(len(images) * self.processes.count)
        return targets, *(self.processes.gather(torch.cat(chunks), len(targets)) for chunks in found)

    def views(self, loader: DeviceLoader) -> Iterator[Tensor]:
        """The plain views of this process's share of the pictures; a stop is heard between two batches."""
        n, count = len(loader.pictures), self.processes.count
        mine = loader.plain(range(n)[self.processes.share(n)])
        for _ in range(math.ceil(math.ceil(n / count) / reads(self.processes.device))):  # the same for everyone
            if self.processes.any(self.stop()):
                raise Stopped
            images = next(mine, None)
            if images is not None:
                yield images

    def measure(self) -> int:
        """Peak memory since this was last called."""
        found = peak(self.processes.device)
        self.peak = max(self.peak, found)
        reset_peak(self.processes.device)
        return found

    def _pieces(self, n: int) -> Iterator[tuple[slice, slice]]:
        """The pieces in which a batch of n goes through the network: their rows, and where this process has its own."""
        size, at = self.settings.batch_size // self.settings.accumulate, 0
        for start in range(0, n, size):
            rows = slice(start, min(start + size, n))
            mine = self.processes.share(rows.stop - rows.start)
            yield rows, slice(at, at := at + mine.stop - mine.start)

    def _mine(self, n: int) -> Tensor:
        """The rows of a batch of n pictures that this process takes."""
        parts = []
        for rows, _ in self._pieces(n):
            mine = self.processes.share(rows.stop - rows.start)
            parts.append(torch.arange(rows.start + mine.start, rows.start + mine.stop))
        return torch.cat(parts)

    def _epochs(self, session: Session) -> int:
        later = self.settings.later_epochs or self.settings.epochs
        return self.settings.epochs if session.number == 1 else later

    def _open(self, session: Session) -> DeviceLoader:
        session.check_open()  # a loader may still hold the pictures of a session that is over
        if self._feed is None or self._feed[0] is not session:
            self._feed = session, DeviceLoader(session.train, self.transform, self.processes.device)
        return self._feed[1]

    def _targets(self, session: Session) -> Tensor:
        index = {label: i for i, label in enumerate(self.method.classes)}
        return torch.tensor([index[label] for label in session.train.labels], device=self.processes.device)

    def _save(
        self,
        checkpoint: PhaseCheckpoint,
        file: Path | None,
        parameters: dict[str, nn.Parameter],
        optimiser: torch.optim.SGD,
    ) -> None:
        if file is not None:
            self.processes.once(lambda: checkpoint.save(file, parameters, optimiser))

    def _note(self, session: Session, name: str, step: int, epoch: int, means: dict[str, float], rate: float) -> None:
        terms = {key: value for key, value in means.items() if key != "loss"}
        line = {"session": session.number, "phase": name, "step": step, "epoch": epoch, "lr": rate}
        self.losses.append({**line, "loss": means["loss"], "terms": terms})
        values = {f"{name}/{key}": value for key, value in means.items()}
        self.accelerator.log({**values, f"{name}/lr": rate}, step=self.steps + step)


def trainable(learner: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in learner.named_parameters() if p.requires_grad}


def _cut(positions: Tensor, size: int) -> list[Tensor]:
    return [positions[start : start + size] for start in range(0, len(positions), size)]


def _schedule(s: TrainSettings, step: int, per_epoch: int, total: int, horizon: int) -> float:
    """Factor on the learning rate: a warm-up, and a cosine that would reach 0 after ``horizon`` epochs."""
    rising = s.warmup * total
    if step < rising:
        return (step + 1) / (rising + 1)
    position = step // per_epoch / horizon if s.schedule == "epoch" else step / (horizon * per_epoch)
    return 0.5 * (1 + math.cos(math.pi * min(position, 1.0)))
