"""The contracts between a method and the engine: ``Method``, ``Fit``, ``Batch`` and ``Recipe``."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.errors import SafeclError
from safecl.heads.left_out import LeftOut
from safecl.heads.ridge import RidgeHead
from safecl.learner import Learner, Reader
from safecl.losses import local_cross_entropy
from safecl.methods.earlier import state_of_today
from safecl.methods.parts import Parts, modules_of
from safecl.methods.settings.base import MethodSettings
from safecl.streams.pictures.images import Label, Transform
from safecl.streams.stream import Session

Network: TypeAlias = Learner | Backbone | Reader
Sampler: TypeAlias = Callable[[torch.Generator], tuple[Tensor, Tensor]]
"""Draws the features (N, d) and class indices (N,) of one epoch; N is the same for every epoch."""


@dataclass(frozen=True)
class Batch:
    """One batch of a phase as a loss sees it: every process computes the loss of all of it."""

    # this process's pictures in [0, 1], (n, 3, size, size); or the sampled features, (N, d)
    inputs: Tensor
    targets: Tensor  # class indices of all processes' pictures, (N,)
    # (n, …) of this process's pictures → (N, …) of all
    gather: Callable[[Tensor], Tensor] = lambda rows: rows
    # with ``train.accumulate``, in pieces
    split: Callable[..., Tensor] = lambda network, *rows: network(*rows)

    def features(self, network: Network, **options: Any) -> Tensor:
        """CLS features (N, d) of the whole batch; ``options``: of ``network.features``, the same
        for all pictures.
        """
        return self.gather(self.through(partial(network.features, **options)))

    def through(self, network: Callable[..., Tensor], *rows: Tensor) -> Tensor:
        """What ``network`` makes of this process's pictures, and of ``rows`` (n, …) beside them:
        (n, …).

        It may see fewer pictures at a time, and be called again for the gradient, so it makes a row
        of each alone.
        """
        return self.split(network, self.inputs, *rows)


Loss: TypeAlias = Callable[[Batch], dict[str, Tensor]]


@dataclass(frozen=True)
class Recipe:
    """How a phase is trained. ``fit.recipe()`` gives that of the run's settings;
    ``dataclasses.replace`` changes it.

    ``epochs``, ``batch_size``, ``optimiser``, ``lr``, ``weight_decay``; ``momentum`` of SGD.
    ``schedule``: of the rate, which changes ``every`` step or epoch; a cosine reaches 0 after
    ``horizon`` epochs, or ``epochs`` if None; "steps" multiplies by ``decay`` before the
    ``milestones``. ``clip``: largest norm of the whole gradient. ``graph``, ``guard``: allow a CUDA
    graph (see ``Fit``), and ``train.guard``. ``continues``: with the optimiser's state of the phase
    before, for what both train; that one as well.
    """

    epochs: int = 20
    batch_size: int = 48
    optimiser: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: Literal["cosine", "constant", "steps", "quarter_cosine"] = "cosine"
    every: Literal["step", "epoch"] = "step"
    horizon: int | None = None
    milestones: tuple[int, ...] = ()
    decay: float = 0.1
    clip: float | None = None
    graph: bool = True
    guard: bool = True
    continues: bool = False


@dataclass(frozen=True)
class Group:
    """Parameters that learn at ``rate`` times the recipe's rate; with its ``weight_decay`` if none
    is given.
    """

    parameters: Sequence[nn.Parameter]
    rate: float = 1.0
    weight_decay: float | None = None


Included: TypeAlias = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
"""See ``Judging.included``."""


class Relabelled(NamedTuple):
    """Rows (n · v, M) of pictures in the statistics of a ridge head, which were learned as classes
    ``old`` (n,) and are of ``new`` now; −1: not learned.
    """

    rows: Tensor
    old: Tensor
    new: Tensor


class More(NamedTuple):
    """All that has changed in statistics since ``refresh`` gave ``included``, by ridge head without
    sums of its own: a few pictures, so that what was fitted then stays.
    """

    included: Included
    changed: Mapping[str, Relabelled]


class Judged(NamedTuple):
    """What is tuned, and the features (N, d) that it gives to pictures (N, 3, size, size)."""

    tuned: nn.Module
    features: Callable[[Tensor], Tensor]


class Fit(Protocol):
    """What the engine hands to a method. It owns precision, processes, progress and step
    checkpoints.
    """

    transform: Transform  # how pictures become inputs

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
        """Train what requires gradients in ``module`` on the session's augmented pictures or on
        sampled features.

        ``name`` is used once per session. ``loss(batch)`` gives weighted terms by name, which are
        added up. Parameters in no group learn at the recipe's rate. ``after_step`` is called after
        every update; what it changes must be part of ``module``, whose state is saved with the
        step. The features of the learners in ``module`` must not get worse (``train.guard``);
        ``judged``: those of something else that is tuned. On CUDA a step is recorded as a graph, so
        side effects of ``loss`` are lost, unless the recipe has ``graph=False``.
        """

    def recipe(self) -> Recipe:
        """The recipe that the run's settings give for the current session."""

    def piloted(self, gain: float) -> None:
        """Pilots of the session's tuning gain this share of the untuned error; who asked whether it
        pays may stop here.
        """

    def agree(self, decision: bool) -> bool:
        """The decision of the main process, so that all processes go on with the same phases."""

    def features(self, session: Session, *networks: Network) -> tuple[Tensor, ...]:
        """(targets (N,), features (N, d) of each network) over the plain views of the session's
        pictures.
        """

    def record(self, name: str, features: Tensor, targets: Tensor) -> Tensor:
        """What to add to the ridge head ``name`` in place of a session's features (N, d′) with
        class indices (N,): they themselves, or as they are kept.
        """

    def augmented_features(self, name: str, session: Session, network: Network) -> Tensor:
        """Features (N, d) of a random crop of each of the session's pictures, in any order; drawn
        by the ``name``.
        """


class Judging:
    """What is kept of pictures so that they can be judged by later, as it is: features by network.

    For a method whose answers can leave out pictures of all sessions.
    """

    def keep(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What to keep of the features (N, d) by network of some pictures."""
        return dict(features)

    def recall(self, kept: Mapping[str, Tensor], targets: Tensor) -> dict[str, Tensor]:
        """Features (N, d) by network, as they are today, of pictures of classes (N,) of which this
        was ``kept``.
        """
        return dict(kept)

    def included(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """By ridge head, the rows in its statistics of learned pictures, where they are not the
        projected features.
        """
        return {}


class Method(nn.Module, ABC):
    """A continual-learning algorithm. Its ``state_dict`` and ``classes`` are all that is kept
    between sessions.

    ``backbone``: frozen. ``settings``: its own choices. ``seed``: of everything random in it.
    """

    outputs: ClassVar[tuple[str, ...]]  # what ``answer`` gives; the method's own answer comes last
    learning: ClassVar[
        tuple[str, ...]
    ] = ()  # how names of its state begin that predictions do not need
    settings: MethodSettings

    def __init__(self, backbone: Backbone, settings: MethodSettings, seed: int = 0) -> None:
        super().__init__()
        self.backbone = backbone
        self.settings = settings
        self.seed = seed
        self.classes: list[
            Label
        ] = []  # the user's labels in the order they were met; an index is a position here
        self.sessions = 0  # learned so far, counted by the engine; part of the state
        self.notes: dict[
            str, Any
        ] = {}  # what ``learn`` decided in this session, fit for JSON; goes into the metrics

    def __repr__(self) -> str:
        learned = f"{self.sessions} sessions and {len(self.classes)} classes learned"
        return f"<{type(self).__name__}: {learned}, on {self.backbone.name}>"

    @abstractmethod
    def learn(self, session: Session, fit: Fit) -> None:
        """Learn from the current session. ``classes`` already holds its labels."""

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        """Features (N, d) of pictures in [0, 1], by network: all that ``answer`` needs of the
        pictures.
        """
        return {name: network.features(images) for name, network in self.networks.items()}

    @abstractmethod
    def answer(
        self, features: Mapping[str, Tensor], left_out: LeftOut | None = None
    ) -> dict[str, Tensor]:
        """Logits (N, C) by output, from what ``embed`` gave.

        ``left_out``: answer as if these pictures had not been learned, where there is
        ``judging``; nobody asks others.
        """

    def weights(self, logits: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """How much each of the ``logits`` counts in the method's own answer, (N,); empty where
        nothing is weighed.
        """
        return {}

    def likeness(
        self, features: Mapping[str, Tensor], left_out: LeftOut | None = None
    ) -> Tensor | None:
        """How much pictures with these features look like those learned, beside their logits: (N,);
        None: not known. ``left_out``: as in ``answer``.
        """
        return None

    @property
    def judging(self) -> Judging | None:
        """How its answers to pictures of all sessions are given as if these had not been learned;
        None: they cannot be.
        """
        return None

    @property
    def networks(self) -> Mapping[str, Network]:
        """Those through which pictures go."""
        return {}

    def parts(self) -> Parts:
        """What it is made of: what edits, merging, calibrating and exporting need to know."""
        return modules_of(self)

    def refresh(self, more: More | None = None) -> Included:
        """Compute again what follows from the statistics, after classes or pictures were added or
        removed in them, or ``more`` of them alone; gives ``Judging.included`` as it is now.
        """
        for module in self.modules():
            if isinstance(module, RidgeHead):
                module.solve()
        return Judging().included

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """The method's answer: (N, C)."""
        return self.answer(self.embed(images))[self.outputs[-1]]

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.sessions)

    def set_extra_state(self, state: Tensor) -> None:
        self.sessions = int(state)


def all_logits(method: Method, images: Tensor) -> dict[str, Tensor]:
    """Logits (N, C) by output, for pictures in [0, 1]."""
    return method.answer(method.embed(images))


def register_classes(method: Method, labels: Sequence[Label]) -> None:
    """Number the labels that are new."""
    known = set(method.classes)
    method.classes.extend(label for label in labels if label not in known)


def restore(method: Method, state: Mapping[str, Tensor], classes: Sequence[Label]) -> None:
    """Let ``method`` become the one that gave ``state``; a state that does not fit is refused."""
    try:
        method.load_state_dict(state_of_today(state, method.state_dict().keys()))
    except (KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise SafeclError(
            "state.other-method", title=method.settings.title, reason=reason
        ) from error
    method.classes = list(classes)
    method.to(method.backbone.device)


class SessionLearners(Method):
    """A method that tunes a learner of its own in every session."""

    settings: Any

    def __init__(self, backbone: Backbone, settings: MethodSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.learners: Any = nn.ModuleList()

    @property
    def networks(self) -> dict[str, Network]:
        return {f"session {n}": learner for n, learner in enumerate(self.learners)}

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        while len(self.learners) < int(state_dict[f"{prefix}_extra_state"]):  # as many as sessions
            self.learners.append(Learner(self.backbone, self.settings.pet).requires_grad_(False))
        super()._load_from_state_dict(state_dict, prefix, *args)


class TunedMethod(Method):
    """A method whose answers come from the features of one learner; unless overridden, by its
    ``head``.
    """

    settings: Any
    head: Any

    def __init__(self, backbone: Backbone, settings: MethodSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.learner = Learner(backbone, self.settings.pet, seed)

    @property
    def networks(self) -> dict[str, Network]:
        return {"learner": self.learner}

    def answer(
        self, features: Mapping[str, Tensor], left_out: LeftOut | None = None
    ) -> dict[str, Tensor]:
        return {self.settings.name: self.head(features["learner"])}

    def loss(self, current: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy over the classes of this session, ``current`` (sorted), alone."""
        return {
            "cls": local_cross_entropy(
                self.head(batch.features(self.learner)), batch.targets, current
            )
        }
