"""What the training loop trains in these tests."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.cosine import CosineHead
from safecl.learner import Learner
from safecl.methods.method import Batch
from safecl.pet.settings import pet_settings
from safecl.randomness import generator


class Tuned(nn.Module):
    """A learner and a head, as a method has them."""

    def __init__(self, backbone: Backbone, pet: str = "adapter") -> None:
        super().__init__()
        options = {"bottleneck": 4} if pet == "adapter" else {}
        self.learner = Learner(backbone, pet_settings(pet, **options))
        self.head = CosineHead(backbone.width)
        self.head.grow_random(3, generator(0, "head"))

    @property
    def pet(self) -> nn.Module:
        return self.learner.pet

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        return {
            "cls": nn.functional.cross_entropy(
                self.head(batch.features(self.learner)), batch.targets
            )
        }


@pytest.fixture
def backbone(make_backbone: Callable[..., Backbone]) -> Backbone:
    return make_backbone(depth=1)


@pytest.fixture(scope="session")
def server(fork_server: Any) -> Iterator[Any]:
    """``server.run(folder)``: a run of ``tiny_run.py`` in a process that may be killed."""
    started = fork_server(str(Path(__file__).parent / "tiny_run.py"), ".", "--serve")
    yield started
    started.close()
