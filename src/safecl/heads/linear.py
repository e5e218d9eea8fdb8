"""The linear head: blocks of classes, one for every session that brings new ones."""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl.heads.protocol import Trained
from safecl.heads.tensors import GrowingList, without


class LinearHead(Trained, nn.Module):
    """logits = f Wᵀ + b, or s · norm(f) · norm(W)ᵀ with ``cosine`` = s; W (C, d) and b (C,) are
    kept in blocks.

    Classes are numbered in the order of their first appearance, so a block is a range of them.
    """

    def __init__(self, width: int, cosine: float | None = None, uniform: bool = False) -> None:
        super().__init__()
        self.width = width
        self.bias = cosine is None
        self.cosine = cosine
        self.uniform = uniform
        self.weights = GrowingList()
        self.biases = GrowingList()

    @property
    def sizes(self) -> list[int]:
        """The number of classes in each block."""
        return [len(weight) for weight in self.weights]

    @property
    def classes(self) -> int:
        return sum(self.sizes)

    def block_of(self, index: int) -> int:
        """The block of a class."""
        return bisect_right(list(accumulate(self.sizes)), index)

    def forward(self, features: Tensor) -> Tensor:
        """features (N, d) → logits (N, C)."""
        if not len(self.weights):
            return features.new_zeros(len(features), 0)
        weight = torch.cat(list(self.weights))
        if self.cosine is not None:
            return self.cosine * F.linear(F.normalize(features, dim=1), F.normalize(weight, dim=1))
        return F.linear(features, weight, torch.cat(list(self.biases)) if self.bias else None)

    def grow(self, count: int, generator: torch.Generator) -> None:
        """Append a trainable block of ``count`` classes, none if it is 0; the existing ones do not
        change.

        Weights are drawn from N(0, 0.02²) with a generator of the CPU, and biases are 0; with
        ``uniform``, both from U(±1/√d), as ``nn.Linear`` starts.
        """
        if not count:
            return
        weight = torch.empty(count, self.width)
        bias = torch.zeros(count)
        bound = self.width**-0.5
        if self.uniform:
            weight.uniform_(-bound, bound, generator=generator)
            bias.uniform_(-bound, bound, generator=generator)
        else:
            nn.init.trunc_normal_(weight, std=0.02, generator=generator)
        self.weights.append(nn.Parameter(weight.to(self.weights.like)))
        if self.bias:
            self.biases.append(nn.Parameter(bias.to(self.weights.like)))

    def begin(self, current: Tensor, generator: torch.Generator) -> None:
        """Make room for the classes ``current`` (sorted), and let gradients reach the blocks that
        hold them alone.
        """
        self.grow(max(int(current[-1]) + 1 - self.classes, 0), generator)
        self.train_only({self.block_of(index) for index in current.tolist()})

    def drop_class(self, index: int) -> None:
        """Remove a class; those after it move up by one, and a block that is left empty goes."""
        if index >= self.classes:
            return
        block = self.block_of(index)
        row = index - sum(self.sizes[:block])
        for name in ("weights", "biases") if self.bias else ("weights",):
            blocks: list[nn.Parameter] = list(getattr(self, name))
            rest = without(blocks[block].data, row)
            blocks[block : block + 1] = (
                [nn.Parameter(rest, blocks[block].requires_grad)] if len(rest) else []
            )
            setattr(self, name, GrowingList(blocks).to(self.weights.like))

    def train_only(self, blocks: Iterable[int]) -> None:
        """Let gradients reach these blocks alone; −1 is the latest."""
        chosen = {range(len(self.weights))[block] for block in blocks}
        for parameters in (self.weights, self.biases):
            for number, parameter in enumerate(parameters):
                parameter.requires_grad_(number in chosen)
