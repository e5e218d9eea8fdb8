"""The batches of a phase: augmented pictures of a session, or sampled features. What a step needs is a few tensors."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from safecl.engine.device_loader import DeviceLoader, moved
from safecl.engine.processes import Processes
from safecl.methods.method import Batch, Recipe, Sampler
from safecl.randomness import generator
from safecl.streams.pictures.crop import cut_out, random_crops

Inputs: TypeAlias = tuple[Tensor, ...]


class Batches(ABC):
    """Where the steps of a phase get their inputs."""

    def __init__(self, rows: int, recipe: Recipe, seed: int, session: int, name: str) -> None:
        self.rows, self.recipe, self.seed = rows, recipe, seed  # rows: pictures or features an epoch
        self.names = session, name  # no other phase draws the same numbers
        self.per_epoch = math.ceil(rows / recipe.batch_size)  # steps

    @abstractmethod
    def inputs(self, start: int) -> Iterator[Inputs]:
        """The tensors that each step from ``start`` on takes, made ready one step ahead of their use."""

    @abstractmethod
    def pieces(self, *inputs: Tensor) -> Iterator[tuple[Batch, float]]:
        """The pieces in which a step's inputs go through the network, and each one's share of the loss.

        Called inside the recorded step: no look at a value, no host work that differs from step to step.
        """

    def _epochs(self, start: int, what: str) -> Iterator[tuple[int, int, Tensor]]:
        """Each epoch from a step on: its number, its first step that is left, and the rows that are, in their order."""
        for epoch in range(start // max(self.per_epoch, 1), self.recipe.epochs if self.rows else 0):
            order = torch.randperm(self.rows, generator=generator(self.seed, what, *self.names, epoch))
            done = max(start - epoch * self.per_epoch, 0)
            yield epoch, epoch * self.per_epoch + done, order[done * self.recipe.batch_size :]


class PictureBatches(Batches):
    """A session's pictures in a new order each epoch, each cropped anew; every process takes its part of a batch."""

    def __init__(
        self,
        loader: DeviceLoader,
        targets: Tensor,
        session: int,
        name: str,
        recipe: Recipe,
        seed: int,
        processes: Processes,
        accumulate: int,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(len(targets), recipe, seed, session, name)
        self.loader, self.targets, self.processes = loader, targets, processes
        # Where the network rounds its pictures to bfloat16, float16 is more than precise enough for the crops.
        self._dtype = torch.float32 if dtype == torch.float32 else torch.float16
        self._piece = math.ceil(recipe.batch_size / accumulate)

    def inputs(self, start: int) -> Iterator[Inputs]:
        """(this process's canvases of the batch, their crops, all targets of it)."""
        size, device = self.recipe.batch_size, self.targets.device
        for _, first, order in self._epochs(start, "order"):
            batches, labels = torch.split(order, size), torch.split(self.targets[moved(order, device)], size)
            canvases = self.loader.canvases([batch[self._own(len(batch))].tolist() for batch in batches])
            for step, (these, (canvas, shapes)) in enumerate(zip(labels, canvases, strict=True), first):
                # All crops of the batch are drawn, so that those of a picture do not depend on which process takes it.
                own, random = self._own(len(these)), generator(self.seed, "augment", *self.names, step)
                every = torch.ones(len(these), 3).index_copy(0, own, shapes)
                yield canvas, moved(random_crops(every, self.loader.transform, random)[own], device), these

    def pieces(self, *inputs: Tensor) -> Iterator[tuple[Batch, float]]:
        canvas, crops, targets = inputs
        at = 0  # of this process's canvases
        for part in torch.split(targets, self._piece):
            n, share = len(part), self.processes.share(len(part))
            own = slice(at, at := at + share.stop - share.start)
            images = cut_out(canvas[own], crops[own], self.loader.transform.size, self._dtype)
            yield Batch(images, part, partial(self.processes.gather, n=n)), n / len(targets)

    def _own(self, n: int) -> Tensor:
        """The rows of a batch of n pictures that this process takes."""
        pieces = torch.split(torch.arange(n), self._piece)
        return torch.cat([piece[self.processes.share(len(piece))] for piece in pieces])


class FeatureBatches(Batches):
    """Features that ``sampler`` draws for each epoch, in a new order; every process computes the whole batch."""

    def __init__(
        self, sampler: Sampler, session: int, name: str, recipe: Recipe, seed: int, device: torch.device
    ) -> None:
        draw = "sampled features", session, name
        self._draw: Callable[[int], Inputs] = lambda epoch: sampler(generator(seed, *draw, epoch))
        super().__init__(len(self._draw(0)[1]), recipe, seed, session, name)
        self.device = device

    def inputs(self, start: int) -> Iterator[Inputs]:
        """(features, targets)."""
        for epoch, _, order in self._epochs(start, "feature order"):
            features, targets = (moved(part, self.device) for part in self._draw(epoch))
            for rows in torch.split(moved(order, self.device), self.recipe.batch_size):
                yield features[rows], targets[rows]

    def pieces(self, *inputs: Tensor) -> Iterator[tuple[Batch, float]]:
        features, targets = inputs
        yield Batch(features, targets), 1.0
