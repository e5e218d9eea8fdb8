"""The training loop, and the plain pass over a session that statistics are made from."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate import Accelerator
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn

from safecl.backbone import Backbone
from safecl.engine.checkpoint import load_state, save_state
from safecl.engine.feed import Feed
from safecl.engine.track import Phase, Tracker
from safecl.errors import SafeclError
from safecl.learner import Learner
from safecl.methods.method import Loss, Method
from safecl.randomness import derive, generator
from safecl.settings import Settings
from safecl.streams.images import Transform
from safecl.streams.stream import Session


class TrainSettings(Settings):
    """SGD with momentum and a cosine schedule. ``later_…`` holds for every session but the first."""

    epochs: PositiveInt = 20
    later_epochs: PositiveInt | None = Field(None, description="as epochs if not given")
    batch_size: PositiveInt = 48
    lr: PositiveFloat = 0.01
    later_lr: PositiveFloat | None = Field(None, description="as lr if not given")
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: NonNegativeFloat = 5e-4
    later_horizon: PositiveInt | None = Field(None, description="epochs over which the later schedule would reach 0")
    schedule: Literal["step", "epoch"] = Field("step", description="how often the learning rate changes")
    warmup: float = Field(0.0, ge=0, lt=1, description="part of the steps over which the rate rises from 0")
    clip: PositiveFloat | None = Field(None, description="largest norm of the whole gradient")
    later_clip: PositiveFloat | None = Field(1.0, description="the same in later sessions")
    save_seconds: PositiveFloat = Field(60.0, description="how often a phase saves where it is")


class Stopped(Exception):
    """The run was asked to stop and has saved its place."""


class Fitting:
    """Trains learners for a method, on whatever device and however many processes there are."""

    def __init__(
        self,
        accelerator: Accelerator,
        method: Method,
        settings: TrainSettings,
        transform: Transform,
        seed: int,
        tracker: Tracker,
        folder: Path | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.accelerator, self.method, self.settings = accelerator, method, settings
        self.transform, self.seed, self.tracker, self.folder, self.stop = transform, seed, tracker, folder, stop
        self.losses: list[dict[str, Any]] = []
        self.seconds = {"fit": 0.0, "features": 0.0}
        self.pictures_seen = 0
        self._feed: tuple[Session, Feed] | None = None

    def __call__(self, name: str, learner: nn.Module, session: Session, loss: Loss) -> None:
        """Train what requires gradients in ``learner``; if the loss diverges, again at a tenth of the rate."""
        started = time.monotonic()
        start = {key: value.detach().clone() for key, value in _trainable(learner).items()}
        learner.train()
        for slower in (1.0, 0.1, 0.01):
            if self._train(name, learner, session, loss, slower):
                break
            self.tracker.say(f"Session {session.number}, {name}: the loss diverged; again at a tenth of the rate.")
            with torch.no_grad():
                for key, value in _trainable(learner).items():
                    value.copy_(start[key])
        else:
            raise SafeclError(
                f"Training {name} diverged in session {session.number} even at a hundredth of train.lr; lower train.lr."
            )
        learner.eval()
        self.seconds["fit"] += time.monotonic() - started

    def _train(self, name: str, learner: nn.Module, session: Session, loss: Loss, slower: float) -> bool:
        """One attempt; False if the loss stopped being finite."""
        s, device, first = self.settings, self.accelerator.device, session.number == 1
        parameters = _trainable(learner)
        epochs = s.epochs if first else s.later_epochs or s.epochs
        horizon = epochs if first else s.later_horizon or epochs
        rate = (s.lr if first else s.later_lr or s.lr) * slower
        clip = s.clip if first else s.later_clip
        feed, targets = self._open(session), self._targets(session)
        n = len(targets)
        per_epoch = math.ceil(n / s.batch_size)
        total = epochs * per_epoch
        optimiser = torch.optim.SGD(parameters.values(), rate, s.momentum, weight_decay=s.weight_decay)
        place = f"{session.number}_{name}"
        step = self._resume(place, slower, parameters, optimiser)
        saved, finite, sums = time.monotonic(), torch.ones((), dtype=torch.bool, device=device), _Means()
        with self.tracker.phase(f"Session {session.number}  {name}", total) as phase:
            phase.advance(step)
            while step < total:
                epoch, at = divmod(step, per_epoch)
                order = torch.randperm(n, generator=generator(self.seed, "order", session.number, epoch))
                batch = self._mine(order[at * s.batch_size : (at + 1) * s.batch_size])
                draw = generator(self.seed, "augment", session.number, step, self.accelerator.process_index)
                torch.manual_seed(derive(self.seed, "dropout", session.number, step))
                for group in optimiser.param_groups:
                    group["lr"] = rate * _schedule(s, step, per_epoch, total, horizon)
                images = feed.augmented(batch.tolist(), draw)
                terms = loss(images, targets[batch.to(targets.device)])
                value = torch.stack(list(terms.values())).sum()
                optimiser.zero_grad(set_to_none=True)
                torch.autograd.backward(value)
                self._average_gradients(parameters)
                if clip is not None:
                    nn.utils.clip_grad_norm_(parameters.values(), clip)
                optimiser.step()
                step += 1
                finite &= value.detach().isfinite()
                sums.add(value, terms)
                self.pictures_seen += len(batch)
                if step % 10 == 0 or step % per_epoch == 0:
                    if not finite:
                        return False
                    self._note(session, name, step, epoch, sums, optimiser, phase)
                phase.advance()
                if self.stop() or time.monotonic() - saved > s.save_seconds:
                    self._save(place, slower, step, parameters, optimiser)
                    saved = time.monotonic()
                    if self.stop():
                        raise Stopped
        finite &= torch.stack([parameter.isfinite().all() for parameter in parameters.values()]).all()  # the last step
        if finite:
            self._save(place, slower, step, parameters, optimiser)
        return bool(finite)

    @torch.no_grad()
    def features(self, session: Session, *learners: Learner | Backbone) -> tuple[Tensor, ...]:
        """(targets, features of each learner) over the plain views of the session, the same on every process."""
        started = time.monotonic()
        targets = self._targets(session)
        found: list[list[Tensor]] = [[] for _ in learners]
        mine = self._share(len(targets))
        with self.tracker.phase(f"Session {session.number}  features", len(mine)) as phase:
            for images in self._open(session).plain(mine):
                for learner, chunks in zip(learners, found, strict=True):
                    chunks.append(learner.features(images))
                phase.advance(len(images))
        result = tuple(self._gather(torch.cat(chunks), len(targets)) for chunks in found)
        self.seconds["features"] += time.monotonic() - started
        return targets, *result

    def _open(self, session: Session) -> Feed:
        session.check_open()  # a feed may still hold the pictures of a session that is over
        if self._feed is None or self._feed[0] is not session:
            self._feed = session, Feed(session.train, self.transform, self.accelerator.device)
        return self._feed[1]

    def _targets(self, session: Session) -> Tensor:
        index = {label: i for i, label in enumerate(self.method.classes)}
        return torch.tensor([index[label] for label in session.train.labels], device=self.accelerator.device)

    # -- many processes, one answer ------------------------------------------------------------------------------

    def _mine(self, batch: Tensor) -> Tensor:
        """This process's part of a global batch; all of one that is too small to give everyone a picture."""
        if len(batch) < self.accelerator.num_processes:
            return batch
        return batch[self.accelerator.process_index :: self.accelerator.num_processes]

    def _share(self, n: int) -> range:
        """This process's run of n pictures."""
        each = math.ceil(n / self.accelerator.num_processes)
        return range(n)[self.accelerator.process_index * each : (self.accelerator.process_index + 1) * each]

    def _gather(self, mine: Tensor, n: int) -> Tensor:
        if self.accelerator.num_processes == 1:
            return mine
        each = math.ceil(n / self.accelerator.num_processes)
        padded = mine.new_zeros(each, *mine.shape[1:])
        padded[: len(mine)] = mine
        everything: Tensor = self.accelerator.gather(padded)
        return everything[:n]

    def _average_gradients(self, parameters: dict[str, nn.Parameter]) -> None:
        if self.accelerator.num_processes == 1:
            return
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters.values()]
        flat = self.accelerator.reduce(torch.cat([g.flatten() for g in gradients]), "mean")
        for parameter, part in zip(parameters.values(), flat.split([g.numel() for g in gradients]), strict=True):
            parameter.grad = part.view_as(parameter)

    # -- where a phase is ----------------------------------------------------------------------------------------

    def _file(self, place: str) -> Path | None:
        return None if self.folder is None else self.folder / f"fit_{place}.safetensors"

    def _save(
        self, place: str, slower: float, step: int, parameters: dict[str, nn.Parameter], optimiser: torch.optim.SGD
    ) -> None:
        file = self._file(place)
        if file is None or not self.accelerator.is_main_process:
            return
        tensors: dict[str, Tensor] = dict(parameters)
        for i, parameter in enumerate(parameters.values()):
            buffer = optimiser.state[parameter].get("momentum_buffer")
            if buffer is not None:
                tensors[f"momentum/{i}"] = buffer
        save_state(file, tensors, {"step": step, "slower": slower, "losses": self.losses})

    def _resume(
        self, place: str, slower: float, parameters: dict[str, nn.Parameter], optimiser: torch.optim.SGD
    ) -> int:
        """Go on at the step an earlier process saved; 0 if there is none."""
        file = self._file(place)
        if file is None or not file.exists():
            return 0
        try:
            tensors, facts = load_state(file)
        except SafeclError as error:
            self.tracker.say(f"{error} The phase starts again.")
            return 0
        if facts["slower"] != slower:
            return 0
        with torch.no_grad():
            for i, (key, parameter) in enumerate(parameters.items()):
                parameter.copy_(tensors[key])
                if f"momentum/{i}" in tensors:
                    optimiser.state[parameter]["momentum_buffer"] = tensors[f"momentum/{i}"].to(parameter)
        self.losses = list(facts["losses"])
        return int(facts["step"])

    def _note(
        self, session: Session, name: str, step: int, epoch: int, sums: "_Means", optimiser: Any, phase: Phase
    ) -> None:
        means = sums.take()
        rate = optimiser.param_groups[0]["lr"]
        line = {"session": session.number, "phase": name, "step": step, "epoch": epoch, "lr": rate}
        self.losses.append({**line, "loss": means.pop("loss"), "terms": means})
        phase.advance(0, "  ".join(f"{key} {value:.3f}" for key, value in means.items()))


class _Means:
    """Means of the loss and its terms since they were last taken; on the device until then."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.count = 0

    def add(self, value: Tensor, terms: dict[str, Tensor]) -> None:
        for key, term in {"loss": value, **terms}.items():
            self.sums[key] = self.sums[key] + term.detach() if key in self.sums else term.detach()
        self.count += 1

    def take(self) -> dict[str, float]:
        means = {key: float(total) / self.count for key, total in self.sums.items()}
        self.sums, self.count = {}, 0
        return means


def _trainable(learner: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in learner.named_parameters() if p.requires_grad}


def _schedule(s: TrainSettings, step: int, per_epoch: int, total: int, horizon: int) -> float:
    """Factor on the learning rate: a warm-up, and a cosine that would reach 0 after ``horizon`` epochs."""
    rising = s.warmup * total
    if step < rising:
        return (step + 1) / (rising + 1)
    position = step // per_epoch / horizon if s.schedule == "epoch" else step / (horizon * per_epoch)
    return 0.5 * (1 + math.cos(math.pi * min(position, 1.0)))
