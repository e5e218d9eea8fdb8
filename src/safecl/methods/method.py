"""The contracts between a method and the engine: ``Method``, ``Fit``, ``Batch`` and ``Recipe``."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.errors import SafeclError
from safecl.heads.cosine import CosineHead
from safecl.heads.gaussians import ClassMoments
from safecl.heads.linear import LinearHead
from safecl.heads.protocol import Editable, editable_parts, refusal
from safecl.heads.ridge import RidgeHead
from safecl.heads.tensors import take_shapes
from safecl.learner import Learner, Reader
from safecl.losses import local_cross_entropy
from safecl.methods.settings.base import MethodSettings
from safecl.randomness import generator
from safecl.streams.pictures.images import Label, Transform
from safecl.streams.stream import Session

Network: TypeAlias = Learner | Backbone | Reader
Sampler: TypeAlias = Callable[[torch.Generator], tuple[Tensor, Tensor]]
"""Draws the features (N, d) and class indices (N,) of one epoch; N is the same for every epoch."""


@dataclass(frozen=True)
class Batch:
    """One batch of a phase, or a piece of one, as a loss sees it: every process computes the loss of all of it."""

    inputs: Tensor  # this process's pictures in [0, 1], (n, 3, size, size); or the sampled features, (N, d)
    targets: Tensor  # class indices of all processes' pictures, (N,)
    gather: Callable[[Tensor], Tensor] = lambda rows: rows  # (n, …) of this process's pictures → (N, …) of all

    def features(self, network: Network, **options: Any) -> Tensor:
        """CLS features (N, d) of the whole batch; ``options`` are those of ``network.features``."""
        return self.gather(network.features(self.inputs, **options))


Loss: TypeAlias = Callable[[Batch], dict[str, Tensor]]


@dataclass(frozen=True)
class Recipe:
    """How a phase is trained. ``fit.recipe()`` gives that of the run's settings; ``dataclasses.replace`` changes it.

    ``epochs``, ``batch_size``, ``optimiser``, ``lr``, ``weight_decay``; ``momentum`` of SGD. ``schedule``: of the rate,
    which changes ``every`` step or epoch; a cosine reaches 0 after ``horizon`` epochs, or ``epochs`` if None; "steps"
    multiplies by ``decay`` before the ``milestones``. ``clip``: largest norm of the whole gradient. ``graph``,
    ``guard``: allow a CUDA graph (see ``Fit``), and ``train.guard``. ``continues``: with the optimiser's state of the
    phase before, for what both train; that one as well.
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
    """Parameters that learn at ``rate`` times the recipe's rate; with its ``weight_decay`` if none is given."""

    parameters: Sequence[nn.Parameter]
    rate: float = 1.0
    weight_decay: float | None = None


class Judged(NamedTuple):
    """What is tuned, and the features (N, d) that it gives to pictures (N, 3, size, size)."""

    tuned: nn.Module
    features: Callable[[Tensor], Tensor]


class Fit(Protocol):
    """What the engine hands to a method. It owns precision, processes, progress and step checkpoints."""

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
        """Train what requires gradients in ``module`` on the session's augmented pictures or on sampled features.

        ``name`` is used once per session. ``loss(batch)`` gives weighted terms by name, which are added up. Parameters
        in no group learn at the recipe's rate. ``after_step`` is called after every update; what it changes must be
        part of ``module``, whose state is saved with the step. The features of the learners in ``module`` must not get
        worse (``train.guard``); ``judged``: those of something else that is tuned. On CUDA a step is recorded as a
        graph, so side effects of ``loss`` are lost, unless the recipe has ``graph=False``.
        """

    def recipe(self) -> Recipe:
        """The recipe that the run's settings give for the current session."""

    def agree(self, decision: bool) -> bool:
        """The decision of the main process, so that all processes go on with the same phases."""

    def features(self, session: Session, *networks: Network) -> tuple[Tensor, ...]:
        """(targets (N,), features (N, d) of each network) over the plain views of the session's pictures."""

    def augmented_features(self, name: str, session: Session, network: Network) -> Tensor:
        """Features (N, d) of a random crop of each of the session's pictures, in any order; drawn by the ``name``."""


class Method(nn.Module, ABC):
    """A continual-learning algorithm. Its ``state_dict`` and ``classes`` are all that is kept between sessions.

    ``backbone``: frozen. ``settings``: its own choices. ``seed``: of everything random in it.
    """

    outputs: ClassVar[tuple[str, ...]]  # what ``answer`` gives; the method's own answer comes last
    anchor: ClassVar[str | None] = None  # key of ``embed`` whose features no session after the first changes, if any
    handles: ClassVar[tuple[str, ...]] = ()  # its own buffers that ``drop_class`` and ``merge`` see to or leave alone
    moving: ClassVar[tuple[str, ...]] = ()  # of its ``networks``, those that every session goes on tuning
    learning: ClassVar[tuple[str, ...]] = ()  # how names of its state begin that predictions do not need
    settings: MethodSettings

    def __init__(self, backbone: Backbone, settings: MethodSettings, seed: int = 0) -> None:
        super().__init__()
        self.backbone, self.settings, self.seed = backbone, settings, seed
        self.classes: list[Label] = []  # the user's labels in the order they were met; an index is a position here
        self.sessions = 0  # learned so far, counted by the engine; part of the state
        self.notes: dict[str, Any] = {}  # what ``learn`` decided in this session, fit for JSON; goes into the metrics

    def __repr__(self) -> str:
        learned = f"{self.sessions} sessions and {len(self.classes)} classes learned"
        return f"<{type(self).__name__}: {learned}, on {self.backbone.name}>"

    @property
    def name(self) -> str:
        """As in settings, run folders and tables."""
        return self.settings.name

    @abstractmethod
    def learn(self, session: Session, fit: Fit) -> None:
        """Learn from the current session. ``classes`` already holds its labels."""

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        """Features (N, d) of pictures in [0, 1], by network: all that ``answer`` needs of the pictures."""
        return {name: network.features(images) for name, network in self.networks.items()}

    @abstractmethod
    def answer(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Logits (N, C) by output, from what ``embed`` gave."""

    def weights(self, logits: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """How much each of the ``logits`` counts in the method's own answer, (N,); empty where nothing is weighed."""
        return {}

    def likeness(self, features: Mapping[str, Tensor]) -> Tensor | None:
        """How much pictures with these features look like those learned, beside their logits: (N,); None: not known."""
        return None

    @property
    def leaves_out(self) -> bool:
        """Whether its answers to pictures of all sessions can be given as if these had not been learned."""
        return False

    def to_keep(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What to keep of the features (N, d) by network of some pictures, so that they can be judged by later."""
        return dict(features)

    def recalled(self, kept: Mapping[str, Tensor], targets: Tensor) -> dict[str, Tensor]:
        """Features (N, d) by network, as they are today, of pictures of classes (N,) of which ``to_keep`` was kept."""
        return dict(kept)

    def included(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """By ridge head, the rows in its statistics of learned pictures, where they are not the projected features."""
        return {}

    @property
    def networks(self) -> Mapping[str, Network]:
        """Those through which pictures go."""
        return {}

    @property
    def heads(self) -> Mapping[str, str]:
        """By network, the ridge head to which a session adds its features."""
        return {}

    @property
    def reads(self) -> Mapping[str, tuple[str, ...]]:
        """By module, the ``networks`` whose features, side by side, it has learned, or the ridge head that gave it its
        own: what ``correct`` must give it."""
        return {}

    def side_by_side(self, features: Sequence[Tensor]) -> Tensor:
        """Features (n, d) of several ``networks`` as a module that reads them has learned them."""
        return torch.cat(list(features), dim=1)

    @torch.no_grad()
    def correct(self, features: Mapping[str, Tensor], old: Tensor, new: Tensor) -> None:
        """Pictures that were learned as classes ``old`` (n,) are ``new``, −1: not learned; ``features`` by module."""
        for name, part in self.summed().items():
            part.correct(features.get(name), old, new)

    @torch.no_grad()
    def join(self, one: int, other: int) -> None:
        """The pictures of class ``other`` become those of class ``one``."""
        for part in self.summed().values():
            part.join(one, other)

    def summed(self) -> Mapping[str, Editable]:
        """The modules, of a method in which labels can be corrected because all that it has of them are sums."""
        parts = editable_parts(self, self.handles)
        for name, part in parts.items():
            sums = isinstance(part, CosineHead | ClassMoments) and part.classes > 0
            sums |= isinstance(part, RidgeHead) and part.statistics.kept and part.statistics.sums.shape[1] > 0
            if sums and name not in self.reads:
                raise refusal(part)
        if self.handles:
            raise refusal(self)
        return parts

    def drop_class(self, index: int) -> None:
        """Remove the class at ``index`` from every module; those after it move up by one."""
        for part in editable_parts(self, self.handles).values():
            part.drop_class(index)

    @torch.no_grad()
    def merge(self, now: "Method", before: "Method", index: Tensor) -> None:
        """Take over what ``now`` has learned since it was ``before``; its class i is class ``index[i]`` here."""
        for name, part in editable_parts(self, self.handles).items():
            part.merge(now.get_submodule(name), before.get_submodule(name), index)
        self.sessions += now.sessions - before.sessions

    def refresh(self) -> None:
        """Compute again what follows from the statistics, after classes or pictures were added or removed in them."""
        for module in self.modules():
            if isinstance(module, RidgeHead):
                module.solve()

    def all_logits(self, images: Tensor) -> dict[str, Tensor]:
        """Logits (N, C) by output, for pictures in [0, 1]."""
        return self.answer(self.embed(images))

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """The method's answer: (N, C)."""
        return self.all_logits(images)[self.outputs[-1]]

    def tune(self, learner: Learner, scale: float, session: Session, fit: Fit, *names: int, rate: float = 1.0) -> None:
        """Train ``learner``, at ``rate``, with a cosine head (initial σ, names of its generator) that is not kept."""
        if not learner.tuning():  # without a PET there is nothing to train
            return
        current = self.current(session)
        head = CosineHead(self.backbone.width, scale).to(self.backbone.device)
        head.grow_random(len(current), generator(self.seed, "head", *names))

        def loss(batch: Batch) -> dict[str, Tensor]:
            return {"cls": F.cross_entropy(head(batch.features(learner)), torch.searchsorted(current, batch.targets))}

        body = Group(list(learner.parameters()), rate)
        fit(self.name, nn.ModuleList([learner, head]), session, loss, groups=[body])
        learner.freeze()

    def begin(self, head: LinearHead, session: Session) -> Tensor:
        """Let a session train the blocks of its classes alone; their indices, sorted: (K,)."""
        current = self.current(session)
        head.begin(current, generator(self.seed, "head", head.classes))
        return current

    def register_classes(self, labels: tuple[Label, ...]) -> None:
        """Number the labels that are new."""
        known = set(self.classes)
        self.classes.extend(label for label in labels if label not in known)

    def current(self, session: Session) -> Tensor:
        """The indices of the session's classes, sorted: (K,)."""
        index = {label: i for i, label in enumerate(self.classes)}
        return torch.tensor(sorted(index[label] for label in session.classes), device=self.backbone.device)

    def restore(self, state: Mapping[str, Tensor], classes: list[Label]) -> None:
        """Become the method that gave ``state``; a state that does not fit is refused."""
        try:
            self.load_state_dict(dict(state))
        except (KeyError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise SafeclError(f"The state is not one of {self.settings.title} as it is set here ({reason}).") from error
        self.classes = list(classes)
        self.to(self.backbone.device)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        take_shapes(self, state_dict, prefix, self.handles)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.sessions)

    def set_extra_state(self, state: Tensor) -> None:
        self.sessions = int(state)

    def facts(self) -> dict[str, Any]:
        """Sizes worth reporting: learnable numbers, and bytes kept between sessions."""
        kept = {tensor.data_ptr(): tensor.nbytes for tensor in self.state_dict().values()}
        learnable = sum(parameter.numel() for parameter in self.parameters())
        return {"learnable": learnable, "bytes_kept": sum(kept.values())}


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
    """A method whose answers come from the features of one learner; unless overridden, by its ``head``."""

    settings: Any
    head: Any

    def __init__(self, backbone: Backbone, settings: MethodSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.learner = Learner(backbone, self.settings.pet, seed)

    @property
    def networks(self) -> dict[str, Network]:
        return {"learner": self.learner}

    def answer(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {self.name: self.head(features["learner"])}

    def loss(self, current: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy over the classes of this session, ``current`` (sorted), alone."""
        return {"cls": local_cross_entropy(self.head(batch.features(self.learner)), batch.targets, current)}
