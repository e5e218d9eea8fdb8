"""An expert is a network, what is read of it, and a head: one voice of an answer.

A method whose answer is an ensemble of experts lists them, and says how they are combined; another
voice is one more line in that list.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.heads.cosine import CosineHead
from safecl.heads.left_out import LeftOut
from safecl.heads.reading import PLAIN, Reading
from safecl.heads.ridge import RidgeHead
from safecl.learner import Learner, Reader
from safecl.methods.ensemble import side_by_side
from safecl.methods.method import Fit, Method, Network
from safecl.methods.parts import Parts, learned_from, merging
from safecl.streams.stream import Session


@dataclass(frozen=True)
class Expert:
    """One voice of an answer.

    ``part``: the name of its head in the method's state. ``networks``: by the names that their
    features have in ``embed``; concatenation reads two. ``together``: how the features of several
    become one.
    """

    name: str
    part: str
    networks: Mapping[str, Learner | Backbone]
    head: Any  # ridge, cosine or linear
    reading: Reading = PLAIN
    together: Callable[..., Tensor] = side_by_side
    moves: bool = False  # every session goes on tuning its network

    def features(self, images: Tensor) -> dict[str, Tensor]:
        """By network, what the head is asked about for pictures in [0, 1]: (N, d′)."""
        once = self.reading.once
        if not isinstance(self.head, RidgeHead):
            return {name: network.features(images) for name, network in self.networks.items()}
        return {name: network.read(images, once) for name, network in self.networks.items()}

    def readers(self) -> dict[str, Network]:
        """The networks as the head learns from them."""
        if not isinstance(self.head, RidgeHead):
            return dict(self.networks)
        return {name: Reader(network, self.reading) for name, network in self.networks.items()}

    def of(self, features: Mapping[str, Tensor]) -> Tensor:
        """From features (N, d′) by network, what goes into the head."""
        rows = [features[name] for name in self.networks]
        return rows[0] if len(rows) == 1 else self.together(*rows)

    def add(self, rows: Tensor, targets: Tensor, fit: Fit) -> Tensor:
        """Let the ridge head learn features (N, d′) of classes (N,); gives them as kept."""
        recorded = fit.record(self.part, rows, targets)
        self.head.add(recorded, targets)
        return recorded

    def describe(self, parts: Parts) -> Parts:
        """The same parts, of which its head and its networks are as it says."""
        found = merging(parts, self.networks.values(), "average" if self.moves else "keep")
        if not isinstance(self.head, RidgeHead | CosineHead):
            return found
        return learned_from(found, {self.part: tuple(self.networks)}, self.together)

    def logits(self, features: Mapping[str, Tensor], left_out: LeftOut | None = None) -> Tensor:
        """z of features (N, d′) by network: (N, C); ``left_out``: see ``Method.answer``."""
        rows = self.of(features)
        if not isinstance(self.head, RidgeHead):
            also = (left_out,) if isinstance(self.head, CosineHead) else ()
            found: Tensor = self.head(rows, *also)
            return found
        included = None if left_out is None else left_out.rows.get(self.part)
        return self.head.logits(rows, left_out, included)


class Ensemble(Method):
    """A method that answers by experts."""

    settings: Any

    @abstractmethod
    def experts(self) -> Mapping[str, Expert]:
        """Those that learn, by name."""

    def reading(self, session: Session, fit: Fit) -> Reading:
        """What the ridge heads read of a picture: as set."""
        widths = self.backbone.widths
        plainest: Reading = self.settings.ridge.readings(widths, fit.transform.flip > 0)[0]
        return plainest

    @property
    def networks(self) -> dict[str, Network]:
        found: dict[str, Network] = {}
        for expert in self.experts().values():
            found |= expert.readers()
        return found

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for expert in self.experts().values():
            found |= expert.features(images)
        return found

    def parts(self) -> Parts:
        """Heads read what their experts do, whose networks stay unless they move."""
        found = super().parts()
        for expert in self.experts().values():
            found = expert.describe(found)
        return found

    def read(self, reading: Reading) -> None:
        """Let every ridge head read this of a picture, in what is learned from now on."""
        for expert in self.experts().values():
            if isinstance(expert.head, RidgeHead):
                expert.head.read(reading)

    def frozen(self) -> dict[str, Network]:
        """The networks that no later session tunes, as the heads learn from them."""
        found: dict[str, Network] = {}
        for expert in self.experts().values():
            found |= {} if expert.moves else expert.readers()
        return found

    def last(self, features: Tensor) -> Tensor:
        """Of what a ridge head reads (N, d′), the features (N, d) of the network itself."""
        return features[:, : self.backbone.width]
