"""The contract of every method: learn one session at a time, give logits over the classes learned so far."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, TypeAlias

from torch import Tensor, nn

from safecl.backbone import Backbone
from safecl.learner import Learner
from safecl.streams.images import Label
from safecl.streams.stream import Session

Loss: TypeAlias = Callable[[Tensor, Tensor], dict[str, Tensor]]


class Fit(Protocol):
    """What the engine hands to a method. It owns optimiser, schedule, precision, processes, progress, checkpoints."""

    def __call__(self, name: str, learner: nn.Module, session: Session, loss: Loss) -> None:
        """Train what requires gradients in ``learner`` on the session's augmented pictures.

        ``loss(images, targets)`` gives weighted terms by name, which are added up. ``images``: (N, 3, size, size) in
        [0, 1]; ``targets``: class indices (N,).
        """

    def features(self, session: Session, *learners: Learner | Backbone) -> tuple[Tensor, ...]:
        """(targets (N,), features (N, d) of each learner) over the plain views of the session's pictures."""


class Method(nn.Module, ABC):
    """A continual-learning algorithm. Its ``state_dict`` and ``classes`` are all that is kept between sessions."""

    name: ClassVar[str]
    outputs: ClassVar[tuple[str, ...]]  # what ``all_logits`` gives; the method's own answer comes last

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone
        self.classes: list[Label] = []  # the user's labels in the order they were met; an index is a position here

    @abstractmethod
    def learn(self, session: Session, fit: Fit) -> None:
        """Learn from the current session. ``classes`` already holds its labels."""

    @abstractmethod
    def all_logits(self, images: Tensor) -> dict[str, Tensor]:
        """Logits (N, C) by output, for pictures in [0, 1]."""

    def logits(self, images: Tensor) -> Tensor:
        """The method's answer: (N, C)."""
        return self.all_logits(images)[self.outputs[-1]]

    def register_classes(self, labels: tuple[Label, ...]) -> None:
        """Number the labels that are new."""
        known = set(self.classes)
        self.classes.extend(label for label in labels if label not in known)

    def restore(self, state: Mapping[str, Tensor], classes: list[Label]) -> None:
        """Become the method that gave ``state``."""
        self.classes = list(classes)
        self.load_state_dict(dict(state))
        self.to(self.backbone.device)

    def facts(self) -> dict[str, Any]:
        """Sizes worth reporting: learnable numbers, and bytes kept between sessions."""
        kept = {tensor.data_ptr(): tensor.nbytes for tensor in self.state_dict().values()}
        learnable = sum(parameter.numel() for parameter in self.parameters())
        return {"learnable": learnable, "bytes_kept": sum(kept.values())}
