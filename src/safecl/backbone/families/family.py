"""Any timm network: its own feature is what timm pools, and further back there are the maps of its
stages.
"""

import copy
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl.heads.reading import PLAIN, Reading, Widths

T = TypeVar("T")


class Family:
    """What may be read of a ``network`` that takes pictures of side ``size``.

    ``own``, ``earlier`` and ``patches`` say it in words: the network's own feature, what each block
    or stage before the last one gives, and the other summary of the last one, if there is one.
    ``rounds``: whether its weights may be rounded; else its activations alone are, by autocast.
    ``inserts``: whether prompts and prefixes can be handed to a forward pass.
    """

    own: str = "what timm pools"
    earlier: str = "the mean of the map"
    patches: str | None = None
    rounds: ClassVar[bool] = False
    inserts: ClassVar[bool] = False

    def __init__(self, network: nn.Module, size: int) -> None:
        self.network = network
        self.size = size
        self.widths = self._widths()

    def view(self, network: nn.Module) -> Any:
        """A second tree of modules over the tensors of ``network``, which may be a view itself."""
        return shared_copy(network)

    def features(self, view: Any, pictures: Tensor) -> Tensor:
        """The network's own feature (N, d) of normalised pictures (N, 3, H, W)."""
        return self.pooled(view, view.forward_features(pictures))

    def read(self, view: Any, pictures: Tensor, reading: Reading) -> Tensor:
        """What the ``reading`` asks of one view of a picture, the network's own feature first:
        (N, d′).
        """
        if reading.once == PLAIN:
            return self.features(view, pictures)
        final, maps = view.forward_intermediates(pictures)
        own = self.pooled(view, final)
        # nothing but the size of the own feature says how large the others should be
        size = own.norm(dim=1, keepdim=True) / own.shape[1] ** 0.5
        found = [own]
        stages = maps[: len(self.widths.earlier or ())]
        for stage in stages[::-1][: reading.layers - 1]:
            mean = F.normalize(stage.mean(dim=(2, 3)).to(own.dtype), dim=1)
            found.append(mean * size * mean.shape[1] ** 0.5)
        return torch.cat(found, dim=1)

    def pooled(self, view: Any, final: Any) -> Tensor:
        """Of what ``forward_features`` gives, what timm hands to a classifier: (N, d)."""
        pooled: Tensor = view.forward_head(final, pre_logits=True)
        return pooled.flatten(1)

    def _widths(self) -> Widths:
        def ask(network: Any, picture: Tensor) -> Widths:
            own = self.features(network, picture).shape[1]
            if not hasattr(network, "forward_intermediates"):
                return Widths(own, (), 0)
            final, maps = network.forward_intermediates(picture)
            wide = [int(each.shape[1]) for each in maps]
            if self.pooled(network, final).shape[1] != own or any(each.ndim != 4 for each in maps):
                return Widths(own, (), 0)
            last = len(wide) - (wide[-1] == own)  # a network that pools its last map has read it
            return Widths(own, tuple(reversed(wide[:last])), 0)

        return without_values(self.network, self.size, ask)


def shared_copy(network: nn.Module, place: Callable[[Tensor], Tensor] | None = None) -> Any:
    """A copy of all modules over the same tensors, or over what ``place`` makes of each."""
    tensors = (*network.parameters(), *network.buffers())
    return copy.deepcopy(network, {id(each): place(each) if place else each for each in tensors})


@torch.no_grad()
def without_values(network: nn.Module, size: int, ask: Callable[[Any, Tensor], T]) -> T:
    """What ``ask`` says of the network and a picture of side ``size``, both without values, so that
    nothing is computed; of the network itself where it looks at values.
    """
    meta = torch.device("meta")
    weight = next(network.parameters())
    picture = torch.zeros(1, 3, size, size, dtype=weight.dtype, device=weight.device)

    def empty(tensor: Tensor) -> Tensor:
        made = tensor.to(meta)
        return nn.Parameter(made, False) if isinstance(tensor, nn.Parameter) else made

    try:
        return ask(shared_copy(network, empty), picture.to(meta))
    except (RuntimeError, NotImplementedError):
        return ask(network, picture)
